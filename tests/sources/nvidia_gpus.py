"""Simulated NVIDIA GPUs, read through the real binding, the real instrumentor and the real SDK."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from tests.sources.playing import Collected, Playing, playing
from tests.sources.tree import Tree
from tests.tools import fake_nvml
from tests.tools.nvml import FakeNvml, Gpu, Value, still

from opentelemetry.instrumentation.hardware.drivers import Drivers, shared_library
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner
from opentelemetry.instrumentation.hardware.sources.nvidia import gpm
from opentelemetry.instrumentation.hardware.system.files import Files

START = 1000.0  # the time at which moving numbers of a GPU begin to move


class SimulatedGpus:
    """An instrumented program on a machine with simulated GPUs. The test sets its clock.

    Attributes:
        fake: The simulated driver.
        stage: The instrumented program.
    """

    def __init__(self, fake: FakeNvml, stage: Playing) -> None:
        self.fake = fake
        self.stage = stage

    @property
    def runner(self) -> SourceRunner:
        (found,) = self.stage._session.runners
        return found

    def pass_time(self, seconds: float, changes: Mapping[str, Value | None] | None = None) -> None:
        self.stage.clock.now += seconds
        self.fake.set_lines({"Clock": self.stage.clock.now, **(changes or {})})

    def tick(self, seconds: float = 2.0, changes: Mapping[str, Value | None] | None = None) -> Exported:
        """Advance the clock, change the driver, read all sources and collect."""
        self.sample(seconds, changes, due=True)
        return self.collect()

    def sample(
        self, seconds: float = 2.0, changes: Mapping[str, Value | None] | None = None, due: bool = False
    ) -> None:
        """The same without a collection. Slow reads are made only if due."""
        self.pass_time(seconds, changes)
        for sampled in self.runner.pace.parts[:1]:
            sampled.last = -inf  # so that it is due, however little time has passed
        self.runner.read(everything=due)
        self.stage._session.after_reading()

    def ticks(self, count: int, seconds: float = 2.0, changes: Mapping[str, Value | None] | None = None) -> Exported:
        """Advance the clock, change the driver and read all sources so many times, and collect once, at the end."""
        for _ in range(count):
            self.sample(seconds, changes, due=True)
        return self.collect()

    def collect(self) -> Exported:
        return Exported(self.stage.points())

    def up(self) -> bool:
        """Whether the source is healthy."""
        return self.runner.health(self.stage.clock.now) is None

    def unsupported(self, words: str = "") -> list[str]:
        """The sentences about missing metrics that contain these words."""
        source = self.runner.source
        return [sentence for sentence in (source.unsupported if source else ()) if words in sentence]


class Exported:
    """The points of one collection.

    Attributes:
        points: By name and attributes, the value.
    """

    def __init__(self, points: Iterable[Collected]) -> None:
        self.points: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.units: dict[str, str] = {}
        for name, attributes, value, unit, kind in points:
            self.points[name, frozenset(attributes.items())] = float(value)
            self.units[name] = f"{unit} {kind}"

    def of(self, name: str, **attributes: str) -> dict[frozenset[tuple[str, str]], float]:
        """The points of a metric that have these attributes, with dots as ``_``."""
        wanted = attributes.items()
        return {
            pairs: value
            for (metric, pairs), value in self.points.items()
            if metric == name and wanted <= {key.replace(".", "_"): text for key, text in pairs}.items()
        }

    def values(self, name: str, **attributes: str) -> list[float]:
        """The values of these points, sorted."""
        return sorted(self.of(name, **attributes).values())

    def one(self, name: str, **attributes: str) -> float:
        """The value of the only such point."""
        (value,) = self.values(name, **attributes)
        return value

    def total(self, name: str, **attributes: str) -> float:
        """The sum of these points, of which there is one at least."""
        values = self.values(name, **attributes)
        assert values, f"{name} {attributes} is not exported"
        return sum(values)

    def names(self) -> set[str]:
        """The metrics, without the package's metrics about itself."""
        return {name for name, _ in self.points if not name.startswith("otel_hardware.")}


OUTERMOST = "pid:[4026531836]"

MEMORY = 128 << 30  # bytes of the machine's memory


class _Host(Files):
    """Files of a machine on which this process is in the host's PID namespace, and these of the test."""

    def __init__(self, files: Mapping[str, str | bytes | OSError]) -> None:
        super().__init__()
        self._tree = Tree(files)
        self._tree.files = cast("dict[str, str | bytes | OSError]", files)  # not a copy: the test may change them

    def physical_memory(self) -> int:
        return MEMORY

    def link(self, path: str) -> str:
        return OUTERMOST if path == "/proc/self/ns/pid" else super().link(path)

    def read(self, path: str) -> bytes:
        return self._tree.read(path) if self._tree.exists(path) else super().read(path)

    def names(self, path: str) -> Sequence[str]:
        return self._tree.names(path) if self._tree.exists(path) else super().names(path)

    def exists(self, path: str) -> bool:
        return self._tree.exists(path) or super().exists(path)


class OnHost(Drivers):
    """Drivers of a machine on which NVML's PIDs are those of this process's namespace.

    Args:
        files: Files in place of the machine's.
    """

    def __init__(self, files: Mapping[str, str | bytes | OSError] = MappingProxyType({})) -> None:
        super().__init__()
        self._of_host = _Host(files)

    def files(self) -> Files:
        return self._of_host


@contextmanager
def simulated_gpus(
    folder: Path,
    *gpus: Gpu,
    lines: Mapping[str, Value] | None = None,
    files: Mapping[str, str | bytes | OSError] = MappingProxyType({}),
    pid: int | None = None,
    **settings: Any,
) -> Iterator[SimulatedGpus]:
    """Instrument this program on a machine with these GPUs. The folder has the state of the simulated driver.

    No child tries the library first, which would take most of the time; tests of whole programs do that.
    """
    library = fake_nvml()
    fake = FakeNvml(folder, *(still(gpu, START) for gpu in gpus))
    fake.is_atomic = False
    fake.set_lines({"Clock": START, **(lines or {})})
    settings = {"sources": ["nvidia"], "nvml": str(library), "nvidia_smi": "off", **settings}
    with (
        patch.dict(os.environ, fake.environment),
        patch.object(shared_library, "_try", lambda path, functions: ("", 0)),
        playing(lambda source: OnHost(files), settings, pid) as stage,
        patch.object(gpm, "time", SimpleNamespace(monotonic=lambda: stage.clock.now)),
    ):
        yield SimulatedGpus(fake, stage)
