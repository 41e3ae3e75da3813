"""Simulated sources and a clock that is set by hand: the pipeline without a machine and without threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from opentelemetry.instrumentation.hardware.catalog import SOURCE_UP
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Number, Point, Series, Snapshot, Window
from opentelemetry.instrumentation.hardware.pipeline.collector import Collector, Reader
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread, read_all
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Reading, Source, SourceContext

POWER = Metric(Kind.GAUGE, "test.power", "W", ("part",), "Power.", Window.MEAN)
POWER_PEAK = Metric(Kind.GAUGE, "test.power.peak", "W", ("part",), "Highest power.", Window.PEAK)
ENERGY = Metric(Kind.COUNTER, "test.energy", "J", ("part",), "Energy.")
DIPPING = Metric(Kind.COUNTER, "test.idle", "s", ("part",), "Idle time.", dips=True)
LEVEL = Metric(Kind.UPDOWN, "test.level", "1", ("part",), "Level.")
BUSY = Metric(Kind.GAUGE, "test.busy", "1", ("part",), "Share of time.", Window.RATIO)
USERS = Metric(Kind.UPDOWN, "test.users", "1", ("part",), "Something expensive.")

# For property tests: a slow machine is not a failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Clock:
    """Monotonic seconds that a test sets; ``calls`` counts the calls."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.calls = 0

    def __call__(self) -> float:
        self.calls += 1
        return self.now


class Player:
    """The behaviour of a simulated source: open, read and close. A test can replace each of them at any time."""

    def __init__(
        self,
        clock: Clock,
        read: Callable[[float], Iterable[Point]] = lambda now: [POWER(1.0)],
        slow: Callable[[float], Iterable[Point]] = lambda now: (),
        interval: float = 2.0,
    ) -> None:
        self.clock = clock
        self.interval = interval
        self.slow_interval: object = 10.0
        self.min_interval: object = 0.0
        self.sample_before_collection = True
        self.open: Callable[[], None] = lambda: None
        self.read = read
        self.counters: Callable[[float], Iterable[Point]] = lambda now: ()
        self.slow = slow
        self.opened: list[float] = []
        self.closed: list[float] = []
        self.readings: list[float] = []
        self.counter_readings: list[float] = []
        self.slow_readings: list[float] = []

    def make(self) -> Source:
        """A new source, as one is made each time that it is opened."""
        return _Played(self)


class _Played(Source):
    name = "player"

    def __init__(self, player: Player) -> None:
        super().__init__(SourceContext(Config(), Drivers(), 1))
        self.player = player

    def open(self) -> None:
        self.player.opened.append(self.player.clock())
        self.player.open()

    def readings(self) -> tuple[Reading, Reading, Reading]:
        player = self.player
        before_collection = player.sample_before_collection or not player.interval
        sampled = Reading(self.read, player.interval or inf, before_collection, player.min_interval)  # type: ignore[arg-type]
        counters = Reading(self.read_counters, 10.0, player.sample_before_collection)
        return sampled, counters, Reading(self.read_slow, player.slow_interval)  # type: ignore[arg-type]

    def read(self) -> Iterable[Point]:
        self.player.readings.append(self.player.clock())
        return self.player.read(self.player.clock())

    def read_counters(self) -> Iterable[Point]:
        self.player.counter_readings.append(self.player.clock())
        return self.player.counters(self.player.clock())

    def read_slow(self) -> Iterable[Point]:
        self.player.slow_readings.append(self.player.clock())
        return self.player.slow(self.player.clock())

    def close(self) -> None:
        self.player.closed.append(self.player.clock())
        super().close()


