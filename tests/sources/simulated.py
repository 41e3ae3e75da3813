"""Captures of the NVIDIA source with simulated drivers: ``python -m tests.sources.simulated FOLDER NAME...``.

Each is recorded in a separate process, because a library is loaded once. The real source reads the library of
`tests/tools/nvml.py` through the real binding, or runs a tool that prints a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.sources.machines import SPARSE, STRANGER
from tests.sources.nvidia_gpus import OnHost
from tests.tools import nvml

from opentelemetry.instrumentation.hardware.drivers.capture import Record
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext, discover

FOLDER = Path(__file__).parent
LIBRARY = "/simulated/libnvidia-ml.so.1"
TOOL = "/simulated/nvidia-smi"
STEP = 10.0  # seconds between two ticks

PROGRAM = STRANGER + 1  # the pid of the observed program

Lines = Mapping[str, "nvml.Value | None"]


@dataclass(frozen=True)
class Simulation:
    """A machine with an NVIDIA driver, as the source sees it over time.

    Attributes:
        machine: The description of the machine in the capture.
        gpus: The GPUs of the driver; none for a machine with the tool only.
        changes: By tick, the lines of the driver that change before it.
        prints: The files that the tool prints, one after the other.
        options: Settings of the package.
    """

    machine: str
    gpus: Sequence[Callable[[], nvml.Gpu]] = ()
    changes: Mapping[int, Lines] = field(default_factory=dict)
    prints: Sequence[str] = ()
    ticks: int = 3
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def nature(self) -> str:
        """The documents that the tool prints were written by hand."""
        return "made by hand" if self.prints else "simulated"

    @property
    def settings(self) -> dict[str, Any]:
        if self.prints:
            return {**SPARSE, "nvml": "off", "nvidia_smi": TOOL}
        return {**SPARSE, "nvml": LIBRARY, **self.options}


# Answers without two equal numbers: if two calls or fields are mixed up, a row of the capture has another value.
DISTINCT: nvml.Gpu = {
    "UtilizationRates": (11, 12),
    "EncoderUtilization": (13, 1),
    "DecoderUtilization": (14, 2),
    "JpgUtilization": (15, 3),
    "OfaUtilization": (16, 4),
    "MemoryInfo": (1000 * nvml.MIB, 100 * nvml.MIB, 600 * nvml.MIB, 300 * nvml.MIB),
    "Temperature.0": 41,
    "FieldValues.82": "uint 42",
    **{f"ClockInfo.{domain}": 101 + domain for domain in range(4)},
    **{f"MaxClockInfo.{domain}": 201 + domain for domain in range(4)},
    "PowerUsage": 301_000,
    "EnforcedPowerLimit": 302_000,
    "PowerManagementLimit": 303_000,
    "PowerManagementDefaultLimit": 304_000,
    "PowerManagementLimitConstraints": (305_000, 306_000),
    "PerformanceState": 6,
    **{f"GpmCounter.{metric}": nvml.moving(0, 20 + metric) for metric in (1, 2, 3, 5, 10, 11, 12, 13, 20, 21)},
    "FieldValues.74": "ullong 1000000000",
    "FieldValues.75": "ullong 2000000000",
    "FieldValues.76": "ullong 3000000000",
    "FieldValues.83": "ullong 5000",
    f"FieldValues.138.{nvml.ALL_LINKS}": "ullong 1001",
    f"FieldValues.139.{nvml.ALL_LINKS}": "ullong 1002",
    f"FieldValues.140.{nvml.ALL_LINKS}": "ullong 1003",
    f"FieldValues.141.{nvml.ALL_LINKS}": "ullong 1004",
    "FieldValues.197": "uint 1005",
    "FieldValues.198": "uint 1006",
    **{f"FieldValues.{field}": f"ullong {field}" for field in (3, 4, 22, 23, 38, 45, 52, 59, 161, 162)},
    "FieldValues.5": "ullong 500",
    "FieldValues.6": "ullong 600",
    "FieldValues.163": "ullong 1163",  # and 17 of the other links
    **{f"FieldValues.{field}": f"uint {field}" for field in range(173, 184)},
    "FieldValues.230": "uint 4",
    "FieldValues.94": "uint 94",
    "FieldValues.142": "uint 142",
    "FieldValues.143": "uint 143",
}


def _busy() -> nvml.Gpu:
    """An H100 that the observed program and another one compute on."""
    return {
        **nvml.h100(),
        **DISTINCT,
        "ComputeRunningProcesses": nvml.listed((PROGRAM, 40_000 * nvml.MIB), (4242, 9_000 * nvml.MIB)),
        **_work(0),
    }


def _unified() -> nvml.Gpu:
    """A GB10 that the observed program and another one use."""
    lists = {
        "ComputeRunningProcesses": nvml.listed((PROGRAM, 40_000 * nvml.MIB)),
        "GraphicsRunningProcesses": nvml.listed((4242, 700 * nvml.MIB)),
    }
    return {**nvml.unified(), **lists}


def _work(tick: int) -> nvml.Gpu:
    """What the driver's buffers hold: the general utilization four times a tick, and what each process used."""
    begin = 1_000_000_000 + int(STEP * 1e6) * tick
    samples = [(begin + 2_500_000 * quarter, (20, 95, 60, 85)[quarter]) for quarter in range(4)]
    shares = [(PROGRAM, begin, 50, 20, 0, 3), (4242, begin, 30, 10, 0, 0), (PROGRAM, begin + 5_000_000, 70, 30, 1, 5)]
    return {"Samples.1": "uint " + nvml.listed(*samples), "ProcessUtilization": nvml.listed(*shares)}


