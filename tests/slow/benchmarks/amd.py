"""The cost of sampling eight AMD GPUs, as real files of a fabricated /sys."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import in_turn, milliseconds
from tests.tools import amdsysfs
from tests.tools.amdsysfs import Gpu, table

from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.amd import Amd
from opentelemetry.instrumentation.hardware.system.files import Files

GPUS = 8
BOUND = 2.0  # milliseconds of CPU time for a sample of all of them

_TIMES = 50


class _FilesBelow(Files):
    """The files of this machine, with /sys below another folder: a benchmark may not mount anything."""

    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def _moved(self, path: str) -> str:
        return self._root + path if path.startswith("/sys/") else path

    def read(self, path: str) -> bytes:
        return super().read(self._moved(path))

    def names(self, path: str) -> Sequence[str]:
        return super().names(self._moved(path))

    def link(self, path: str) -> str:
        return super().link(self._moved(path))

    def exists(self, path: str) -> bool:
        return super().exists(self._moved(path))


class _DriversBelow(Drivers):
    def __init__(self, root: str) -> None:
        super().__init__()
        self._root = root

    def files(self) -> Files:
        return _FilesBelow(self._root)


@contextmanager
def opened() -> Iterator[Amd]:
    """The source on the fabricated machine, opened and read once."""
    metrics = table(6, energy=1 << 50, residency=(1, 2, 3, 4, 5, 6), xgmi=[1] * 16)
    base = Gpu(power_file="power1_input", rpm=900, pwm=80, metrics=metrics)
    gpus = [
        replace(base, number=each, bdf=f"0000:{each + 1:02x}:00.0", unique=f"{each + 1:016x}") for each in range(GPUS)
    ]
    with TemporaryDirectory() as folder:
        amdsysfs.write(amdsysfs.machine(gpus), Path(folder))
        source = Amd(SourceContext(Config(), _DriversBelow(folder), os.getpid()))
        source.open()
        try:
            for _ in source.read_all():
                pass
            yield source
        finally:
            source.close()


def figures(seconds: float) -> list[Figure]:
    with opened() as source:
        cost = in_turn(
            {
                "sample": lambda: milliseconds(lambda: list(source.read()), _TIMES),
                "seldom": lambda: milliseconds(lambda: list(source.read_slow()), _TIMES),
            },
            seconds,
        )
    return [
        cost.figure("sample", "sample", "ms of CPU", bound=BOUND),
        cost.figure("slow readings", "seldom", "ms of CPU"),
    ]