class Stage:
    """Sources with their runners and collector, and readers that collect; :meth:`run` advances the clock.

    Args:
        interval: Seconds between samples.
        expected: Seconds between collections, until a reader has collected twice.
        names: Names of the sources. ``player`` and ``runner`` are those of the first.
        together: Whether one thread reads all sources.
    """

    def __init__(
        self,
        interval: float = 2.0,
        expected: float = 60.0,
        from_start: bool = False,
        names: tuple[str, ...] = ("player",),
        together: bool = False,
    ) -> None:
        self.clock = Clock()
        self.start = self.clock.now
        self.schedule = CollectionSchedule(self.clock.now, expected)
        self.counters = CounterStore()
        self.cpu_clock = Clock()
        self.players = {name: Player(self.clock, interval=interval) for name in names}
        common = self.schedule, self.counters, from_start, self.clock, None, False, self.cpu_clock
        self.runners = {name: SourceRunner(player.make, name, *common) for name, player in self.players.items()}
        runners = list(self.runners.values())
        self.collector = self.another(Config())
        groups = {"shared": runners} if together else {name: [runner] for name, runner in self.runners.items()}
        self.threads = [ReaderThread(name, each, clock=self.clock) for name, each in groups.items()]
        self.player = self.players[names[0]]
        self.runner = self.runners[names[0]]
        self.readers: dict[int, Reader] = {}

    def another(self, config: Config) -> Collector:
        """A collector of the same sources with other settings."""
        return Collector(list(self.runners.values()), config, self.counters, self.clock)

    def run(self, until: float, readers: Mapping[float, Callable[[Snapshot], None]] | None = None) -> None:
        """Advance the clock to a time after the start, and make all readings and collections due until then."""
        begin = self.clock.now
        due = {step: self.start + step * (int((begin - self.start) / step + 1e-9) + 1) for step in readers or {}}
        end = self.start + until
        at_once = 0
        while True:
            reading = min(runner.next_reading(self.clock.now) for runner in self.runners.values())
            collection = min(due.values(), default=inf)
            at = max(self.clock.now, min(reading, collection))
            if at > end + 1e-9:
                self.clock.now = end
                return
            at_once = at_once + 1 if at == self.clock.now else 0
            assert at_once < 20, "the sources are read repeatedly without a pause"
            self.clock.now = at
            if collection <= reading:
                step = min(due, key=due.__getitem__)
                due[step] += step
                (readers or {})[step](self.collect(int(step * 1000)))
            else:
                for runner in self.runners.values():
                    if runner.next_reading(at) <= at:
                        runner.read()

    def collect(self, reader: int = 1) -> Snapshot:
        """One collection of a reader."""
        return self.collect_by(self.readers.setdefault(reader, Reader()))

    def collect_by(self, reader: Reader) -> Snapshot:
        """Collect as a session does."""
        snapshot = self.collector.collect(reader.marks)
        self.schedule.note(reader, reader.last, self.clock.now)
        reader.last = self.clock.now
        return snapshot

    def read_now(self, seconds: float) -> None:
        """Let the threads, which the test has started, read every source now."""
        read_all(self.threads, seconds)

    def up(self) -> dict[str, Number]:
        """The value of ``otel_hardware.source.up`` by source."""
        values = self.collector.collect({}).values.get(SOURCE_UP, [])
        return {str(attributes["otel_hardware.source"]): value for value, attributes in values}


def values(snapshot: Snapshot, metric: Metric) -> dict[Series, Number]:
    """The values of one metric by series; a series that appears twice fails the test."""
    found: dict[Series, Number] = {}
    for value, attributes in snapshot.values.get(metric, ()):
        series = Series(metric, attributes)
        assert series not in found, f"{series!r} appears twice in one snapshot"
        found[series] = value
    return found


def one(snapshot: Snapshot, metric: Metric) -> Number:
    """The value of a metric that has one series."""
    (value,) = values(snapshot, metric).values()
    return value


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """The messages logged at one level so far."""
    return [record.getMessage() for record in caplog.records if record.levelno == level]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return messages(caplog, logging.WARNING)


def infos(caplog: pytest.LogCaptureFixture) -> list[str]:
    return messages(caplog, logging.INFO)


def fail(error: BaseException) -> Callable[..., Any]:
    """Return a function that raises, for `open` or `read` of a source."""

    def raising(*arguments: object) -> Any:
        raise error

    return raising


def nothing(snapshot: Snapshot) -> None:
    """A reader that ignores the snapshot."""
