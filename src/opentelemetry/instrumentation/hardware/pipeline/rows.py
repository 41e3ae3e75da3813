"""Rows: readings of ten minutes in columns of numbers, from which the increase between any two instants is computed.

The memory of the columns may be shared with another process: one adds rows, and others read them without a lock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from math import inf, nan
from typing import Final, Protocol, TypeAlias

SIZE: Final = 6000
"""Readings that are kept: ten minutes at ten per second."""

ENERGY, GPU_TIME, THROTTLE_TIME, CPU_ENERGY, CPU_TIME = TOTALS = range(5)
"""Columns of running totals. NaN is unknown. The first three are sums over the accelerators in use."""

GPU_MEMORY, TREE_MEMORY = LEVELS = range(2)
"""Columns of bytes in use. -inf is unknown."""

_BLOCK: Final = 64
"""Rows with a common maximum, so that the peak of a long span is found quickly."""

_BLOCKS: Final = SIZE // _BLOCK + 1

_COUNT, _DEVICES, _PACKAGES, _PROCESS, _HEAD = range(5)
"""What the memory begins with."""

LENGTH: Final = _HEAD + (1 + len(TOTALS) + len(LEVELS)) * SIZE + len(LEVELS) * _BLOCKS
"""Numbers that the memory has room for."""

_LONGEST_GAP: Final = (3.0, 2.0)
"""Intervals, and seconds, after the newest reading for which its rate is assumed to continue, whichever is longer. On a
busy machine, readings are late."""

_NEAR: Final = 0.05
"""Seconds. The total at an instant so close to a reading is as certain as between readings twice as far apart. The
first span after a pause begins just before a reading."""

Place: TypeAlias = "tuple[int, int, int, float, float]"
"""An instant: the number of the row before it; the index of that row in the columns; the index of the next row; the
share of the interval between them that has passed, above 1 beyond the newest row; and the seconds between them, or from
the newest row to the instant, see also :data:`_NEAR`. A plain tuple, because it is made twice for each span."""


class Rows:
    """The readings, in columns that are overwritten after ten minutes.

    Args:
        memory: :data:`LENGTH` numbers of type double, which are zero; by default new ones.

    Attributes:
        times: When they were made, in seconds since the epoch.
        devices: The number of accelerators in use.
        packages: The number of CPU packages.
        has_process: Whether CPU time and memory of the process are among the columns.
    """

    def __init__(self, memory: memoryview[float] | None = None) -> None:
        memory = memoryview(array("d", bytes(8 * LENGTH))) if memory is None else memory
        self._head = memory[:_HEAD]
        begins = range(_HEAD, LENGTH, SIZE)
        self.times, *columns = (memory[begin : begin + SIZE] for begin in begins[: 1 + len(TOTALS) + len(LEVELS)])
        self._totals, self._levels = columns[: len(TOTALS)], columns[len(TOTALS) :]
        end = LENGTH - len(LEVELS) * _BLOCKS
        self._peaks = [memory[end + level * _BLOCKS : end + (level + 1) * _BLOCKS] for level in LEVELS]
        self.devices, self.packages, self.has_process = (int(each) for each in self._head[1:])

    def clear(self, devices: int, packages: int, has_process: bool) -> None:
        """Remove all rows, and set what the totals of the next ones are sums over."""
        self._head[_COUNT] = 0.0
        self._head[_DEVICES], self._head[_PACKAGES], self._head[_PROCESS] = devices, packages, has_process
        self.devices, self.packages, self.has_process = devices, packages, int(has_process)

    @property
    def count(self) -> int:
        """Return how many rows were added."""
        return int(self._head[_COUNT])

    def add(self, now: float, totals: Sequence[float], levels: Sequence[float]) -> None:
        """Add a row. It is visible to others when it is complete."""
        count = self.count
        at = count % SIZE
        block = at // _BLOCK
        self.times[at] = now
        for column, value in zip(self._totals, totals):
            column[at] = value
        for column, peaks, value in zip(self._levels, self._peaks, levels):
            column[at] = value
            if at % _BLOCK == 0 or value > peaks[block]:
                peaks[block] = value
        self._head[_COUNT] = count + 1.0

    def place(self, instant: float) -> Place | None:
        """Return the place of an instant; None if it is before the oldest row or long after the newest."""
        times, count = self.times, int(self._head[_COUNT])
        if count < 2:
            return None
        newest = (count - 1) % SIZE
        if instant >= times[newest]:
            number = count - 2
        else:  # once the columns are full, the rows after the newest one are older than those at the beginning
            if instant >= times[0]:
                index = bisect_right(times, instant, 0, newest + 1) - 1
            else:
                start = count % SIZE  # the row there may just be overwritten
                if count < SIZE:
                    return None
                index = bisect_right(times, instant, start + 1, SIZE) - 1
                if index <= start:
                    return None
            number = count - 1 - (newest - index) % SIZE
        before, after = number % SIZE, (number + 1) % SIZE
        time = times[after]
        step, beyond = time - times[before], instant - time
        if beyond <= 0:
            is_near = beyond > -_NEAR or step + beyond < _NEAR
            return number, before, after, 1.0 + beyond / step, 2 * _NEAR if is_near and step > 2 * _NEAR else step
        if beyond > _LONGEST_GAP[1] and beyond > _LONGEST_GAP[0] * step:
            return None
        return number, before, after, 1.0 + beyond / step, step if step > beyond else beyond

    def places(self, begin: float, end: float) -> tuple[Place, Place, float] | None:
        """Return the places of two instants, and the longer one of the intervals around them.

        None if one place is unknown, or if the instants are closer than that.
        """
        first, last = self.place(begin), self.place(end)
        if first is None or last is None:
            return None
        interval = first[4] if first[4] > last[4] else last[4]
        return None if end - begin < interval else (first, last, interval)

    def total(self, column: int, place: Place) -> float:
        """Return a total at an instant; NaN if it was not read around it."""
        values = self._totals[column]
        first = values[place[1]]
        return first + (values[place[2]] - first) * place[3]

    def increase(self, column: int, begin: Place, end: Place) -> float:
        """Return the increase of a total; NaN if it was not read at both instants."""
        values = self._totals[column]
        first, last = values[begin[1]], values[end[1]]
        growth = last + (values[end[2]] - last) * end[3] - first - (values[begin[2]] - first) * begin[3]
        return 0.0 if growth < 0.0 else growth

    def peak(self, level: int, begin: Place, end: Place) -> float:
        """Return the highest value of the rows around and between two instants; NaN if there is none."""
        first, last = begin[1], end[2]
        if first <= last:
            highest = self._highest(level, first, last + 1)
        else:  # from the end of the columns to their beginning
            highest = max(self._highest(level, first, SIZE), self._highest(level, 0, last + 1))
        return nan if highest == -inf else highest

    def _highest(self, level: int, first: int, end: int) -> float:
        """Return the highest value from one index to another, from the maxima of the blocks between them."""
        values = self._levels[level]
        block, last = -(-first // _BLOCK), end // _BLOCK
        if block >= last:
            return max(values[first:end])
        blocks = self._peaks[level][block:last]
        return max([*values[first : block * _BLOCK], *blocks, *values[last * _BLOCK : end]])


class HasRows(Protocol):
    """A ledger, of this process or of its agent."""

    @property
    def rows(self) -> Rows | None:
        """Return the readings; None before the first one."""
