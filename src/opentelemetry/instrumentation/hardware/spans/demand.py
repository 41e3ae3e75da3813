"""Demand: when spans need readings."""

from __future__ import annotations

import os
from collections.abc import MutableSequence
from math import inf
from typing import Final

from opentelemetry.instrumentation.hardware.spans.rows import Rows

INTERVAL: Final = 0.1  # seconds between two readings of the devices in use while a recorded span is open

# Seconds between two readings while there are none, so that a span that is made after the fact has values.
_PERIOD: Final = 1.0

# Seconds from the first reading in which they are as frequent as if a span was open: people look at the first spans.
_START: Final = 10.0

_FRESH: Final = 0.02  # seconds. A span that starts so soon after a reading causes none.

# Longest time between two readings, as a share of the time since a span started: its end may be near.
_SPACING: Final = 0.05

# Least time between two readings, as a multiple of the duration of the last one, up to ``_PERIOD``. Each call of a
# driver takes the interpreter lock from the threads of a busy program, and waits for it.
_REST: Final = 50.0

TRACING, ASKED, OPEN = range(3)  # what its memory begins with


class Demand:
    """When spans need readings. One object for all sources of a session.

    Args:
        memory: Whether there is a TracerProvider, when a recorded span started that wants a reading, in monotonic
            seconds, and the PIDs of the processes that have recorded spans open.

    Attributes:
        ready: From when on the start of a span may cause a reading, in monotonic seconds.
        poll: Seconds after which :meth:`due` must be called again, because nothing wakes the reading thread.
    """

    poll: float = inf

    def __init__(self, memory: MutableSequence[float] | memoryview[float] | None = None) -> None:
        self._memory = [0.0, -inf, 0.0] if memory is None else memory
        self._first = inf  # when the first reading was made
        self.join()

    def join(self) -> None:
        """Record the spans of this process. A forked child, which has none of those of its parent, calls it again."""
        self._pid = os.getpid()
        self._place = OPEN + self._pid % (len(self._memory) - OPEN)
        self._open: set[int] = set()
        self.ready = -inf

    @property
    def is_tracing(self) -> bool:
        """Whether the spans of any TracerProvider are measured."""
        return self._memory[TRACING] != 0.0

    @is_tracing.setter
    def is_tracing(self, is_tracing: bool) -> None:
        self._memory[TRACING] = float(is_tracing)

    @property
    def is_open(self) -> bool:
        """Whether a recorded span is open."""
        return any(self._memory[OPEN:])

    def begin(self, key: int, now: float) -> bool:
        """Record that a span started. Returns whether a reading is wanted at once. No lock, no wait."""
        self._open.add(key)
        if self._memory[self._place] not in (0.0, self._pid):  # the PID of another process leads to the same place
            self._place = next((at for at in range(OPEN, len(self._memory)) if not self._memory[at]), self._place)
        self._memory[self._place] = self._pid
        if now < self.ready:
            return False
        self.ready = inf  # until it is made
        self._memory[ASKED] = now
        return True

    def end(self, key: int) -> None:
        """Record that a span ended, or was forgotten without an end."""
        self._open.discard(key)
        is_open = True
        while is_open != bool(self._open):  # again, if another thread has begun or ended one meanwhile
            is_open = not is_open
            self._memory[self._place] = self._pid * is_open

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
            asked = self._memory[ASKED]
            if is_open:
                due = min(due, last + max(_FRESH, _SPACING * (last - asked)))
            if asked > last:
                due = min(due, asked)
        return max(due, self.rested(last, duration))

    @staticmethod
    def rested(last: float, duration: float) -> float:
        """Return the earliest time of the next reading after one that began at ``last`` and took so long."""
        return last + min(max(_FRESH, _REST * duration), _PERIOD)

    def room(self) -> Rows:
        """Return empty rows."""
        return Rows()
