"""Rhythm: when collections come, learned from those that came, so that readings can be made just before."""

from __future__ import annotations

from math import inf

_LOST = 3.0
"""A reader that has not come for so many of its own intervals is gone."""


class Rhythm:
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
        interval = self._guess if before is None else now - before[0]
        readers = {key: each for key, each in self._readers.items() if now - each[0] <= _LOST * each[1]}
        readers[reader] = now, max(interval, 0.05)
        self._readers = readers
        self._last = now

    def due(self, after: float) -> float:
        """When the first collection after a moment is expected."""
        readers = self._readers
        if not readers:
            return _next(self._start, self._guess, after)
        return min((_next(last, interval, after) for last, interval in readers.values()), default=inf)

    def shortest(self) -> float:
        """Seconds between the collections of the reader that comes most often."""
        return min((interval for _, interval in self._readers.values()), default=self._guess)

    def longest(self) -> float:
        """Seconds between the collections of the reader that comes most seldom."""
        return max((interval for _, interval in self._readers.values()), default=self._guess)

    def paused(self, now: float) -> bool:
        """Whether nobody has asked for three intervals: a program without a reader costs nothing."""
        return now - self._last > _LOST * self.longest()


def _next(last: float, interval: float, after: float) -> float:
    if after < last + interval:
        return last + interval
    return last + interval * (int((after - last) / interval) + 1)
