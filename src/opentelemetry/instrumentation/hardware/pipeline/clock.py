"""RunningClock: monotonic seconds without the time in which the process was stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_LATE: Final = 1.0  # seconds that a thread may wake late on a busy machine


class RunningClock:
    """Seconds in which the process could run: SIGSTOP and the cgroup freezer stop it, as suspend stops the system's.

    So a reading does not expire while no thread can replace it, and a driver does not count as hung while its thread is
    stopped. The process was stopped if a thread should have woken, and nothing has called the clock since.

    It takes no lock: two threads that notice a stop at the same time store the same state. ``first_wake`` returns when
    the first of the sleeping threads wakes, in seconds of this clock; infinity if none does.
    """

    def __init__(self, first_wake: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._first_wake = first_wake
        self._clock = clock
        self._state = clock(), 0.0  # when it was called last, and the seconds of all stops before

    def __call__(self) -> float:
        now = self._clock()
        last, stopped = self._state
        if now - last > _LATE:
            missed = now - max(last, self._first_wake() + stopped)
            stopped += missed if missed > _LATE else 0.0
        if now > last:
            self._state = now, stopped
        return now - stopped
