"""CollectionSchedule: when collections come, learned from those that came, so that readings can be made just before."""

from __future__ import annotations

from math import inf

_LOST = 3.0
"""A reader that has not come for so many of its own intervals is gone."""

_FINEST = 0.05
"""Seconds; two collections closer to each other are one reader's flush, not its rhythm."""


class CollectionSchedule:
    """The collections of every reader, told apart by thread: each periodic reader has one of its own.

    Args:
        start: when sampling began.
        interval: seconds between collections, as long as none has come.
    """

    def __init__(self, start: float, interval: float) -> None:
        self._start = start
        self._guess = interval
        self._last = start
        self._readers: dict[int, tuple[float, float]] = {}

    def note(self, reader: int, now: float) -> None:
        """A collection begins."""
        before = self._readers.get(reader)
        interval = self._guess if before is None else max(now - before[0], _FINEST)
        alive = {key: each for key, each in self._readers.items() if now - each[0] <= _LOST * each[1]}
        self._readers = {**alive, reader: (now, interval)}
        self._last = now

    def _intervals(self, now: float) -> list[float]:
        """Seconds between the collections of each reader that still comes."""
        return [interval for last, interval in self._readers.values() if now - last <= _LOST * interval]

    def due(self, after: float) -> float:
        """When the first collection after a moment is expected; infinity where nobody comes any more."""
        if not self._readers:
            return _next(self._start, self._guess, after)
        readers = self._readers.values()
        dues = [_next(last, interval, after) for last, interval in readers if after - last <= _LOST * interval]
        return min(dues, default=inf)

    def shortest(self, now: float) -> float:
        """Seconds between the collections of the reader that comes most often."""
        return min(self._intervals(now), default=self._guess)

    def longest(self, now: float) -> float:
        """Seconds between the collections of the reader that comes most seldom."""
        return max(self._intervals(now), default=self._guess)

    def paused(self, now: float) -> bool:
        """Whether nobody has asked for three intervals: a program without a reader costs nothing."""
        return now - self._last > _LOST * self.longest(now)


def _next(last: float, interval: float, after: float) -> float:
    if after < last + interval:
        return last + interval
    return last + interval * (int((after - last) / interval) + 1)
