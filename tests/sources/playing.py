"""Sources on given drivers in the real instrumentor and the real SDK, one tick after the other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData, NumberDataPoint, Sum
from opentelemetry.sdk.resources import Resource
from tests.support.stage import Clock
from tests.support.stepped import Stepped

from opentelemetry.instrumentation.hardware import HardwareInstrumentor, telemetry
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.pipeline import found
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import discover

_discovered = cache(discover)  # looking through all installed packages takes longer than most tests


class Ahead(Drivers):
    """Drivers with streams that use the test's clock instead of waiting for a timeout or a pause.

    Attributes:
        seconds: How far that clock is ahead of the real one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def stream(self, tool: Tool) -> StreamingCommand:
        if tool not in self._streams:
            self._streams[tool] = StreamingCommand(tool, lambda: time.monotonic() + self.seconds)
        return self._streams[tool]


class Collected(NamedTuple):
    """A point that the SDK collected, with its values as text."""

    name: str
    attributes: dict[str, str]
    value: str
    unit: str
    kind: str


class Playing:
    """An instrumented program with a clock that the test sets.

    Attributes:
        clock: The session's clock.
    """

    def __init__(self, reader: InMemoryMetricReader, session: Stepped, clock: Clock) -> None:
        self._reader = reader
        self._session = session
        self.clock = clock
        self._remarked: list[str] = []

    def read(self) -> None:
        """Read every source once."""
        self._session.read_now()

    def tick(self) -> list[str]:
        """Read every source once; the remarks that are new, and what the SDK collects."""
        self.read()
        before, self._remarked = self._remarked, self.remarks()
        return [remark for remark in self._remarked if remark not in before] + self.collect()

    def collect(self) -> list[str]:
        """What the SDK collects now, a sorted line for each point."""
        return sorted(map(_line, self.points()))

    def points(self) -> list[Collected]:
        """The points that the SDK collects now."""
        data = self._reader.get_metrics_data()
        return list(_points(data)) if data is not None else []

    def remarks(self) -> list[str]:
        """Return the missing metrics with reasons, as ``doctor`` shows them."""
        found = []
        for runner in self._session.runners:
            found += [f"# missing: {sentence}" for sentence in (runner.source.unsupported if runner.source else [])]
            if runner.problem is not None:
                fix = f" ({runner.problem.fix})" if runner.problem.fix else ""
                word = "absent" if runner.state is State.ABSENT else "failed"
                found.append(f"# {word}: {runner.problem.reason}{fix}")
        return sorted(found)


@contextmanager
def playing(
    drivers: Callable[[str], Drivers], settings: dict[str, Any] | None = None, pid: int | None = None
) -> Iterator[Playing]:
    """Instrument with the given drivers; afterwards uninstrument, and assert that nothing is exported any more."""
    clock = Clock()
    made: list[Stepped] = []

    def session(config: Config, reporter: object, **options: Any) -> Session:
        made.append(Stepped(config, pid, drivers=drivers, clock=clock, **{**options, "interval": 60.0}))
        return made[0]

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], resource=Resource({}), shutdown_on_exit=False)
    ours = HardwareInstrumentor()
    with patch.object(telemetry, "Session", session), patch.object(found, "discover", _discovered):
        # Another test may have spans.
        ours.instrument(meter_provider=provider, **{"spans": "off", "preset": "all", **(settings or {})})
    try:
        yield Playing(reader, made[0], clock)
        ours.uninstrument()
        data = reader.get_metrics_data()
        assert data is None or not list(_points(data)), "something is exported after uninstrument()"
    finally:
        ours.uninstrument() if ours.is_instrumented_by_opentelemetry else None
        provider.shutdown()


@contextmanager
def beside_the_host(name: str, drivers: Drivers, settings: dict[str, Any]) -> Iterator[Playing]:
    """Instrument with a source and the host, whose drivers are the real ones; close the source's at the end."""
    both = {name: drivers, "host": Drivers()}
    try:
        with playing(both.__getitem__, {"sources": [*both], **settings}) as stage:
            yield stage
    finally:
        drivers.close()


def _points(data: MetricsData) -> Iterator[Collected]:
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = "gauge"
                if isinstance(metric.data, Sum):
                    kind = "counter" if metric.data.is_monotonic else "updowncounter"
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint)
                    attributes = {name: str(value) for name, value in (point.attributes or {}).items()}
                    yield Collected(metric.name, attributes, _number(point.value), metric.unit or "", kind)


def _line(point: Collected) -> str:
    attributes = ",".join(f"{name}={value}" for name, value in sorted(point.attributes.items()))
    return f"{point.name}{{{attributes}}} {point.value} {point.unit} {point.kind}"


def _number(value: float) -> str:
    """A value as text; 12 digits of a float, so that the order of a sum does not matter."""
    return str(value) if isinstance(value, int) else repr(float(f"{value:.12g}"))
