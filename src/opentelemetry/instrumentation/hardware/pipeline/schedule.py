"""CollectionSchedule: predicts the next collection from previous ones."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

_MISSED = 3.0  # number of its intervals without a collection after which a reader counts as gone

# Seconds. Collections that are closer to each other are flushes, and are not used to predict the interval.
_SHORTEST = 0.05

# Seconds without a collection until sampling slows down while no reader has collected twice.
_UNKNOWN = 3600.0


class CollectionSchedule:
    """The collections of every reader.

    Args:
        start: When sampling began.
        interval: The expected seconds between collections, until a reader has come twice.
    """

    def __init__(self, start: float, interval: float) -> None:
        self._start = start
        self._guess = interval
        self._last = start
        self._readers: dict[Hashable, tuple[float, float]] = {}
        self._known = False

    def note(self, reader: Hashable, before: float | None, now: float) -> None:
        """Record that a collection of a reader begins, and when its last one was; None for its first one."""
        interval = self._guess if before is None else max(now - before, _SHORTEST)
        self._known = self._known or before is not None
        self._readers = {**self._alive(now), reader: (now, interval)}
        self._last = now

    def _alive(self, now: float) -> dict[Hashable, tuple[float, float]]:
        """Return the last collection and the interval of each active reader."""
        return {key: each for key, each in self._readers.items() if now - each[0] <= _MISSED * each[1]}

    def due(self, after: float) -> float:
        """Return when the first collection after a time is expected; infinity if there is no active reader."""
        if not self._readers:
            return _next(self._start, self._guess, after)
        return min((_next(*each, after) for each in self._alive(after).values()), default=inf)

    def shortest(self, now: float) -> float:
        """Return the seconds between the collections of the most frequent reader."""
        return min((interval for _, interval in self._alive(now).values()), default=self._guess)

    def idle(self, now: float) -> bool:
        """Whether no reader has collected for three intervals."""
        return now - self._last > self._patience(now)

    def quiet(self, now: float) -> bool:
        """Whether sampling slows down, because no reader has collected for three intervals."""
        return now - self._last > (self._patience(now) if self._known else max(self._patience(now), _UNKNOWN))

    def _patience(self, now: float) -> float:
        """Return three intervals, in seconds: of any active reader, since each has collected within its own three."""
        return _MISSED * self.shortest(now)


def _next(last: float, interval: float, after: float) -> float:
    if after < last + interval:
        return last + interval
    return last + interval * (int((after - last) / interval) + 1)