def _gpu(index: int, lines: nvml.Gpu) -> nvml.Gpu:
    return {f"gpu{index}.{call}": value for call, value in lines.items()}


def _parts(slots: Mapping[int, tuple[int, int]]) -> nvml.Gpu:
    """The lines of an H100 that are about its parts."""
    whole = nvml.mig(nvml.h100(), 0, slots)
    return {call: value for call, value in whole.items() if call.startswith(("mig", "gi"))}


SIMULATIONS: Mapping[str, Simulation] = {
    "h100": Simulation(
        "a simulated driver: an H100 at work, with an Xid",
        [_busy],
        {1: {**_gpu(0, _work(1)), "Event.1": (0, nvml.XID, 31)}, 2: _gpu(0, _work(2))},
    ),
    "h100-mig": Simulation(
        "a simulated driver: an H100 in parts, of which one goes and another comes",
        [lambda: nvml.mig(nvml.h100(), 0, {0: (7, 0), 2: (9, 0)})],
        {
            2: {
                **{f"gpu0.{call}": None for call in _parts({2: (9, 0)})},
                **_gpu(0, _parts({4: (11, 0)})),
            }
        },
    ),
    "b200": Simulation("a simulated driver: a B200, in detail", [nvml.b200], ticks=2, options={"detail": ["gpu"]}),
    "geforce-t4": Simulation("a simulated driver: a GeForce with fans beside a T4", [nvml.geforce, lambda: nvml.t4(1)]),
    "lost": Simulation(
        "a simulated driver: two A100s, of which the second falls off the bus and comes back",
        [nvml.a100, lambda: nvml.a100(1)],
        {1: {"gpu1": nvml.refused(15)}, 3: {"gpu1": None}},
        ticks=6,
    ),
    "wsl": Simulation("a simulated driver: WSL", [nvml.wsl]),
    "vgpu": Simulation("a simulated driver: a share of a GPU in a virtual machine", [nvml.vgpu]),
    "unified": Simulation("a simulated driver: a part without memory of its own", [_unified]),
    "smi-v10": Simulation("nvidia-smi as it printed with driver 418", prints=["v10-v100.xml"]),
    "smi-v11-mig": Simulation("nvidia-smi as it printed with driver 510", prints=["v11-a100-mig.xml"]),
    "smi-v13": Simulation("nvidia-smi as it prints with driver 590", prints=["v13-h200.xml"]),
    "smi-lost": Simulation(
        "nvidia-smi: a lost GPU, then a document that breaks off", prints=["v12-lost.xml", "v12-truncated.xml"]
    ),
}


def captures(*names: str) -> dict[str, str]:
    """Record simulations in one child, which forks for each."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        line = [sys.executable, "-m", "tests.sources.simulated", folder, *names]
        subprocess.run(line, env=environment, check=True, cwd=FOLDER.parents[1])
        return {name: (Path(folder) / name / "capture").read_text(encoding="utf-8") for name in names}


def _tool(folder: Path, prints: Sequence[str]) -> Callable[[int], None]:
    """A tool that prints one file after the other; what turns the page."""
    page = folder / "page.xml"
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {page}\n")
    tool.chmod(0o755)

    def turn(tick: int) -> None:
        page.write_bytes((FOLDER / "nvidia" / "smi" / prints[min(tick, len(prints) - 1)]).read_bytes())

    turn(0)
    return turn


def _driver(folder: Path, simulation: Simulation, start: float) -> Callable[[int], None]:
    """Start the driver. Returns a function that changes its answers before a tick."""
    driver = nvml.FakeNvml(folder, *(nvml.still(make(), start) for make in simulation.gpus))
    os.environ.update(driver.environment)

    def turn(tick: int) -> None:
        lines = {"Clock": start + STEP * tick, **simulation.changes.get(tick, {})}
        driver.set_lines(lines)

    turn(0)
    return turn


def record(name: str, folder: Path) -> None:
    """Write the capture into the folder."""
    folder.mkdir()
    simulation, now = SIMULATIONS[name], [float(int(time.monotonic()) + 1)]
    start = now[0]
    turn = _tool(folder, simulation.prints) if simulation.prints else _driver(folder, simulation, start)
    words = {
        "nvml": os.environ.get("OTEL_PYTHON_HARDWARE_NVML", "off"),
        "nvidia_smi": str(folder / "nvidia-smi") if simulation.prints else "off",
        **simulation.options,
    }
    header = {
        "nature": simulation.nature,
        "machine": simulation.machine,
        "settings": simulation.settings,
        "pid": PROGRAM,
    }
    with (
        open(folder / "capture", "w", encoding="utf-8") as output,
        patch("time.monotonic", lambda: now[0]) if simulation.gpus else patch("time.daylight", 0),
    ):
        drivers = Record(OnHost(), output, "nvidia", header, clock=lambda: now[0])
        source = discover()["nvidia"]()(SourceContext(Config.read(words, {}), drivers, PROGRAM))
        try:
            source.open()
            for tick in range(simulation.ticks):
                if tick:
                    now[0] = start + STEP * tick
                    turn(tick)
                    drivers.next()
                for _ in source.read_all():
                    pass
        except Unavailable:
            pass  # the capture is of its absence
        source.close()


def main(folder: Path, *names: str) -> None:
    """Record each in a separate process."""
    for name in names:
        child = os.fork()
        if not child:
            record(name, folder / name)
            return
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{name} was not recorded")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
