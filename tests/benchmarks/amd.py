"""Eight GPUs of AMD's, as real files of a fabricated /sys: what a sample of them costs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.benchmarks.figure import Figure
from tests.benchmarks.locks import releases
from tests.benchmarks.steady import in_turn, milliseconds
from tests.tools import amdsysfs
from tests.tools.amdsysfs import Gpu, table

from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.kernel import Kernel, Linux
from opentelemetry.instrumentation.hardware.machine import machine
from opentelemetry.instrumentation.hardware.sources import Site
from opentelemetry.instrumentation.hardware.sources.amd import Amd
from opentelemetry.instrumentation.hardware.sources.amd.processes import Processes

GPUS = 8
BOUND = 2.0
"""Milliseconds of CPU for a sample of all of them."""

_TIMES = 50


class _Below(Linux):
    """The kernel, whose /sys lies below another folder: a benchmark may make no mounts."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def _moved(self, path: str) -> str:
        return self._root + path if path.startswith("/sys/") else path

    def _descriptor(self, path: str, flags: int = 0) -> int:
        return super()._descriptor(self._moved(path), flags)

    def exists(self, path: str) -> bool:
        return super().exists(self._moved(path))


class _Fabricated(Drivers):
    def __init__(self, root: str) -> None:
        super().__init__()
        self._kernel = _Below(root)

    def kernel(self) -> Kernel:
        assert self._kernel is not None
        return self._kernel


@contextmanager
def opened() -> Iterator[Amd]:
    """The source, open and warm, on the machine."""
    metrics = table(6, energy=1 << 50, residency=(1, 2, 3, 4, 5, 6), xgmi=[1] * 16)
    base = Gpu(power_file="power1_input", rpm=900, pwm=80, metrics=metrics)
    gpus = [
        replace(base, number=each, bdf=f"0000:{each + 1:02x}:00.0", unique=f"{each + 1:016x}") for each in range(GPUS)
    ]
    with TemporaryDirectory() as folder:
        amdsysfs.write(amdsysfs.machine(gpus), Path(folder))
        source = Amd(Site(Config(), _Fabricated(folder), os.getpid()))
        source.open()
        try:
            for _ in (*source.read(), *source.read_seldom()):
                pass
            yield source
        finally:
            source.close()


def let_go() -> int:
    """How often a sample lets go of the interpreter lock."""
    with opened() as source:
        return releases(lambda: list(source.read()))


def looking() -> int:
    """How often a look at what this process uses lets go of the lock, with a hundred files open."""
    drivers = Drivers()
    kernel = drivers.kernel()
    with ExitStack() as files:
        for _ in range(100):
            files.enter_context(Path(os.devnull).open())
        processes = Processes(kernel, machine(drivers), os.getpid(), {})
        processes.look()
        times = releases(processes.look)
    drivers.close()
    return times


def figures(quick: bool) -> list[Figure]:
    with opened() as source:
        said = len(list(source.read()))
        cost = in_turn(
            {
                "sample": lambda: milliseconds(lambda: list(source.read()), _TIMES),
                "seldom": lambda: milliseconds(lambda: list(source.read_seldom()), _TIMES),
            },
            rounds=3 if quick else 25,
        )
    return [
        Figure(f"AMD: sample of {GPUS} GPUs by files, {said} points", cost["sample"], "ms CPU", "", None, BOUND),
        Figure(f"AMD: what is read seldom of {GPUS} GPUs", cost["seldom"], "ms CPU"),
    ]
