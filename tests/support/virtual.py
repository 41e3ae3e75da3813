"""A program with spans on a clock that is set by hand: the reading policy and the rows, without threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor
from typing import Any

from tests.support.stage import Clock

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Reading, Source, SourceContext
from opentelemetry.instrumentation.hardware.spans.attributes import measured
from opentelemetry.instrumentation.hardware.spans.demand import Demand

ENERGY = c.SPAN_ENERGY.name


class Counter(Source):
    """A device in use with an energy counter, which has a period and reports when it was updated."""

    name = "counter"
    used_devices = frozenset({"GPU-1"})

    def __init__(self, joules: Callable[[float], float], clock: Clock, period: float) -> None:
        super().__init__(SourceContext(Config(sample_interval=0.0), Drivers(), 1))
        self.joules, self.clock, self.period = joules, clock, period

    def open(self) -> None:
        pass

    def read(self) -> list[Point]:
        return []

    def readings(self) -> Sequence[Reading]:
        return (*super().readings(), Reading(self.read_for_spans, 0.1, for_spans=True))

    def read_for_spans(self) -> list[Point]:
        now = self.clock.now
        if self.period:
            now = floor(now / self.period + 1e-6) * self.period
        self.updated = {"GPU-1": now}
        return [c.HW_ENERGY(self.joules(now), {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"})]


class Program:
    """A program with spans, and the thread that reads a device for them.

    Args:
        joules: The energy of the device since the beginning, at a time.
        period: Seconds between two updates of its counter.
        only_spans: Whether nothing else is read.
    """

    def __init__(
        self,
        joules: Callable[[float], float] = lambda now: 300.0 * now,
        period: float = 0.0,
        only_spans: bool = False,
    ) -> None:
        self.clock = Clock(1000.0)
        self.joules = joules
        self.demand = Demand()
        self.demand.is_tracing = True
        device, schedule = Counter(joules, self.clock, period), CollectionSchedule(1000.0, 60.0)
        self.runner = SourceRunner(
            lambda: device,
            "counter",
            schedule,
            CounterStore(),
            clock=self.clock,
            demand=self.demand,
            only_spans=only_spans,
        )
        assert self.runner.ledger is not None
        self.ledger = self.runner.ledger
        self.ledger._clock = self.ledger._wall_clock = self.clock
        self.ledger._offset = 0.0
        self.readings = 0

    def go_to(self, instant: float) -> None:
        """Let the thread make the readings that are due."""
        while True:
            due = max(self.runner.next_reading(self.clock.now), self.clock.now)
            if due > instant:
                break
            self.clock.now = due
            self.runner.read()
            self.readings += 1
        self.clock.now = instant

    def attributes(self, begin: float, end: float) -> dict[str, Any]:
        """Return the attributes of a span that is open from one instant to another."""
        self.go_to(begin)
        self.demand.begin(id(self), self.clock.now)  # the thread makes the reading that this wants
        self.go_to(end)
        self.demand.end(id(self))
        return dict(measured(self.ledger.rows, begin, end))

    def span(self, begin: float, end: float) -> dict[str, Any]:
        """Return the same, and check the energy."""
        self.attributes(begin, end)
        return self.past(begin, end)

    def past(self, begin: float, end: float) -> dict[str, Any]:
        """Return the attributes of a span that is made now."""
        found: dict[str, Any] = measured(self.ledger.rows, begin, end)
        assert ENERGY in found, (begin, end)
        assert abs(found[ENERGY] - self.joules(end) + self.joules(begin)) <= 1.01 * found[c.SPAN_UNCERTAINTY.name] + 0.1
        return found
