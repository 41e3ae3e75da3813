"""Rows: the readings of one device, from which its increase between any two instants is computed.

Rows get sparser with age: their distance is at most a hundredth of it, so that there is room for a day. The memory may
be shared with another process. One thread adds rows; others read them without a lock.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import exp, inf, nan
from typing import Final, NamedTuple, TypeAlias

CAPACITY: Final = 2048  # rows in memory. Of those of a day, about 1,100 remain when they are thinned out.

_SPARSENESS: Final = 0.01  # distance of two rows as a share of their age, below which one of them is dropped

# Seconds after the newest row for which its rate is assumed to continue. On a busy machine, readings are late.
LONGEST_GAP: Final = 3.0

# Seconds by which an energy counter may be late if the driver does not report when it was updated.
LAG: Final = 0.1

_RATE: Final = 0.05  # least seconds from which the newest rate is computed

_SHORTEST: Final = 0.01  # seconds. The rate over a shorter time is that of the steps of the counter.

_FADING: Final = 10.0  # seconds in which the range of the rates that were seen shrinks to a third

ACCELERATOR, PACKAGE, PROCESS = range(1, 4)  # what the rows are about. A package is a processor.

# Whether the program uses a device. VISIBLE: it may, because the driver names PIDs of another namespace.
UNUSED, USED, VISIBLE = range(3)

# What the memory begins with. There are two halves, each with its count. One of them is in use.
_HALF, _COUNT, _, _KIND, _USE, _LAG, _HEAD = range(7)

# Columns: seconds since the epoch; running totals; bytes in use, the highest since the row before; the range of the
# rates of ENERGY that were seen lately. NaN is unknown.
#
# The totals of an accelerator are joules, busy seconds and throttled seconds; those of a package are joules; those of a
# process are its CPU seconds and those of its tree.
_TIME, ENERGY, BUSY, THROTTLED, MEMORY, _RANGE, _COLUMNS = range(7)

LENGTH: Final = _HEAD + 2 * _COLUMNS * CAPACITY  # numbers that the memory has room for

_Columns: TypeAlias = "Sequence[memoryview[float]]"

# An instant: the rows before and after it; the share of the time between them that has passed, below 0 before the
# oldest row and above 1 after the newest; the seconds to the nearer row.
_Edge: TypeAlias = "tuple[int, int, float, float]"


class Increase(NamedTuple):
    """What happened between two instants. NaN is unknown.

    Attributes:
        energy: The increase of ENERGY.
        busy: That of BUSY.
        throttled: That of THROTTLED.
        memory: The highest number of bytes in use.
        bound: The largest error of ``energy``, if its rate stayed in the range that was seen at that time.
    """

    energy: float
    busy: float
    throttled: float
    memory: float
    bound: float


class Rows:
    """The readings of one device, or of the process.

    Args:
        memory: :data:`LENGTH` numbers of type double; by default new ones.
    """

    def __init__(self, memory: memoryview[float] | None = None) -> None:
        if memory is None:
            memory = memoryview(bytearray(8 * LENGTH)).cast("d")
        self._head = memory[:_HEAD]
        columns = [memory[begin : begin + CAPACITY] for begin in range(_HEAD, LENGTH, CAPACITY)]
        self._halves = columns[:_COLUMNS], columns[_COLUMNS:]
        self._low = self._high = nan

    def clear(self, kind: int) -> None:
        """Remove all rows, and set what the next ones are about."""
        self._head[_COUNT] = self._head[_COUNT + 1] = 0.0
        self._head[_KIND] = kind
        self._low = self._high = nan

    @property
    def kind(self) -> int:
        """Return ACCELERATOR, PACKAGE or PROCESS; 0 if it is not set yet."""
        return int(self._head[_KIND])

    @property
    def use(self) -> int:
        """Return UNUSED, USED or VISIBLE."""
        return int(self._head[_USE])

    @use.setter
    def use(self, use: int) -> None:
        self._head[_USE] = use

    def _current(self) -> tuple[_Columns, int]:
        """Return the columns in use and the number of rows. They stay valid until rows are thinned out twice."""
        half = int(self._head[_HALF])
        return self._halves[half], int(self._head[_COUNT + half])

    @property
    def newest(self) -> float:
        """Return the time of the newest row; -inf if there is none."""
        columns, count = self._current()
        return columns[_TIME][count - 1] if count else -inf

    # -- the thread that reads the device

    def add(self, time: float, totals: Sequence[float], memory: float, lag: float = 0.0) -> None:
        """Add a row.

        Args:
            time: Seconds since the epoch. If it is that of the newest row, the counter was not updated in between, and
                only the memory of that row changes.
            totals: ENERGY, BUSY and THROTTLED.
            memory: Bytes in use.
            lag: Seconds by which ENERGY may be late.
        """
        columns, count = self._current()
        if count:
            last = count - 1
            elapsed = time - columns[_TIME][last]
            if elapsed <= 0.0:
                columns[MEMORY][last] = max(columns[MEMORY][last], memory)
                return
            rate = (totals[0] - columns[ENERGY][last]) / elapsed
            if self._high != self._high:
                self._low, self._high = rate / 2, rate
            elif elapsed >= _SHORTEST and rate == rate:  # noqa: PLR0124 - not NaN
                fade = exp(-elapsed / _FADING)  # the range shrinks with time to the current rate
                self._low = min(rate, rate + (self._low - rate) * fade)
                self._high = max(rate, rate + (self._high - rate) * fade)
        if count == CAPACITY:
            columns, count = self._thinned(columns, time)
        for column, value in zip(columns, (time, *totals, memory, self._high - self._low)):
            column[count] = value
        half = int(columns is self._halves[1])
        self._head[_LAG] = lag
        self._head[_COUNT + half] = count + 1
        self._head[_HALF] = half

    def forget(self, column: int) -> None:
        """Make a total of all rows unknown."""
        for columns in self._halves:
            for row in range(CAPACITY):
                columns[column][row] = nan

    def _thinned(self, columns: _Columns, now: float) -> tuple[_Columns, int]:
        """Copy the rows that are kept to the half that is not in use. Returns it with their number."""
        times = columns[_TIME]
        kept = [CAPACITY - 1]
        for row in range(CAPACITY - 2, -1, -1):
            before = times[row - 1] if row else -inf
            if times[kept[-1]] - before > _SPARSENESS * (now - times[row]):
                kept.append(row)
        kept.reverse()
        other = self._halves[columns is self._halves[0]]
        for source, target in zip(columns[:MEMORY], other):
            for at, row in enumerate(kept):
                target[at] = source[row]
        first = 0
        for at, row in enumerate(kept):  # the highest of those that are dropped
            for column in (MEMORY, _RANGE):
                other[column][at] = max(columns[column][first : row + 1])
            first = row + 1
        return other, len(kept)

    # -- any thread

    def measure(self, begin: float, end: float) -> Increase | None:
        """Return what happened between two instants, in seconds since the epoch.

        Totals are interpolated. Before the oldest row, and for :data:`LONGEST_GAP` after the newest one, they are
        extrapolated.

        Returns:
            None if there are less than two rows, or if ``end`` is too long after the newest one.
        """
        columns, count = self._current()
        first, last = self._edge(columns[_TIME], count, begin), self._edge(columns[_TIME], count, end)
        if first is None or last is None:
            return None
        b0, b1, begun, near_begin = first
        e0, e1, ended, near_end = last
        energies, ranges = columns[ENERGY], columns[_RANGE]
        energy = _between(energies, b0, b1, begun, e0, e1, ended)
        # The rate at an edge is unknown within its range, but a counter is between its values before and after.
        bound = min(ranges[b1] * near_begin, energies[b1] - energies[b0]) if begun >= 0.0 else ranges[b1] * near_begin
        bound += min(ranges[e1] * near_end, energies[e1] - energies[e0]) if ended <= 1.0 else ranges[e1] * near_end
        lag = self._head[_LAG]
        if lag:
            bound += lag * (energies[e1] - energies[e0]) / (columns[_TIME][e1] - columns[_TIME][e0])
        return Increase(
            energy,
            _between(columns[BUSY], b0, b1, begun, e0, e1, ended),
            _between(columns[THROTTLED], b0, b1, begun, e0, e1, ended),
            max(columns[MEMORY][b0 : e1 + 1]),
            bound,
        )

    def total(self, instant: float) -> float | None:
        """Return ENERGY at an instant; None if it is unknown."""
        columns, count = self._current()
        edge = self._edge(columns[_TIME], count, instant)
        if edge is None:
            return None
        before, after, share, _ = edge
        energies = columns[ENERGY]
        found = energies[before] + (energies[after] - energies[before]) * share
        return found if found == found else None  # noqa: PLR0124 - not NaN

    @staticmethod
    def _edge(times: memoryview[float], count: int, instant: float) -> _Edge | None:
        if count < 2:
            return None
        after = count - 1
        newest = times[after]
        if instant >= newest:
            if instant - newest > LONGEST_GAP:
                return None
            before = after - 1
            while before and newest - times[before] < _RATE:
                before -= 1
            near = instant - newest
        else:
            after = bisect_right(times, instant, 0, count) or 1
            before = after - 1
            near = abs(instant - times[before])
            near = min(near, times[after] - instant)
        return before, after, (instant - times[before]) / (times[after] - times[before]), near


def _between(totals: memoryview[float], b0: int, b1: int, begun: float, e0: int, e1: int, ended: float) -> float:
    """Return the increase of a total between two edges."""
    first, last = totals[b0], totals[e0]
    growth = last + (totals[e1] - last) * ended - first - (totals[b1] - first) * begun
    return 0.0 if growth < 0.0 else growth
