"""Ledger: what a source measured in the last ten minutes, for spans.

A span begins and ends between two readings, possibly in the past. The ledger has the running totals (energy, busy
time, CPU time) of each reading with its time, and computes their increase between any two instants by interpolation.
The thread of the source adds readings; any thread may ask, without a lock.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from math import nan
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Point, Series
from opentelemetry.instrumentation.hardware.pipeline.aggregate import Aggregator
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore

INTERVAL: Final = 0.1
"""Seconds between two readings while spans are recorded."""

ROWS: Final = 6000
"""Readings that are kept: ten minutes at ten per second."""

_QUIET: Final = 60.0
"""Seconds after the last span for which readings are made for spans."""

_BLOCK: Final = 64
"""Rows with a common maximum, so that the peak of a long span is found quickly."""

_LONGEST_GAP: Final = (3.0, 2.0)
"""Intervals, and seconds, after the newest reading for which its rate is assumed to continue, whichever is longer. On a
busy machine, readings are late."""

_LARGEST_STEP: Final = 0.5
"""Seconds that the wall clock may gain or lose between two readings. After a larger step the ledger begins again,
because the times of spans are those of the wall clock."""

_LEVELS: Final = frozenset({c.HW_GPU_MEMORY_USAGE, c.PROCESS_MEMORY_USAGE})
_METRICS: Final = _LEVELS | {c.HW_ENERGY, c.HW_GPU_TIME, c.HW_GPU_THROTTLE_TIME, c.PROCESS_CPU_TIME}

_CONFIGURED: Final = frozenset({"application_clocks"})
"""Reasons of throttling that are a setting of the user."""

Column: TypeAlias = "tuple[Metric, str]"
"""A metric and ``hw.id``, which is "" for the process."""


class Demand:
    """Whether spans are being recorded. One object for all sources of a session."""

    def __init__(self) -> None:
        self._until = float("-inf")

    def note_span(self, now: float) -> bool:
        """Record that a span began. Returns whether it is the first one after a quiet time."""
        is_first = now >= self._until
        self._until = now + _QUIET
        return is_first

    def exists(self, now: float) -> bool:
        """Whether a span began within the last minute."""
        return now < self._until


class Place(NamedTuple):
    """An instant in the ledger.

    Attributes:
        rows: The rows that it belongs to.
        number: The row before it.
        before: The index of that row in the columns.
        after: The index of the next row.
        share: The share of the interval between them that has passed; above 1 beyond the newest row.
        interval: The seconds between them, or from the newest row to the instant.
    """

    rows: Rows
    number: int
    before: int
    after: int
    share: float
    interval: float


class Rows:
    """The readings since the ledger began, in columns that are overwritten after ten minutes.

    Attributes:
        count: How many were added.
        times: When, in seconds since the epoch.
    """

    def __init__(self, size: int = ROWS) -> None:
        self.count = 0
        self.times = array("d", [nan]) * size
        self._size = size
        self._columns: dict[Column, array[float]] = {}
        self._peaks: dict[Column, array[float]] = {}

    def add(self, now: float, values: dict[Column, float]) -> None:
        """Add a row. It is visible to other threads when it is complete."""
        at = self.count % self._size
        self.times[at] = now
        for key in values.keys() - self._columns.keys():
            self._columns[key] = array("d", [nan]) * self._size
            if key[0] in _LEVELS:
                self._peaks[key] = array("d", [nan]) * (self._size // _BLOCK + 1)
        for key, column in self._columns.items():
            column[at] = values.get(key, nan)
        for key, peaks in self._peaks.items():
            value, block = values.get(key, nan), at // _BLOCK
            if at % _BLOCK == 0 or not peaks[block] >= value:  # also if it is NaN
                peaks[block] = value
        self.count += 1

    def place(self, instant: float) -> Place | None:
        """Return the place of an instant; None if it is before the oldest row or long after the newest."""
        times, size, count = self.times, self._size, self.count
        if count < 2:
            return None
        newest, start = (count - 1) % size, count % size if count >= size else 0
        if instant >= times[newest]:
            number = count - 2
        else:  # the rows from start to the end of the columns are older than those before it
            if instant >= times[0]:
                index = bisect_right(times, instant, 0, newest + 1) - 1
            else:
                index = bisect_right(times, instant, start + 1, size) - 1  # the row at start may just be overwritten
                if count < size or index <= start:
                    return None
            number = count - 1 - (newest - index) % size
        before, after = number % size, (number + 1) % size
        step, beyond = times[after] - times[before], instant - times[after]
        if beyond > 0 and beyond > max(_LONGEST_GAP[0] * step, _LONGEST_GAP[1]):
            return None
        return Place(self, number, before, after, 1.0 + beyond / step, step if step > beyond else beyond)

    def increase(self, key: Column, begin: Place, end: Place) -> float:
        """Return the increase of a total; NaN if it was not read at both instants."""
        column = self._columns.get(key)
        if column is None:
            return nan
        first, last = column[begin.before], column[end.before]
        first += (column[begin.after] - first) * begin.share
        last += (column[end.after] - last) * end.share
        return 0.0 if last < first else last - first

    def peak(self, key: Column, begin: Place, end: Place) -> float:
        """Return the highest value of the rows around and between two instants; NaN if there is none."""
        column, peaks = self._columns.get(key), self._peaks.get(key)
        if column is None or peaks is None:
            return nan
        highest = nan
        number, last = begin.number, end.number + 1
        while number <= last:
            at = number % self._size
            if at % _BLOCK == 0 and number + _BLOCK <= min(last, self.count) and at + _BLOCK <= self._size:
                value, step = peaks[at // _BLOCK], _BLOCK
            else:  # up to the next block, the end of the columns or the last row
                step = min(_BLOCK - at % _BLOCK, self._size - at, last + 1 - number)
                value = max(column[at : at + step])
            if not highest >= value:
                highest = value
            number += step
        return highest


class Ledger:
    """The ledger of one source.

    Args:
        clock: Monotonic seconds.
        wall_clock: Seconds since the epoch, which spans are timed with.

    Attributes:
        rows: The readings.
        types: The ``hw.type`` of each device that was read, by ``hw.id``; "" stands for the process.
        packages: The CPUs among them.
        used: The devices that the observed program has used, by ``hw.id``.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, wall_clock: Callable[[], float] = time.time
    ) -> None:
        self.rows = Rows()
        self.types: dict[str, str] = {}
        self.packages: tuple[str, ...] = ()
        self.used: frozenset[str] = frozenset()
        self._clock = clock
        self._wall_clock = wall_clock
        self._offset = wall_clock() - clock()
        self._totals = Aggregator(CounterStore())
        self._reasons: dict[Series, float] = {}
        self._throttled: dict[str, float] = {}

    def add(self, points: Iterable[Point]) -> None:
        """Add a reading that was made just now."""
        now, wall = self._clock(), self._wall_clock()
        if abs(wall - now - self._offset) > _LARGEST_STEP:
            self.rows = Rows()
        self._offset = wall - now
        self._totals.add(now, [(series, value) for series, value in points if series.metric in _METRICS])
        published = self._totals.published
        assert published is not None
        values: dict[Column, float] = {}
        throttled: dict[str, float] = {}
        for metric, numbers in published.latest.items():
            for number, attributes in numbers:
                id_ = str(attributes.get(c.HW_ID, ""))
                if metric is c.HW_GPU_THROTTLE_TIME:
                    increase = self._throttle_increase(Series(metric, attributes), number)
                    throttled[id_] = max(throttled.get(id_, 0.0), increase)
                elif attributes.get(c.GPU_TASK, "general") == "general":
                    values[metric, id_] = values.get((metric, id_), 0.0) + number
                    self.types.setdefault(id_, str(attributes.get(c.HW_TYPE, "gpu")))
        for id_, increase in throttled.items():
            self._throttled[id_] = self._throttled.get(id_, 0.0) + increase
            values[c.HW_GPU_THROTTLE_TIME, id_] = self._throttled[id_]
        if values:
            self.packages = tuple(id_ for id_, kind in self.types.items() if kind == "cpu")
            self.rows.add(wall, values)

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
        if self.rows.count:
            self.rows.add(self._wall_clock(), {})
