"""Ledger: what a source measured in the last ten minutes, for spans.

A span begins and ends between two readings, possibly in the past. The ledger has the running totals (energy, busy
time, CPU time) of each reading with its time, summed over the devices that the program uses. The thread of the source
adds readings; any thread may ask, without a lock.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, MutableSequence
from math import inf, nan
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Point, Rate, Series
from opentelemetry.instrumentation.hardware.pipeline.aggregate import Aggregator
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.rows import SIZE, Rows

INTERVAL: Final = 0.1
"""Seconds between two readings while spans are recorded."""

_QUIET: Final = 60.0
"""Seconds after the last span for which readings are made for spans."""

_LARGEST_STEP: Final = 0.5
"""Seconds that the wall clock may gain or lose between two readings. After a larger step the ledger begins again,
because the times of spans are those of the wall clock. It also does if the wall clock was set back at all."""

_LONGEST_GAP: Final = 60.0
"""Seconds between two readings of a rate after which its integral is unknown. Devices that the program does not use,
and all devices while there are no spans, are read seldom."""

_METRICS: Final = frozenset(
    {
        c.HW_ENERGY,
        c.HW_GPU_TIME,
        c.HW_GPU_THROTTLE_TIME,
        c.HW_GPU_MEMORY_USAGE,
        c.PROCESS_CPU_TIME,
        c.PROCESS_MEMORY_USAGE,
    }
)

_CONFIGURED: Final = frozenset({"application_clocks"})
"""Reasons of throttling that are a setting of the user."""

Column: TypeAlias = "tuple[Metric, str]"
"""A metric and ``hw.id``, which is "" for the process."""


class Demand:
    """Whether spans are being recorded. One object for all sources of a session.

    Args:
        until: Where the end of the demand is kept, in monotonic seconds.
    """

    def __init__(self, until: MutableSequence[float] | memoryview[float] | None = None) -> None:
        self._until = [-inf] if until is None else until

    def note_span(self, now: float) -> bool:
        """Record that a span began. Returns whether it is the first one after a quiet time."""
        is_first = now >= self._until[0]
        self._until[0] = now + _QUIET
        return is_first

    def exists(self, now: float) -> bool:
        """Whether a span began within the last minute."""
        return now < self._until[0]

    def ledger(self, clock: Callable[[], float] = time.monotonic) -> Ledger:
        """Return a new ledger for a source."""
        return Ledger(clock)


class Ledger:
    """The ledger of one source.

    Args:
        clock: Monotonic seconds, with those in which the process was stopped or another thread kept the GIL.
        wall_clock: Seconds since the epoch, which spans are timed with.
        blank: Makes empty rows.
        publish: Called with the rows that are to be used from now on.

    Attributes:
        rows: The readings.
        types: The ``hw.type`` of each device that was read, by ``hw.id``; "" stands for the process.
        used: The devices that the observed program has used, by ``hw.id``.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        blank: Callable[[], Rows] = Rows,
        publish: Callable[[Rows], object] = lambda rows: rows,
    ) -> None:
        self.rows: Rows | None = None
        self.types: dict[str, str] = {}
        self.used: frozenset[str] = frozenset()
        self._packages: tuple[str, ...] = ()
        self._clock = clock
        self._wall_clock = wall_clock
        self._blank = blank
        self._publish = publish
        self._offset = wall_clock() - clock()
        self._totals = Aggregator(CounterStore(), longest_gap=_LONGEST_GAP)
        self._rates: dict[Series, float] = {}  # when each was read last
        self._reasons: dict[Series, float] = {}
        self._throttled: dict[str, float] = {}
        self._columns: dict[Column, array[float]] = {}  # of each device: which of them are used is known later
        self._times = array("d")
        self._count = 0

    def add(self, points: Iterable[Point]) -> None:
        """Add a reading that was made just now."""
        now, wall = self._clock(), self._wall_clock()
        if abs(wall - now - self._offset) > _LARGEST_STEP:
            self._begin_again()
        self._offset = wall - now
        read = [(series, value) for series, value in points if series.metric in _METRICS]
        is_same = not self._forget_gaps(now, [series for series, value in read if type(value) is Rate])
        self._totals.add(now, read)
        published = self._totals.published
        assert published is not None
        values: dict[Column, float] = {}
        throttled: dict[str, float] = {}
        packages = self._packages
        for metric, numbers in published.latest.items():
            for number, attributes in numbers:
                id_ = str(attributes.get(c.HW_ID, ""))
                if metric is c.HW_GPU_THROTTLE_TIME:
                    increase = self._throttle_increase(Series(metric, attributes), number)
                    throttled[id_] = max(throttled.get(id_, 0.0), increase)
                elif attributes.get(c.GPU_TASK, "general") == "general":
                    values[metric, id_] = values.get((metric, id_), 0.0) + number
                    kind = self.types.setdefault(id_, str(attributes.get(c.HW_TYPE, "gpu")))
                    if kind == "cpu" and id_ not in self._packages:
                        self._packages += (id_,)
        for id_, increase in throttled.items():
            self._throttled[id_] = self._throttled.get(id_, 0.0) + increase
            values[c.HW_GPU_THROTTLE_TIME, id_] = self._throttled[id_]
        if values:
            self._add_row(wall, values, is_same and packages is self._packages)

    def _forget_gaps(self, now: float, rates: Iterable[Series]) -> bool:
        """Forget the earlier totals of rates that were not read for long: what they missed is unknown."""
        before = len(self._columns)
        for series in rates:
            if now - self._rates.get(series, -inf) > _LONGEST_GAP:
                self._columns.pop((series.metric, str(series.attributes.get(c.HW_ID, ""))), None)
            self._rates[series] = now
        return len(self._columns) < before

    def use(self, devices: frozenset[str]) -> None:
        """Set the devices that the program has used so far, also for the readings that were made already."""
        if devices != self.used:
            self.used = devices
            if self._count:
                self._sum_again()

    def _begin_again(self) -> None:
        self._count, self._columns, self.rows = 0, {}, None  # what was published is too old to be used

    def _add_row(self, wall: float, values: Mapping[Column, float], is_same: bool = True) -> None:
        if self._count and wall <= self._times[(self._count - 1) % SIZE]:  # the wall clock was set back, or is coarse
            self._begin_again()
        at = self._count % SIZE
        if at == len(self._times):
            self._times.append(wall)
        self._times[at] = wall
        for key in values.keys() - self._columns.keys():
            self._columns[key] = array("d", [nan]) * SIZE
        for key, column in self._columns.items():
            column[at] = values.get(key, nan)
        self._count += 1
        if is_same and self.rows is not None:
            self._add_sums(self.rows, wall, values)
        else:
            self._sum_again()

    def _sum_again(self) -> None:
        rows = self._blank()
        rows.clear(len(self.used), len(self._packages), "" in self.types)
        for number in range(max(0, self._count - SIZE), self._count):
            at = number % SIZE
            self._add_sums(rows, self._times[at], {key: column[at] for key, column in self._columns.items()})
        self._publish(rows)
        self.rows = rows

    def _add_sums(self, rows: Rows, wall: float, values: Mapping[Column, float]) -> None:
        used = [
            sum(values.get((metric, id_), nan) for id_ in self.used)
            for metric in (c.HW_ENERGY, c.HW_GPU_TIME, c.HW_GPU_THROTTLE_TIME)
        ]
        packages = sum(values.get((c.HW_ENERGY, id_), nan) for id_ in self._packages)
        memory = _highest([values.get((c.HW_GPU_MEMORY_USAGE, id_), nan) for id_ in self.used])
        tree = _highest([values.get((c.PROCESS_MEMORY_USAGE, ""), nan)])
        rows.add(wall, (*used, packages, values.get((c.PROCESS_CPU_TIME, ""), nan)), (memory, tree))

    def _throttle_increase(self, series: Series, total: float) -> float:
        """Return how much longer a reason held. Several may hold at once, so the longest counts, and no sum."""
        if series.attributes.get(c.THROTTLE_REASON) in _CONFIGURED:
            return 0.0
        before = self._reasons.get(series, total)
        self._reasons[series] = total
        return total - before

    def interrupt(self) -> None:
        """Record that the source was closed: what its devices do until its next reading is unknown."""
        self._totals.interrupt()
        self._rates.clear()
        if self._count:
            self._add_row(self._wall_clock(), {})


def _highest(values: Collection[float]) -> float:
    """Return the highest value; -inf if one of them is unknown."""
    return max(values) if values and all(value == value for value in values) else -inf  # noqa: PLR0124 - not NaN
