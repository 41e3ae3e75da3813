"""Collector: computes the values of one collection from the newest readings of all sources."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from opentelemetry.instrumentation.hardware.catalog import (
    HW_GPU_BOTTLENECK_TIME,
    OWN_CPU_TIME,
    SOURCE,
    SOURCE_READ_DURATION,
    SOURCE_UP,
    SPANS_ENERGY_UNATTRIBUTED,
)
from opentelemetry.instrumentation.hardware.model import Event, Metric, Problem, Series, Snapshot, Values
from opentelemetry.instrumentation.hardware.pipeline.aggregate import Aggregator, Totals
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.pipeline.thread import Task
from opentelemetry.instrumentation.hardware.settings import Config

if TYPE_CHECKING:  # neither is in every process
    from opentelemetry.instrumentation.hardware.bottlenecks.counter import BottleneckTime
    from opentelemetry.instrumentation.hardware.spans.shares import Shares

_OWN = (OWN_CPU_TIME, SOURCE_READ_DURATION, SOURCE_UP)

# The totals that a reader saw last, at which its next windows begin.
Marks: TypeAlias = "dict[Aggregator, Totals]"


class Reader:
    """One reader of the collected values.

    Attributes:
        marks: Where its next windows begin.
        last: When it collected last.
    """

    def __init__(self, marks: Marks | None = None, last: float | None = None) -> None:
        self.marks: Marks = {} if marks is None else marks
        self.last = last


class Readers:
    """The readers of one MeterProvider. The SDK does not identify them, so they are distinguished by thread.

    A periodic reader always collects in the same thread, but a scrape may have a new thread each time. So threads that
    have not collected before share one reader, and each of them has its own from its second collection on.
    """

    def __init__(self) -> None:
        self._shared = Reader()
        self._thread = threading.local()

    def current(self) -> Reader:
        """Return the reader of this thread."""
        reader: Reader | None = getattr(self._thread, "reader", None)
        return self._shared if reader is None else reader

    def collected(self, reader: Reader) -> None:
        """Remember that this thread has collected."""
        if reader is self._shared:
            self._thread.reader = Reader(dict(reader.marks), reader.last)


class Collector:
    """Merges the published states of the sources. No method waits. The tasks use CPU time of our threads, too.

    Attributes:
        shares: The shares of spans, if there are any.
        is_last: The process ends, so the next collection is the last one.
    """

    def __init__(
        self,
        runners: Sequence[SourceRunner],
        config: Config,
        counters: CounterStore,
        clock: Callable[[], float] = time.monotonic,
        tasks: Sequence[Task] = (),
    ) -> None:
        self.runners = runners
        self._tasks = tasks
        self._wants = config.wants
        self._clock = clock
        self._cpu_time = counters.resume(Series(OWN_CPU_TIME))
        self._cpu_time_before = self._cpu_time.total
        self.shares: Shares | None = None
        self.is_last = False
        self._unattributed = counters.resume(Series(SPANS_ENERGY_UNATTRIBUTED))
        self._unattributed_before = self._unattributed.total
        self._bottlenecks: BottleneckTime | None = None
        if config.wants(HW_GPU_BOTTLENECK_TIME):
            from opentelemetry.instrumentation.hardware.bottlenecks.counter import BottleneckTime

            self._bottlenecks = BottleneckTime(counters.resume)
        self._metrics: tuple[list[tuple[Metric, ...]], dict[Metric, None]] = [], {}  # what was read, and is wanted

    def replace(self, runners: Sequence[SourceRunner]) -> None:
        """Use other runners. The CPU time of those that end is kept, so that its counter never falls."""
        ended = [runner.cpu_time for runner in self.runners if runner not in runners]
        self.runners = runners
        self._cpu_time_before += sum(ended)

    def events(self) -> Iterator[Event]:
        """Yield the changes of bottlenecks since the last call."""
        with suppress(IndexError):  # all of our threads call it
            while self._bottlenecks is not None:
                yield self._bottlenecks.events.popleft()

    def metrics(self) -> dict[Metric, None]:
        """Return the wanted metrics of the sources, and ours; the same object until they change."""
        read = [*(runner.metrics for runner in self.runners), _OWN]
        if self.shares is not None and self.shares.has_energy:
            read.append((SPANS_ENERGY_UNATTRIBUTED,))
        if self._bottlenecks is not None:
            read.append((HW_GPU_BOTTLENECK_TIME,))
        before, wanted = self._metrics
        if read != before:
            wanted = dict.fromkeys(filter(self._wants, (metric for metrics in read for metric in metrics)))
            self._metrics = read, wanted  # at once: other threads ask, too
        return wanted

    def collect(self, marks: Marks) -> Snapshot:
        """Return the values since the marks and update these. If two sources report a series, the first one is used."""
        now = self._clock()
        wanted = self.metrics()
        values: Values = {}
        problems: list[Problem] = []
        times: dict[str, float] = {}
        readings: list[tuple[float, Values]] = []
        own: Values = defaultdict(list)
        for runner in self.runners:
            if runner.state is State.ABSENT:
                continue
            fresh = runner.fresh(now)
            for aggregator, published in fresh:
                window = published.window(marks.get(aggregator), self.is_last)
                marks[aggregator] = published.totals
                times.setdefault(runner.name, published.time)
                readings.append((published.time, window))
                for series in _merge(values, _select(window, wanted)):
                    problems.append(Problem(runner.name, f"{series!r} is reported by another source already"))
            problem = runner.health(now)
            if problem is not None:
                problems.append(problem)
            source = {SOURCE: runner.name}
            if runner.state is State.UP or problem is not None:  # else it has not been read yet
                own[SOURCE_UP].append((int(problem is None and runner.is_fresh(now)), source))
            if runner.state is State.UP and runner.pace.duration is not None:
                own[SOURCE_READ_DURATION].append((runner.pace.duration, source))
        total = self._cpu_time_before + sum(task.cpu_time for task in (*self.runners, *self._tasks))
        self._cpu_time.total = max(float(self._cpu_time.total), total)
        own[OWN_CPU_TIME].append((self._cpu_time.total, {}))
        if self.shares is not None and self.shares.has_energy:
            self._unattributed.total = self._unattributed_before + self.shares.unattributed
            own[SPANS_ENERGY_UNATTRIBUTED].append((self._unattributed.total, {}))
        readings.append((now, own))
        _merge(values, _select(own, wanted))
        snapshot = Snapshot(values, tuple(problems), times, readings)
        if self._bottlenecks is not None:
            _merge(values, self._bottlenecks.add(now, snapshot, may_be_limited(self.runners)))
        return snapshot


def may_be_limited(runners: Iterable[SourceRunner]) -> bool:
    """Whether the program may be under a limit of its control group: not if the source ``container`` found none."""
    return all(runner.name != "container" or runner.state is not State.ABSENT for runner in runners)


def _select(values: Values, wanted: dict[Metric, None]) -> Values:
    """Return the values of wanted metrics."""
    if values.keys() <= wanted.keys():
        return values
    return {metric: points for metric, points in values.items() if metric in wanted}


def _merge(values: Values, more: Values) -> list[Series]:
    """Add values to others. Series that exist already are left out and returned."""
    duplicates: list[Series] = []
    for metric, points in more.items():
        before = values.get(metric)
        if before is None:
            values[metric] = points
            continue
        known = {Series(metric, attributes) for _, attributes in before}
        values[metric] = before + [point for point in points if Series(metric, point[1]) not in known]
        duplicates += [series for _, attributes in points if (series := Series(metric, attributes)) in known]
    return duplicates
