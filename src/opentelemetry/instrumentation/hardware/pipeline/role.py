"""Role: decides from time to time whether this process reports the host of its job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf
from typing import Final

from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.settings.log import logger

_LOG = logger(__name__)

# Maximum seconds between two attempts to get the lock. An attempt takes CPU time, mostly to wake the thread.
_MAX_PAUSE = 10.0

# Seconds between two attempts while there is no reader, of which the first collection should be complete.
_NO_READER = 2.0

_HUNG_AFTER = 10.0  # seconds after which the file system of the lock counts as hung


class Role:
    """Gets, keeps or releases the lock of the job, in a thread of its own, because its file system may hang.

    There are several attempts between two collections, so that the next collection after the end of the reporter is
    complete. A stopped reporter (SIGSTOP) keeps the lock; the host is not reported until it continues. ``change`` is
    called with whether this process reports the host.

    Attributes:
        has_reader: Whether a reader may collect from this process.
        decided: Set after the first attempt.
        cpu_time: CPU seconds of its thread.
    """

    state: Final = State.UP
    poll: Final = inf

    def __init__(
        self,
        reporter: Reporter,
        schedule: CollectionSchedule,
        change: Callable[[bool], None],
        clock: Callable[[], float],
    ) -> None:
        self.has_reader: Callable[[], bool] = lambda: True
        self.decided = threading.Event()
        self.cpu_time = 0.0
        self._reporter = reporter
        self._schedule = schedule
        self._change = change
        self._clock = clock
        self._has_reader = False
        self._last: float | None = None
        self._busy_since: float | None = None

    def next_reading(self, now: float) -> float:
        """Return when the next attempt is due."""
        if self._last is None:
            return now
        pause = _MAX_PAUSE if self._has_reader else _NO_READER
        return self._last + min(pause, self._schedule.shortest(self._clock()) / 4)

    def read(self, everything: bool = False) -> None:
        """Make an attempt. Never raises."""
        del everything
        now = self._last = self._busy_since = self._clock()
        try:
            self._has_reader = self.has_reader()
            self._change(self._reporter.update(self._has_reader, self._schedule.idle(now)))
        except Exception:
            _LOG.debug("Whether this process reports the host is not known", exc_info=True)
        finally:
            self._busy_since = None
            self.decided.set()

    def check(self, now: float) -> None:
        """Report the host without the lock if its file system hangs. Called by the threads of the sources."""
        since = self._busy_since
        if since is not None and now - since > _HUNG_AFTER and self.has_reader():
            self._reporter.give_up("its file system does not respond")
            self._change(True)

    def close(self) -> None:
        self._reporter.release()
