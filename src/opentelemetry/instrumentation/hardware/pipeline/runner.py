"""SourceRunner: one source and its readings.

The source is opened, read at every sampling interval and, where it is to be punctual, once more just before a
collection is due; each reading is published for others to look at. Whatever the driver does (hang, raise, lie) happens
here and costs this source alone; those that may hang have a thread of their own (:mod:`.threads`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import TypeAlias

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.model import Metric, Number, Problem, Series, Unavailable, Values
from opentelemetry.instrumentation.hardware.pipeline.aggregate import SeriesAggregator
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.sources import Source

Ends: TypeAlias = "tuple[float, float]"
"""Where the last windows of a source ended, of what is read often and of what is read seldom."""

_LOG = logging.getLogger(__name__)

PERIODS = 3
"""A reading older than this many of its own periods is dropped; a source that is silent for so long hangs."""

SHORTEST_PERIOD = 1.0
"""Seconds: a source with a shorter period is given as much time for an answer as one with this period."""

RETRY_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds until a failed source is opened again."""


class State(Enum):
    """How a source is."""

    STARTING = "starting"
    UP = "up"
    ABSENT = "absent"
    FAILED = "failed"


class SourceRunner:
    """One source, as the thread that reads it knows it.

    Args:
        make: makes the source; a new one for each time that it is opened.
        interval: seconds between samples; 0: only when a collection is due.
        rhythm: when collections come.
        rows: the rows that were read, which it adds its own to.
        from_start: counters count from their first reading.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        make: Callable[[], Source],
        name: str,
        interval: float,
        rhythm: CollectionSchedule,
        rows: dict[Metric, None],
        from_start: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.state = State.STARTING
        self.problem: Problem | None = None
        self.cpu_time = 0.0
        self.duration: float | None = None
        self.busy_since: float | None = None
        self.source: Source | None = None
        self._make = make
        self._interval = interval
        self._rhythm = rhythm
        self._clock = clock
        self._hung = False
        self._failures = 0
        self._retry = -inf
        self._often = SeriesAggregator(rows, from_start)
        self._seldom = SeriesAggregator(rows, from_start)

    def abandon(self) -> None:
        """In a forked child: close what came with the fork."""
        if self.source is not None:
            self.source.context.drivers.close()

    # -- one step

    def next_reading(self, now: float) -> float:
        """When the next reading should be made."""
        if self.state is State.ABSENT:
            return inf
        if self.state is State.FAILED:
            return self._retry
        last = self._often.time
        if last is None:
            return now
        if self._rhythm.paused(now):
            return inf
        sample = last + self._interval if self._interval else inf
        lead = self._lead()  # a reading within two of them served that collection
        due = self._rhythm.due(last + 2 * lead) - lead if self.sample_before_collection() else inf
        return max(min(sample, due), last + self._pace())

    def sample_before_collection(self) -> bool:
        """Whether there is a reading for each collection."""
        source = self.source  # once: its thread may close it meanwhile
        return not self._interval or source is None or source.sample_before_collection

    def _lead(self) -> float:
        """How long before a collection its reading is made: late enough to be fresh, early enough to be there."""
        return min(0.05 + 3 * (self.duration or 0.0), 0.25 * self._rhythm.shortest(self._clock()))

    def read(self, slow: bool = False) -> None:
        """Open the source if need be, and read it once. Never raises.

        Args:
            slow: whether somebody asked for this reading, so that the seldom read is made as well.
        """
        begun = self.busy_since = self._clock()
        try:
            if self.source is None:
                self.source = self._make()  # before it is opened: what a failed or forked opening holds is closed too
                self.source.open()
            self._read(self.source, slow)
        except Unavailable as gone:
            if self.state is State.STARTING:
                self._absent(gone)
            else:
                self._fail(gone.reason)  # it was there: it may come back
        except DriverError as refusal:
            self._fail(str(refusal))  # the driver's own words
        except Exception as error:
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self.duration = self._clock() - begun
            self.busy_since = None

    def _read(self, source: Source, slow: bool) -> None:
        now = self._clock()
        before = self._often.time
        if before is not None and now - before > PERIODS * self.period() + 1.0:
            self._often.interrupt()  # a pause: nothing is known of it
            self._seldom.interrupt()
        wrong = self._often.take(now, source.read())
        wrong += source.errors
        last = self._seldom.time
        if last is None or slow or (now - last >= source.slow_interval - 0.1 and self._serves(now)):
            wrong += self._seldom.take(self._clock(), source.read_slow())
        if wrong:
            more = f", and {len(wrong) - 1} more of the kind" if len(wrong) > 1 else ""
            self._ill(Problem(self.name, wrong[0] + more))
            self.state = State.UP  # it lies, but it is read
        else:
            self._well()

    def _serves(self, now: float) -> bool:
        """Whether a reading is made because a collection is due, or is one of those that serve all of them."""
        return not self.sample_before_collection() or self._rhythm.due(now) - now <= 2 * self._lead()

    def _absent(self, gone: Unavailable) -> None:
        """There is no such thing on this machine; that is no trouble, and not tried again."""
        self.close()
        self.problem = Problem(self.name, gone.reason, gone.fix)
        self.state = State.ABSENT
        _LOG.info("Source %s: %s%s", self.name, gone.reason, f" ({gone.fix})" if gone.fix else "")

    def _fail(self, reason: str) -> None:
        """Close the source, to open it again after a pause that grows."""
        self.close()
        self._retry = self._clock() + RETRY_DELAYS[min(self._failures, len(RETRY_DELAYS) - 1)]
        self._failures += 1
        self._ill(Problem(self.name, reason))
        self.state = State.FAILED

    def _ill(self, problem: Problem) -> None:
        if self.problem is None and not self._hung:  # else it has been said
            _LOG.warning("Source %s: %s; its numbers are missing until it recovers", self.name, problem.reason)
        self.problem = problem

    def _well(self) -> None:
        if self.problem is not None or self._hung:
            _LOG.info("Source %s has recovered", self.name)
        self.state, self.problem, self._failures, self._hung = State.UP, None, 0, False

    def close(self) -> None:
        """Let go of the source; the next :meth:`step` opens it again."""
        source, self.source = self.source, None
        self._often.interrupt()
        self._seldom.interrupt()
        if source is not None:
            try:
                source.close()
            except Exception:
                _LOG.debug("Source %s did not close cleanly", self.name, exc_info=True)

    # -- what others see; no lock, no wait

    def period(self) -> float:
        """Seconds between two readings."""
        return max(self._interval or self._rhythm.shortest(self._clock()), self._pace())

    def _pace(self) -> float:
        """Seconds that the source wants between two readings, at least."""
        source = self.source  # once: its thread may close it meanwhile
        return source.min_interval if source else 0.0

    def watch(self, now: float) -> None:
        """Say once that the source hangs; called by the threads of its neighbours."""
        since = self.busy_since
        if since is not None and not self._hung and now - since > self._patience():
            self._hung = True
            _LOG.warning(
                "Source %s has not answered for %.0f s; its numbers are missing until it does", self.name, now - since
            )

    def _patience(self) -> float:
        return PERIODS * max(self.period(), SHORTEST_PERIOD)

    def health(self, now: float) -> Problem | None:
        """What is wrong with the source now."""
        since = self.busy_since
        if since is not None and now - since > self._patience():
            return Problem(self.name, f"it has not answered for {now - since:.0f} s", "its driver or file system hangs")
        last = self._often.time
        idle = self.problem is None and since is None
        if idle and last is not None and now - last > PERIODS * self.period() and not self.paused(now):
            return Problem(self.name, f"its newest reading is {now - last:.0f} s old", "the machine may be overloaded")
        return self.problem

    def paused(self, now: float) -> bool:
        """Whether nobody has asked for so long that the source is not read."""
        return self._rhythm.paused(now)

    def values(self, since: Ends | None, now: float) -> tuple[list[tuple[float, Values]], Ends]:
        """The values of both reads since the windows before, each with its time, and where these windows ended.

        Readings older than three of their own periods are left out.
        """
        found: list[tuple[float, Values]] = []
        ends = list(since or (0.0, 0.0))
        young = now - PERIODS * self.period()
        for at, track in enumerate((self._often, self._seldom)):
            answer = track.window(since[at] if since else None, self._interval)
            if answer is not None and (answer[1] >= young or self._counts(now - answer[1], track, now)):
                ends[at] = answer[1]
                found.append((answer[1], answer[0]))
        return found, (ends[0], ends[1])

    def _counts(self, age: float, track: SeriesAggregator, now: float) -> bool:
        """Whether a reading that is older than three periods is still what is known, since it is made more seldom."""
        source = self.source  # once: its thread may close it meanwhile
        seldom = max(source.slow_interval if source else 0.0, self._rhythm.longest(now))
        return track is self._seldom and age <= PERIODS * seldom

    def window(self, since: Ends | None, now: float) -> tuple[list[tuple[Series, Number]], Ends]:
        """The same as :meth:`values`, series by series."""
        found, ends = self.values(since, now)
        rows = [row for _, values in found for row in values.items()]
        return [(Series(metric, attributes), value) for metric, points in rows for value, attributes in points], ends
