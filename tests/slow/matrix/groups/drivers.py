"""NVIDIA's library: files that are none, constructors that do not return, calls that hang, crash, fail or lie."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.slow.matrix.case import AGENT, ESCAPES, Case, Surroundings, after_reports
from tests.slow.matrix.compiled import library
from tests.tools.nvml import CRASH, HANG, FakeNvml, Value, h100, refused

CRASHES: Final = "a library that crashes in a call ends the program; MODE=agent avoids it (docs/SECURITY.md)"


def _file(make: Callable[[Path], object]) -> Surroundings:
    """A file in place of the library."""

    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        path = folder / "made" / "libnvidia-ml.so.1"
        open_ = make(path)
        yield {"OTEL_PYTHON_HARDWARE_NVML": str(path), "OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}
        if isinstance(open_, socket.socket):
            open_.close()

    return around


def _listen(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(os.fspath(path))
    return made


def _truncated(path: Path) -> None:
    path.write_bytes(library("int x;").read_bytes()[:3000])


def _foreign(path: Path) -> None:
    data = bytearray(library("int x;").read_bytes())
    data[18:20] = b"\x08\x00"  # MIPS
    path.write_bytes(data)


def _corrupt(path: Path) -> None:
    data = bytearray(library("int x;").read_bytes())
    data[64:600] = b"\xff" * 536
    path.write_bytes(data)


_FILES: Final[Mapping[str, Callable[[Path], object]]] = {
    "missing": lambda path: None,
    "empty": lambda path: path.touch(),
    "text": lambda path: path.write_text("not a library\n" * 1000),
    "zeros": lambda path: path.write_bytes(bytes(100_000)),
    "directory": lambda path: path.mkdir(),
    "fifo": os.mkfifo,
    "socket": _listen,
    "null-device": lambda path: path.symlink_to("/dev/null"),
    "zero-device": lambda path: path.symlink_to("/dev/zero"),
    "dangling-link": lambda path: path.symlink_to("/nowhere/lib.so"),
    "link-loop": lambda path: path.symlink_to(path),
    "truncated": _truncated,
    "foreign-machine": _foreign,
    "corrupt": _corrupt,
    "other-library": lambda path: path.symlink_to(library("int nothing;")),
    "link-script": lambda path: path.write_text("INPUT(/nowhere/libnvidia-ml.so)\n"),
}

_CONSTRUCTORS: Final = {
    "hangs": "for (;;) pause();",
    "spins": "for (;;);",
    "slow": "sleep(2);",
    "exits-0": "exit(0);",
    "exits-42": "_exit(42);",
    "aborts": "abort();",
    "crashes": "*(volatile int *)0 = 1;",
    "terminated": "raise(SIGTERM);",
    "stops": "raise(SIGSTOP);",
    "prints": 'for (int n = 0; n < 10000; n++) puts("noise noise noise"); fflush(stdout);',
    "prints-errors": 'for (int n = 0; n < 10000; n++) fputs("noise noise noise\\n", stderr);',
    "closes-files": "for (int n = 0; n < 64; n++) close(n);",
    "forks": "if (fork() == 0) { for (;;) pause(); }",
    "forks-daemon": "if (fork() == 0) { setsid(); for (;;) pause(); }",
    "ignores-signals": "for (int n = 1; n < 32; n++) signal(n, SIG_IGN); for (;;) pause();",
    "changes-folder": 'chdir("/");',
    "changes-umask": "umask(0777);",
    "overflows": "char big[100000000]; memset(big, 1, sizeof big);",
}
_SIDE_EFFECTS: Final = ("changes-folder", "changes-umask", "prints", "prints-errors", "forks", "forks-daemon")


def _constructor(code: str) -> Surroundings:
    source = f"__attribute__((constructor)) static void begin(void) {{ {code} }}\nint nothing;"
    return _file(lambda path: path.symlink_to(library(source)))


def _init(code: str) -> Surroundings:
    return _file(lambda path: path.symlink_to(library(f"int nvmlInit_v2(void) {{ {code} return 9; }}")))


def _nvml(lines: Mapping[str, Value | None], **options: tuple[str, ...]) -> Surroundings:
    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        driver = FakeNvml(folder / "made", h100(0), h100(1), **options)
        driver.set_lines(lines)
        yield driver.environment | {"OTEL_PYTHON_HARDWARE_NVIDIA_SMI": "off"}

    return around


def _called(call: str) -> Callable[[Path], str]:
    """Check that the faulty call was made."""
    name = call.partition(".")[2] or call

    def check(folder: Path) -> str:
        path = folder / "made" / "nvml-calls"
        calls = path.read_text() if path.exists() else ""
        return "" if name in calls or "." not in call else f"{call} was never called"

    return check


_CALLS: Final = (
    *("Init", "Count", "DriverVersion", "gpu0", "gpu0.Name", "gpu0.UUID", "gpu0.MemoryInfo", "gpu0.UtilizationRates"),
    *("gpu0.PowerUsage", "gpu1.ComputeRunningProcesses"),
)
_CODES: Final = (1, 2, 3, 4, 6, 8, 9, 10, *range(12, 30), 999, 7777)

_LIES: Final[Mapping[str, Mapping[str, Value | None]]] = {
    "count-zero": {"Count": 0},
    "count-huge": {"Count": 4_000_000_000},
    "count-grows": {"Count": 3},
    "utilization-200": {"gpu0.UtilizationRates": (200, 4_000_000_000)},
    "utilization-absent": {"gpu0.UtilizationRates": (-1, -1)},
    "power-all-ones": {"gpu0.PowerUsage": 4_294_967_295},
    "power-petawatt": {"gpu0.PowerUsage": 4_000_000_000},
    "temperature-negative": {"gpu0.TemperatureV.0": -300, "gpu0.Temperature.0": -300},
    "temperature-huge": {"gpu0.TemperatureV.0": 2_000_000_000, "gpu0.Temperature.0": 2_000_000_000},
    "memory-used-more": {"gpu0.MemoryInfo": (100, 100, 100, 10**15)},
    "memory-all-ones": {"gpu0.MemoryInfo": (-1, -1, -1, -1)},
    "memory-zero": {"gpu0.MemoryInfo": (0, 0, 0, 0)},
    "energy-falls": {"gpu0.TotalEnergyConsumption": "90000000000000+-1000000@0"},
    "energy-wraps": {"gpu0.TotalEnergyConsumption": "18446744073709551615"},
    "clock-huge": {"gpu0.ClockInfo.1": 4_294_967_295},
    "fan-300": {"gpu0.NumFans": 1000, "gpu0.FanSpeed.0": 300},
    "same-uuid": {"gpu1.UUID": "GPU-0", "gpu0.UUID": "GPU-0"},
    "empty-uuid": {"gpu0.UUID": "", "gpu1.UUID": ""},
    "odd-name": {"gpu0.Name": ESCAPES + "é" * 40},
    "no-driver-version": {"DriverVersion": "x.y"},
    "many-processes": {"gpu0.ComputeRunningProcesses": " ".join(f"{pid}:1000000" for pid in range(1, 3000))},
    "process-huge-memory": {"gpu0.ComputeRunningProcesses": "1:18446744073709551615"},
    "links-many": {"gpu0.FieldValues.91": "uint 4000000000"},
    "mig-lies": {"gpu0.MigMode": (1, 1), "gpu0.MaxMigDeviceCount": 4_000_000_000},
}


_EACH_GPU: Final = "each GPU that does not respond is logged once, at most 256"


def cases() -> list[Case]:
    found = [
        Case(f"library-{name}", around=_file(make), lines=1, fast=name in ("fifo", "truncated"))
        for name, make in _FILES.items()
    ]
    found += [
        Case(
            f"constructor-{name}",
            around=_constructor(code),
            lines=1,
            expected=_SIDE_EFFECT if name in _SIDE_EFFECTS else "",
            fast=name == "aborts",
        )
        for name, code in _CONSTRUCTORS.items()
    ]
    found += [
        Case(f"init-{name}", around=_init(code), lines=1)
        for name, code in _CONSTRUCTORS.items()
        if name in ("hangs", "spins", "slow", "aborts", "crashes", "exits-42", "terminated", "prints")
    ]
    for call in _CALLS:
        around = _nvml({call: HANG})
        found.append(Case(f"hang-{call}", around=around, lines=1, check=_called(call), fast=call == "gpu0.Name"))
        if call == "Init":  # the first call: a child makes it first, without the variables of the simulation
            continue
        around = _nvml({call: CRASH})
        found.append(Case(f"crash-{call}", around=around, lines=1, expected=CRASHES))
        found.append(Case(f"crash-{call}-agent", around=around, settings=AGENT, lines=1, hosts=None))
    found += [
        Case(f"code-{code}-{call}", around=_nvml({call: refused(code)}), lines=1, fast=call == "Init" and code == 999)
        for call in ("Init", "gpu0")
        for code in _CODES
    ]
    found += [
        Case(
            f"lie-{name}",
            around=_nvml(lines),
            lines=1,
            act=after_reports("otel_hardware.source.up"),
            expected=_EACH_GPU if name == "count-huge" else "",
            fast=name == "memory-all-ones",
        )
        for name, lines in _LIES.items()
    ]
    for name, functions in {
        "no-functions": ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
        "no-count": ("nvmlDeviceGetCount_v2",),
        "no-handle": ("nvmlDeviceGetHandleByIndex_v2",),
        "no-init": ("nvmlInit_v2", "nvmlInitWithFlags"),
    }.items():
        found.append(Case(f"old-{name}", around=_nvml({}, without=functions), lines=2))
    found.append(Case("works", around=_nvml({}), act=after_reports("hw.gpu.utilization"), fast=True))
    literal = "".join(f"\\{byte:03o}" for byte in ESCAPES.encode())
    prints = _constructor(f'for (int n = 0; n < 1000; n++) fputs("{literal}\\n", stderr);')
    found.append(Case("constructor-prints-escapes-agent", around=prints, settings=AGENT, lines=21))
    found.append(Case("works-agent", around=_nvml({}), settings=AGENT, act=after_reports("hw.gpu.utilization")))
    return found


_SIDE_EFFECT: Final = "what a library's constructor does to the process remains: it is trusted (docs/SECURITY.md)"
