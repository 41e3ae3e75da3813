"""Counters that never decrease, over device resets, sessions and forks."""

from __future__ import annotations

from typing import TypeAlias

from opentelemetry.instrumentation.hardware.model import Number, Series

_INT64_MAX = 2**63 - 1

# Largest decrease that is a correction. After a larger one, a part of the count is lost: before Linux 6.8, the idle
# time of a CPU that went offline and came back, as all but one do at a suspend (commit 71fee48fb772 of the kernel).
_MAX_DIP = 10

_LIMIT = 4096  # maximum counters in a store. A counter beyond it works, but starts again in a later session.

_Key: TypeAlias = "tuple[tuple[str, ...], frozenset[tuple[str, str | int]]]"


class Counter:
    """One exported counter. Only the thread that reads its source updates it.

    The exported total is the device's count plus an offset. A device that restarts its count raises the offset,
    so that the total continues from where it was. So does a count that begins after an integral was exported.

    Args:
        dips: Whether this count can fall without a reset; see :attr:`.model.Metric.dips`.
        before: The same counter in an earlier session, with the total to continue.
        from_start: Count from the first reading of the session instead of from the device's own start.

    Attributes:
        total: The exported value.
        time: When it was last read.
    """

    __slots__ = ("_count", "_dips", "_from_start", "_offset", "time", "total")

    def __init__(self, dips: bool = False, before: Counter | None = None, from_start: bool = False) -> None:
        self.total: Number = 0 if before is None else before.total
        self.time = float("-inf")
        self._dips = dips
        self._from_start = from_start
        self._count: Number | None = None if before is None else before._count
        self._offset: Number | None = None  # the next count continues from the total
        if before is None:
            self._offset = None if from_start else 0
        elif not from_start:
            # An offset below 0 belongs to a session that counted from its start.
            self._offset = max(0, before._offset or 0) if before._from_start else before._offset

    def set(self, count: Number) -> None:
        """Add what the device has counted since the last reading."""
        if self._offset is None:
            self._offset = self.total - count
        elif self._count is not None and count < self._count:
            if self._dips and is_dip(self._count, count):
                return
            self._offset = self.total - count if self._dips else self.total
        self._count = count
        total = count + self._offset
        if total >= self.total:
            self.total = min(total, _INT64_MAX) if type(total) is int else total

    def add(self, amount: float) -> None:
        """Add a computed amount, where the device reports a rate instead of a count."""
        self.total += amount
        if self._count is None:
            self._offset = None


def is_dip(before: Number, after: Number) -> bool:
    """Whether a decrease is a correction by the kernel, such as of iowait, and not a restart of the count."""
    return before - _MAX_DIP <= after < before


class CounterStore:
    """The counters of everything that is exported to one MeterProvider.

    The instrumentor keeps it over ``uninstrument()`` and fork and hands it to each session. The SDK also keeps its last
    values for the life of the process, and would export a negative delta if a counter decreased.
    """

    def __init__(self) -> None:
        self._counters: dict[_Key, Counter] = {}

    def resume(self, series: Series, from_start: bool = False) -> Counter:
        """Return the counter of a series for a new session. It continues the counter of the previous session.

        Each session has separate counters, because a thread of an earlier one may still hang in its driver.
        """
        key = (series.metric.key, series[1])
        counter = Counter(series.metric.dips, self._counters.pop(key, None), from_start)
        self._counters[key] = counter
        for oldest in [*self._counters][:-_LIMIT]:
            self._counters.pop(oldest, None)
        return counter
