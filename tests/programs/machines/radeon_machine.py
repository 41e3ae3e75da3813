"""A machine with AMD GPUs in a new mount namespace: real files under /sys, for AMD's tools and for our source.

Usage: radeon_machine.py SCENE

Prints, as JSON, what was read there; status 77, with the reason, if namespaces are not allowed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from tests.support import namespace
from tests.tools import amdsysfs
from tests.tools.amdsysfs import Gpu, table

from opentelemetry.instrumentation.hardware import cli
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext, discover

# rocm-smi is the tool that is read, even where amd-smi is installed.
TOOL: dict[str, Any] = {"amdgpu": "off", "amd_smi": "off"}

HBM = table(3, energy=62_929_744_071_539, hbm=[43, 39, 42, 41], status=0)
FIRST = Gpu(rpm=1180, pwm=102, metrics=HBM)
SECOND = Gpu(
    1,
    "0000:c9:00.0",
    unique="43cc8cc8af246701",
    serial="692139000111",
    busy=100,
    memory_busy=57,
    used=67_000_000_000,
    edge=61_000,
    junction=88_000,
    memory=79_000,
    power=287_000_000,
    graphics=1700,
    clock=1600,
    millivolts=1018,
    replays=147,
    metrics=HBM,
)


def private() -> None:
    """Hide this machine's /sys/class and /sys/module."""
    namespace.enter()
    namespace.empty("/sys/class", "/sys/module")


@contextmanager
def opened(**settings: object) -> Iterator[Source]:
    source = discover()["amd"]()(SourceContext(Config.read(settings, {}), Drivers(), os.getpid()))
    source.open()
    try:
        yield source
    finally:
        source.close()


def reading(source: Source) -> dict[str, Any]:
    """One reading: values by series, and remarks on what is missing."""
    points = {f"{series.metric.name}{sorted(series.attributes.items())}": value for series, value in source.read_all()}
    return {"points": points, "missing": source.unsupported}


def printed() -> Any:
    line = ["rocm-smi", "-a", "--showmeminfo", "vram", "--json"]
    return json.loads(subprocess.run(line, capture_output=True, check=False).stdout)


def agree() -> Any:
    """The files, the tool, and AMD's own reading of the same files."""
    amdsysfs.write(amdsysfs.machine([SECOND, FIRST]))
    with opened() as files, opened(**TOOL) as tool:
        reading(files)  # limits are known from then on
        return {
            "printed": printed(),
            "files": reading(files),
            "tool": reading(tool),
        }


def unreadable() -> Any:
    """The second card lacks some files."""
    files = amdsysfs.machine([FIRST, SECOND])
    for name in ("mem_info_vram_used", "gpu_busy_percent", "hwmon/hwmon4/power1_average", "hwmon/hwmon4/temp1_input"):
        del files[f"{SECOND.folder}/{name}"]
    amdsysfs.write(files)
    with opened() as read, opened(**TOOL) as tool:
        return {"printed": printed(), "files": reading(read), "tool": reading(tool)}


def vanishing() -> Any:
    """A card is removed, and returns later."""
    amdsysfs.write(amdsysfs.machine([FIRST, SECOND]))
    with opened() as source:
        before = reading(source)
        for name in ("card1", "renderD129"):
            os.remove(f"/sys/class/drm/{name}")
        shutil.rmtree(f"/sys/class/devices/pci0000:00/{SECOND.bdf}")
        gone = reading(source)
        amdsysfs.write(SECOND.files())
        return {"before": before, "gone": gone, "back": reading(source)}


def asleep() -> Any:
    """A suspended card: opening any file except its state blocks forever."""
    sleeper = replace(SECOND, asleep=True)
    amdsysfs.write(amdsysfs.machine([FIRST, sleeper]))
    folder = Path(sleeper.folder)
    for path in [each for each in folder.rglob("*") if each.is_file()]:
        if path.name not in ("uevent", "runtime_status"):
            path.unlink()
            os.mkfifo(path)
    with opened() as source:
        sleeping = reading(source)
        for path in [each for each in folder.rglob("*") if each.is_fifo()]:
            path.unlink()
        amdsysfs.write(SECOND.files())
        return {"asleep": sleeping, "awake": reading(source)}


def aborting() -> Any:
    """AMD's library aborts the tool where a folder is missing."""
    files = amdsysfs.machine([FIRST])
    amdsysfs.write({name: text for name, text in files.items() if "io_links" not in name})
    with opened() as source:
        read = reading(source)
    try:
        with opened(**TOOL):
            return {"files": read, "error": None}
    except Exception as error:
        return {"files": read, "error": f"{type(error).__name__}: {error}"}


def chosen() -> Any:
    """Snapshots in a Slurm job that has one partition of the second card."""
    amdsysfs.write(amdsysfs.machine([FIRST, replace(SECOND, parts=4)]))
    job = {"SLURM_JOB_ID": "7", "ROCR_VISIBLE_DEVICES": "0,3", "HIP_VISIBLE_DEVICES": "1"}
    os.environ.update(job)
    found = {}
    for form in ("json", "wandb"):
        with redirect_stdout(StringIO()) as output:
            cli.main(["snapshot", "--sources", "amd", "--window", "0.1", "--format", form])
        found[form] = output.getvalue()
    return found


def absent() -> Any:
    """The error and the threads without a driver."""
    try:
        with opened():
            return None
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}", "threads": threading.active_count()}


SCENES: dict[str, Callable[[], Any]] = {
    each.__name__: each for each in (agree, unreadable, vanishing, asleep, aborting, chosen, absent)
}

if __name__ == "__main__":
    private()
    print(json.dumps(SCENES[sys.argv[1]]()))
