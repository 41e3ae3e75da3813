"""A machine with TPUs in namespaces of its own: PCI devices, a runtime that serves metrics, tpu-info and otel-hardware.

Usage: tpu_machine.py

Prints, as JSON, the output of tpu-info and of otel-hardware. Exits with status 77 and the reason if namespaces are not
allowed.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support import namespace
from tests.tools.tpu import FakeTpu, doubles, integers, serving

from opentelemetry.instrumentation.hardware.sources.tpu import fields

MOUNTS, PROCESSES, NETWORK = 0x20000, 0x20000000, 0x40000000
BIND, PRIVATE_BELOW = 1 << 12, 1 << 18 | 1 << 14
GIB = 1 << 30
BIN = Path(sys.executable).parent


def private() -> None:
    """Enter new mount, PID and network namespaces, in a child."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(MOUNTS | PROCESSES | NETWORK) or libc.mount(b"none", b"/", None, PRIVATE_BELOW, None):
        print(os.strerror(ctypes.get_errno()))
        sys.exit(77)
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    if libc.mount(b"proc", b"/proc", b"proc", 0, None):
        print(os.strerror(ctypes.get_errno()))
        sys.exit(77)


def bind(libc: ctypes.CDLL, made: Path, place: str) -> None:
    """Bind mount a file or folder over another."""
    if libc.mount(os.fsencode(made), place.encode(), None, BIND, None):
        raise OSError(ctypes.get_errno(), place)


def chips(root: Path) -> None:
    """Four TPU v6e chips on the PCI bus."""
    bus = root / "devices"
    for number in range(4):
        place = bus / f"0000:00:{4 + number:02x}.0"
        place.mkdir(parents=True)
        for name, value in (("vendor", "0x1ae0"), ("device", "0x006f"), ("subsystem_device", "0x004f")):
            (place / name).write_text(value + "\n")
        (place / "iommu_group").symlink_to(f"../../kernel/iommu_groups/{number}")
    libc = ctypes.CDLL(None, use_errno=True)
    bind(libc, bus, "/sys/bus/pci/devices")


def without_libtpu(folder: Path) -> None:
    """Answer the four calls of `pip list` by which tpu-info looks for libtpu, which is not installed."""
    pip = folder / "pip"
    pip.write_text("#!/bin/sh\n")
    pip.chmod(0o755)
    CLEAN["PATH"] = f"{folder}{os.pathsep}{CLEAN['PATH']}"


def output(*line: str) -> str:
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, env=CLEAN)
    assert done.returncode == 0 or "doctor" in line, done.stderr  # it fails without a Collector
    return done.stdout


CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("TPU_")} | {"COLUMNS": "160"}

if __name__ == "__main__":
    private()
    namespace.loopback()
    devices = range(4)
    tpu = FakeTpu(
        {
            fields.DUTY_CYCLE: doubles({device: 10.5 + 20 * device for device in devices}),
            fields.MEMORY_TOTAL: integers(dict.fromkeys(devices, 32 * GIB)),
            fields.MEMORY_USED: integers({device: (3 + device) * GIB for device in devices}),
        }
    )
    with TemporaryDirectory() as folder:
        chips(Path(folder))
        ours = ("otel-hardware", "snapshot", "--sources", "tpu", "--window", "0.1", "--format")
        without_libtpu(Path(folder))
        with serving(tpu, "localhost:8431"):
            shown = output(str(BIN / "tpu-info"))
            numbers = json.loads(output(str(BIN / ours[0]), *ours[1:], "json"))
            keys = json.loads(output(str(BIN / ours[0]), *ours[1:], "wandb"))
        idle = output(str(BIN / "otel-hardware"), "doctor", "--format", "json", "--sources", "tpu")
        print(json.dumps({"shown": shown, "ours": numbers["metrics"], "keys": keys, "idle": json.loads(idle)}))
