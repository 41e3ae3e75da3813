"""The package, set up for measurements: single sources, and the whole package without threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from tests.slow.benchmarks.steady import milliseconds

from opentelemetry.instrumentation.hardware import Config, HardwareInstrumentor, telemetry
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.sources.filesystem import Filesystem
from opentelemetry.instrumentation.hardware.sources.host import Host
from opentelemetry.instrumentation.hardware.sources.process import Process


def opened(kind: Callable[[SourceContext], Source]) -> Source:
    """A source of this machine at the defaults, open and with warm caches."""
    source = kind(SourceContext(Config(), Drivers(), os.getpid()))
    source.open()
    for _ in range(3):
        list(source.read_all())
    return source


def samples() -> dict[str, Callable[[], object]]:
    """The readings of one sampling interval by source, without the container, which not every machine has."""
    return {kind.name: partial(_drain, opened(kind).read) for kind in (Host, Process, Filesystem)}


def full() -> dict[str, Callable[[], object]]:
    """The readings before a collection by source, without the process tree."""
    host = opened(Host)
    return {**samples(), "host": lambda: list(host.read_all())}


def _drain(read: Callable[[], object]) -> None:
    list(read())  # type: ignore[call-overload]


class ByHand:
    """The instrumentor on a real provider, without threads and with a clock of its own. It reads on request only."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.reader = InMemoryMetricReader()
        provider = MeterProvider([self.reader], shutdown_on_exit=False)
        with patch.object(telemetry, "Session", self._still):
            HardwareInstrumentor().instrument(meter_provider=provider, reporter="always")
        self.read()
        self.session.after_reading()
        self.cost()
        self.reader.get_metrics_data()

    def _still(self, config: Config, **options: Any) -> Session:
        self.session = _Still(config, **{**options, "interval": 60.0, "clock": lambda: self.now})
        return self.session

    def sample(self) -> None:
        """Read as our threads do at every sampling interval."""
        self.now += 2.0
        for runner in self._present():
            runner.read()

    def wait(self) -> None:
        """Read as our threads do between two collections at the defaults, without the reading before a collection."""
        for _ in range(29):
            self.sample()
        self.now += 2.0

    def read(self) -> None:
        """Read as our threads do just before a collection."""
        for runner in self._present():
            runner.read(everything=True)

    def _present(self) -> list[SourceRunner]:
        """The sources that this machine has."""
        return [runner for runner in self.session.runners if runner.state is not State.ABSENT]

    def cost(self) -> float:
        """CPU milliseconds of one reading before a collection."""
        self.wait()
        return milliseconds(self.read)

    def collected(self) -> MetricsData:
        """The data of one collection."""
        data = self.reader.get_metrics_data()
        assert data is not None
        return data


class _Still(Session):
    """A Session whose sources are read by hand."""

    def start(self) -> None:
        pass
