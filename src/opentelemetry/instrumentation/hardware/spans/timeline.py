"""Timeline: the energy of the accelerators in use over time, in slots of a constant power."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final

from opentelemetry.instrumentation.hardware.spans.demand import INTERVAL
from opentelemetry.instrumentation.hardware.spans.rows import ACCELERATOR, LONGEST_GAP, Rows

# If there are more slots, each two of the older half become one, so that the end of a span takes at most 0.2 ms.
_MAX_SLOTS: Final = 600


class Slot:
    """A part of the time.

    Attributes:
        begin: Monotonic seconds.
        end: Monotonic seconds.
        power: Watts; those of the slot before, until it is closed.
        joules: The energy of all slots before it.
        first: The presence of a leaf at its begin, since the beginning.
        last: The presence of a leaf at its end.
        free: The time that is not claimed.
        open: The presence of those that have not claimed.
    """

    __slots__ = ("begin", "end", "first", "free", "joules", "last", "open", "power")

    def __init__(self, begin: float, power: float, joules: float, presence: float) -> None:
        self.begin = self.end = begin
        self.power = power
        self.joules = joules
        self.first = self.last = presence
        self.free = self.open = 0.0


class Timeline:
    """The slots since the oldest open span began.

    Args:
        rows: Returns the rows of all devices.
        clock: Monotonic seconds.
        wall_clock: Seconds since the epoch.

    Attributes:
        slots: The slots, oldest first. The newest is not closed.
        is_known: Whether the energy of the newest closed slot is known.
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[Rows]],
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
    ) -> None:
        self.slots = [Slot(clock(), 0.0, 0.0, 0.0)]
        self.is_known = False
        self._rows = rows
        self._clock = clock
        self._wall_clock = wall_clock
        self._totals: dict[Rows, float] = {}  # of each device at the end of the newest closed slot

    def advance(self, now: float, leaves: int, shortest: float = INTERVAL) -> bool:
        """Extend the newest slot to now, and begin another one if it is that long.

        Args:
            now: Monotonic seconds.
            leaves: How many leaves there were since the last call.
            shortest: Seconds from which a slot is closed.

        Returns:
            Whether a slot was closed.
        """
        slot = self.slots[-1]
        elapsed = now - slot.end
        if elapsed <= 0.0:  # another thread was faster to note
            return False
        if leaves:
            slot.last += elapsed / leaves
            slot.free += elapsed
            slot.open += elapsed
        slot.end = now
        if now - slot.begin < shortest:
            return False
        energy = self._increase(slot.begin, slot.end)
        before, slot.power = slot.power, energy / (slot.end - slot.begin)
        expected = slot.power or before  # 0: the total before was extrapolated, and too high
        self.slots.append(Slot(slot.end, expected, slot.joules + energy, slot.last))
        return True

    def read_until(self, now: float) -> float:
        """Return when the devices in use were read last, in monotonic seconds; ``now`` if none is read any more."""
        now_wall = self._wall_clock()
        newest = [rows.newest for rows in self._rows() if rows.kind == ACCELERATOR and rows.use]
        return now - max([0.0, *(now_wall - each for each in newest if now_wall - each <= LONGEST_GAP)])

    def forget(self, before: float) -> None:
        """Drop the slots before an instant, and merge older ones if there are too many."""
        slots, half = self.slots, _MAX_SLOTS // 2
        while slots[1].begin <= before and len(slots) > 2:
            del slots[0]
        if len(slots) > _MAX_SLOTS:
            for first, second in zip(slots[:half:2], slots[1:half:2]):
                joules = second.joules + second.power * (second.end - second.begin) - first.joules
                first.power = joules / (second.end - first.begin)
                first.end, first.last = second.end, second.last
                first.free += second.free
                first.open += second.open
            del slots[1:half:2]

    def joules(self, instant: float) -> float:
        """Return the energy of all slots up to an instant."""
        slot = self.slots[max(0, bisect_right(self.slots, instant, key=attrgetter("begin")) - 1)]
        return slot.joules + slot.power * (instant - slot.begin)

    def _increase(self, begin: float, end: float) -> float:
        """Return the joules of the devices in use between two instants. What is unknown now is counted when known."""
        increase, offset = 0.0, self._wall_clock() - self._clock()
        self.is_known = False
        for rows in self._rows():
            total = rows.total(end + offset) if rows.kind == ACCELERATOR and rows.use else None
            if total is None:
                continue
            self.is_known = True
            last = self._totals.get(rows)
            if last is None:  # it is used, or read, for the first time
                last = rows.total(begin + offset) or total
            if total < last / 2:  # another agent counts from 0
                last = total
            increase += max(0.0, total - last)
            self._totals[rows] = max(total, last)  # the last total was extrapolated, and may be too high
        return increase
