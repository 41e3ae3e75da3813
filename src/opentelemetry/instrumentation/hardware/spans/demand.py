"""Demand: when spans need readings."""

from __future__ import annotations

from math import inf
from typing import Final

from opentelemetry.instrumentation.hardware.spans.rows import Rows

INTERVAL: Final = 0.1  # seconds between two readings of the devices in use while a recorded span is open

# Seconds between two readings while there are none, so that a span that is made after the fact has values.
_PERIOD: Final = 1.0

# Seconds from the first reading in which they are as frequent as if a span was open: people look at the first spans.
_START: Final = 10.0

FRESH: Final = 0.02  # seconds. A span that starts so soon after a reading causes none.

# Longest time between two readings, as a share of the time since a span started: its end may be near.
_SPACING: Final = 0.05

# Least time between two readings, as a multiple of the duration of the last one, up to ``_PERIOD``. Each call of a
# driver takes the interpreter lock from the threads of a busy program, and waits for it.
_REST: Final = 50.0


class Demand:
    """When spans need readings. One object for all sources of a session.

    Attributes:
        is_tracing: Whether the spans of any TracerProvider are measured.
        asked: When a recorded span started that wants a reading, in monotonic seconds.
        open: The recorded spans that are open. Who adds or removes one need not call :meth:`begin` before ``ready``,
            nor :meth:`end` while others are open.
        ready: From when on the start of a span may cause a reading, in monotonic seconds.
        poll: Seconds after which :meth:`due` must be called again, because nothing wakes the reading thread.
    """

    is_tracing = False
    asked = -inf
    poll = inf

    def __init__(self) -> None:
        self._first = inf  # when the first reading was made
        self.join()

    def join(self) -> None:
        """Record the spans of this process. A forked child, which has none of those of its parent, calls it again."""
        self.open: set[object] = set()
        self.ready = -inf

    @property
    def is_open(self) -> bool:
        """Whether a recorded span is open."""
        return bool(self.open)

    def begin(self, key: object, now: float) -> bool:
        """Record that a span started. Returns whether a reading is wanted at once. No lock, no wait."""
        self.open.add(key)
        if now < self.ready:
            return False
        self.ready = inf  # until it is made
        self.asked = now
        return True

    def end(self, key: object) -> None:
        """Record that a span ended, or was forgotten without an end."""
        self.open.discard(key)

    def due(self, interval: float, last: float, duration: float) -> float:
        """Return when the next reading is due.

        Args:
            interval: Seconds between two readings while a span is open.
            last: When the last one began.
            duration: How long it took.
        """
        if not self.is_tracing:
            return inf
        if last > -inf:
            self._first = min(self._first, last)
        is_open = self.is_open
        due = last + (interval if is_open or last < self._first + _START else max(interval, _PERIOD))
        if interval <= INTERVAL:
            asked = self.asked
            if is_open:
                due = min(due, last + max(FRESH, _SPACING * (last - asked)))
            if asked > last:
                due = min(due, asked)
        return max(due, self.rested(last, duration))

    @staticmethod
    def rested(last: float, duration: float) -> float:
        """Return the earliest time of the next reading after one that began at ``last`` and took so long."""
        return last + min(max(FRESH, _REST * duration), _PERIOD)

    def room(self) -> Rows:
        """Return empty rows."""
        return Rows()
