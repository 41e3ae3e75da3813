"""SourceRunner: opens one source, reads it when it is due, and opens it again after a failure.

A driver that hangs, raises or returns invalid data affects only its own source. A source that may block has a
thread of its own (:mod:`.thread`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import chain
from math import inf

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Metric, Number, Point, Problem, Series, Unavailable
from opentelemetry.instrumentation.hardware.pipeline.aggregate import Aggregator, Published
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.redaction import redacted
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.spans.ledger import Demand, Ledger

_LOG = logging.getLogger(__name__)

PERIODS = 3
"""Number of its periods after which a reading expires, and after which a source that is being read counts as hung."""

SHORTEST_PERIOD = 1.0
"""Seconds. For expiry, a shorter period counts as this: a busy machine delays threads by tenths of a second."""

IDLE_PERIOD = 30.0
"""Seconds between readings while no reader has collected for a long time, so that a scrape now and then is complete."""

RETRY = (1.0, 60.0)
"""First and longest delay in seconds until a failed source is opened again."""


_WARNING_PERIOD = 600.0
"""Least seconds between two warnings that the metrics of a source are missing."""


_LOOKS = 30
"""Readings at which spans look for the devices that the program uses, before only slow readings do."""

_LOOK_INTERVAL = 2.0
"""Seconds between them, after the first ones."""

_FIRST_LOOK = 0.25
"""Seconds between the first two; each of the next pauses is longer by as much."""

_WHOLE = 1.0
"""Seconds between two readings of all that spans need. Those in between are of what changes quickly."""

_LONG = 0.05
"""CPU seconds of each of two consecutive readings after which the source rests."""

_LONGEST = 0.1
"""CPU seconds of one reading after which the source rests: a page or an output that is much too long."""

_REST = 60
"""Length of the rest, as a multiple of the CPU seconds: a source that floods takes 1.7 % of a core."""

_FIRST_REST = 10.0
"""Maximum seconds of the rest after a single long reading, which may contain a garbage collection of the program."""


class State(Enum):
    """The condition of a source."""

    STARTING = "starting"
    UP = "up"
    ABSENT = "absent"
    FAILED = "failed"


class SourceRunner:
    """One source and what was read from it.

    Args:
        make: Creates the source. Called each time that it is opened.
        interval: Seconds between readings; 0: only before collections.
        schedule: When collections are expected.
        counters: The counters to continue.
        from_start: Counters count from their first reading.
        clock: Monotonic seconds.
        demand: When spans need readings; None if no ledger is kept for them.
        only_spans: Whether nothing else needs readings.
        cpu_clock: CPU seconds of the thread that reads.

    Attributes:
        ledger: What it measured, for spans.
        source: The open source.
        cpu_time: CPU seconds that its thread used for it.
        duration: Seconds that the newest reading took.
        is_outdated: Whether to open the source again at the next reading, without an interruption of its values.
        busy_since: When the opening or the reading that is in progress began.
        cheap: What :meth:`Source.read` returned.
        counters: What :meth:`Source.read_counters` returned.
        slow: What :meth:`Source.read_slow` returned.
    """

    def __init__(
        self,
        make: Callable[[], Source],
        name: str,
        interval: float,
        schedule: CollectionSchedule,
        counters: CounterStore,
        from_start: bool = False,
        clock: Callable[[], float] = time.monotonic,
        demand: Demand | None = None,
        only_spans: bool = False,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self.name = name
        self.ledger = None if demand is None else Ledger(demand.room)
        self.state = State.STARTING
        self.problem: Problem | None = None
        self.cpu_time = 0.0
        self.duration: float | None = None
        self.busy_since: float | None = None
        self.source: Source | None = None
        self._demand = demand or Demand()
        self._only_spans = only_spans
        self._span_interval = 0.0
        self._read_for_spans = self._read_whole = -inf  # when the ledger got its newest reading
        self._span_duration = 0.0  # of that reading
        self._looks = 0  # for devices in use
        self._looked = -inf
        self._make = make
        self._interval = interval
        self._schedule = schedule
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._was_open = False
        self.is_outdated = False
        self._hangs = False
        self._warned = -inf  # when there was a warning that its metrics are missing
        self._interruptions = 0  # since then
        self._backoff = Backoff(*RETRY)
        self._rests_until = -inf
        self._last_cpu_time = 0.0  # of the last reading
        self._due = -inf  # when its thread makes the next reading
        self._counted = -inf  # when the newest reading with counters began
        # What the source wants, as of its last reading: other threads use it while the source may be closed.
        self._min_interval = self._slow_interval = 0.0
        self._sample_before_collection = True
        self.cheap, self.counters, self.slow = (Aggregator(counters, from_start) for _ in range(3))

    # -- what its thread calls

    def next_reading(self, now: float) -> float:
        """Return when the next reading is due."""
        due = max(self._next_reading(now), self._rests_until)
        self._due = max(due, min(now, self._due))  # a thread that is woken early is not late
        return due

    def _next_reading(self, now: float) -> float:
        if self.state is State.ABSENT:
            return inf
        if self.state is State.FAILED:
            return self._backoff.retry_at
        due = self._next_sample(now)
        if self._span_interval:
            due = min(due, self._demand.due(self._span_interval, self._read_for_spans, self._span_duration))
        return due

    def _is_sample_due(self, now: float, early: float) -> bool:
        """Whether the reading that is due is a usual one, and not one for spans."""
        return self.state is not State.UP or self._next_sample(now) - now <= early

    def _next_sample(self, now: float) -> float:
        newest = self.cheap.published
        if newest is None or self.is_outdated:
            return now
        idle = newest.time + max(self._interval, self._min_interval, IDLE_PERIOD)
        if self._schedule.quiet(now):
            return idle
        if self._only_spans and self._span_interval:
            return newest.time + self._slow_interval
        sample = newest.time + self._interval if self._interval else inf
        due = self._next_collection() - self._lead() if self.sample_before_collection() else inf
        first = min(sample, due)
        return idle if first == inf else max(first, newest.time + self._min_interval)

    def sample_before_collection(self) -> bool:
        """Whether there is a reading just before each collection."""
        return not self._interval or self._sample_before_collection

    def _lead(self) -> float:
        """Return the seconds between a reading and its collection: short, but enough to complete it."""
        return min(0.05 + 3 * (self.duration or 0.0), 0.25 * self._schedule.shortest(self._clock()))

    def read(self, slow: bool = False, early: float | None = None) -> None:
        """Open the source if it is closed, and read it once. Never raises.

        Args:
            slow: Read everything, even if it is not due.
            early: If the usual reading is not due within so many seconds, read only what spans need. None: read it
                anyway.
        """
        self.busy_since = self._clock()
        cpu_time = self._cpu_clock()
        try:
            if not (slow or early is None or self._is_sample_due(self.busy_since, early)):
                self._read_spans(self.source)
                return
            if self.is_outdated:
                self._close_source()
            if self.source is None and self._open():
                cpu_time = self._cpu_clock()  # opening may import modules, which happens once
            if self.source is not None:
                self._read(slow)
        except Unavailable as error:
            self._fail(error.reason)
        except DriverError as error:
            self._fail(str(error))
        except (Exception, SystemExit) as error:  # SystemExit would end the thread without a message
            self._fail(f"{type(error).__name__}: {error}")
        finally:
            self.busy_since = None
            cpu_time = self._cpu_clock() - cpu_time
            if min(cpu_time, self._last_cpu_time) > _LONG:
                self._rests_until = self._clock() + _REST * cpu_time
            elif cpu_time > _LONGEST:
                self._rests_until = self._clock() + min(_REST * cpu_time, _FIRST_REST)
            self._last_cpu_time = cpu_time

    def _open(self) -> bool:
        """Open the source. Returns False if it is not available on this machine."""
        source = self.source = self._make()  # kept before it is opened, so that a failed open() is closed too
        try:
            source.open()
        except Unavailable as error:
            if self._was_open:  # the device was there, and may come back
                raise
            self.close()
            self.problem = Problem(self.name, redacted(error.reason), error.fix)
            self.state = State.ABSENT
            _LOG.info("Source %s: %s%s", self.name, self.problem.reason, f" ({error.fix})" if error.fix else "")
            return False
        self._was_open = True
        self._learn(source)
        return True

    def _learn(self, source: Source) -> None:
        """Copy the settings and metrics of the source. Invalid values raise here, in its own thread."""
        self._min_interval, self._slow_interval = float(source.min_interval), float(source.slow_interval)
        self._sample_before_collection = bool(source.sample_before_collection)
        self._span_interval = float(source.span_interval) if self.ledger is not None else 0.0

    def _read(self, slow: bool) -> None:
        source, now = self.source, self._clock()
        assert source is not None
        self.busy_since = now  # not when it was opened: a reading that hangs expires when it counts as hung
        newest = self.cheap.published
        if newest is not None and now > self._expires(newest):  # a pause
            self._interrupt()
        points = [*source.read()]
        errors = self.cheap.add(now, points) + source.errors
        self._learn(source)
        self._read_spans(source, points)
        if slow or self._is_slow_due(self.counters, now) or self._is_before_collection(now):
            errors += self.counters.add(self._clock(), source.read_counters())
            self._counted = now
        if slow or self._is_slow_due(self.slow, now):
            errors += self.slow.add(self._clock(), source.read_slow())
            if self.ledger is not None:
                self.ledger.use(source.used_devices, source.is_use_known)
        self._learn(source)
        self.duration = self._clock() - now
        if errors:
            more = f", and {len(errors) - 1} more of the kind" if len(errors) > 1 else ""
            self._warn(Problem(self.name, redacted(errors[0] + more)))
        elif self.problem is not None or self._hangs:
            _LOG.info("Source %s has recovered", self.name)
            self.problem = None
        self.state, self._hangs = State.UP, False
        self._backoff.succeed()

    def _read_spans(self, source: Source | None, points: Iterable[Point] = ()) -> None:
        """Add a reading to the ledger: of what spans need, or the usual points if the source has no other."""
        ledger, now = self.ledger, self._clock()
        if source is None or ledger is None or not self._demand.is_tracing:
            return
        if not self._span_interval:
            ledger.add(points)
        else:
            pause = min(_LOOK_INTERVAL, _FIRST_LOOK * self._looks)
            if self._looks < _LOOKS and not source.used_devices and now - self._looked >= pause:
                self._looked = now
                self._looks += 1
                source.look_for_use()
            is_whole = now - self._read_whole >= _WHOLE - 0.01
            self._read_for_spans = now
            self._read_whole = now if is_whole else self._read_whole
            try:
                ledger.add(source.read_for_spans(quickly=not is_whole), source.updated)
            except Exception:  # such as the end of the process; the usual readings decide whether the source has failed
                _LOG.debug("Source %s cannot be read for spans", self.name, exc_info=True)
                ledger.interrupt()
            self._span_duration = self._clock() - now
            if self.reads_for_each_span:
                self._demand.ready = self._demand.rested(now, self._span_duration)
        ledger.use(source.used_devices, source.is_use_known)

    @property
    def poll(self) -> float:
        """Return the seconds after which its thread must look whether a span is open; infinity if it is woken."""
        return self._demand.poll if 0.0 < self._span_interval < _WHOLE else inf

    @property
    def reads_for_each_span(self) -> bool:
        """Whether the start of a span causes a reading: of devices that the program uses, and that change quickly."""
        source = self.source
        return source is not None and 0.0 < self._span_interval < _WHOLE and bool(source.used_devices)

    def _is_slow_due(self, aggregator: Aggregator, now: float) -> bool:
        last = aggregator.published
        return last is None or now - last.time >= self._slow_interval - 0.1

    def _is_before_collection(self, now: float) -> bool:
        """Whether the next collection is expected before the next two samples, or at about the same time.

        Two, because a collection may come earlier than expected, for example if the export before it took less time.
        """
        return not self._interval or self._next_collection() - now <= 2 * (self.period() + self._lead())

    def _next_collection(self) -> float:
        """When the first collection is expected for which there are no counters yet."""
        return self._schedule.due(self._counted + 2 * self._lead())  # counters within two leads of it are new enough

    def _interrupt(self) -> None:
        for aggregator in (self.cheap, self.counters, self.slow):
            aggregator.interrupt()
        if self.ledger is not None:
            self.ledger.interrupt()

    def _fail(self, reason: str) -> None:
        """Close the source; it is opened again with backoff."""
        self.close()
        self._backoff.fail(self._clock())
        self._warn(Problem(self.name, redacted(reason)))
        self.state = State.FAILED

    def _warn(self, problem: Problem) -> None:
        if self.problem is None and not self._hangs:  # else there was a warning already
            self._log_interruption(f": {problem.reason}; its metrics are missing until it recovers", self._clock())
        self.problem = problem

    def _log_interruption(self, text: str, now: float) -> None:
        """Log why its metrics are missing: as a warning once in ten minutes, with the number since the last one."""
        self._interruptions += 1
        if now - self._warned < _WARNING_PERIOD:
            _LOG.info("Source %s%s", self.name, text)
            return
        more = f" ({self._interruptions} interruptions since the last warning)" if self._interruptions > 1 else ""
        _LOG.warning("Source %s%s%s", self.name, text, more)
        self._warned, self._interruptions = now, 0

    def close(self) -> None:
        """Close the source. The next :meth:`read` opens it again."""
        self._interrupt()
        self._close_source()

    def _close_source(self) -> None:
        source, self.source = self.source, None
        if source is not None:
            try:
                source.close()
            except Exception:
                _LOG.debug("Source %s did not close cleanly", self.name, exc_info=True)

    def abandon(self) -> None:
        """In a forked child: close the descriptors that were inherited."""
        if self.source is not None:
            self.source.context.drivers.close()

    # -- what any thread may call; no lock, no wait

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics that the source has reported since it was opened."""
        return self.cheap.metrics + self.counters.metrics + self.slow.metrics

    def fresh(self, now: float) -> list[tuple[Aggregator, Published]]:
        """Return the newest readings, without those that have expired."""
        readings = []
        slow = self._slow_interval
        for aggregator, least in ((self.cheap, 0.0), (self.counters, slow), (self.slow, slow)):
            published = aggregator.published
            if published is not None and now <= self._expires(published, least):
                readings.append((aggregator, published))
        return readings

    def points(self, now: float) -> list[tuple[Series, Number]]:
        """Return the value of every series since the first reading."""
        rows = chain.from_iterable(published.window(None).items() for _, published in self.fresh(now))
        return [(Series(metric, attributes), value) for metric, points in rows for value, attributes in points]

    def period(self) -> float:
        """Seconds between two readings."""
        return max(self._interval or self._schedule.shortest(self._clock()), self._min_interval)

    def _expires(self, reading: Published, least: float = 0.0) -> float:
        """Return when a reading expires: after three of its periods, or if the next one is late by two."""
        late = self._due + (PERIODS - 1) * max(self.period(), SHORTEST_PERIOD)
        return max(reading.time + self._expiry(least), late)

    def _expiry(self, least: float = 0.0) -> float:
        """Return three periods in seconds. A reading that does not end by then counts as hung."""
        return PERIODS * max(self.period(), least, SHORTEST_PERIOD)

    def warn_if_hanging(self, now: float) -> None:
        """Log once that the source hangs. Called by the threads of other sources."""
        since = self.busy_since
        if since is not None and not self._hangs and now - since > self._expiry():
            self._hangs = True
            self._log_interruption(
                f" has not responded for {now - since:.0f} s; its metrics are missing until it does", now
            )

    def health(self, now: float) -> Problem | None:
        """Return the current problem of the source, or None."""
        since = self.busy_since
        if since is not None and now - since > self._expiry():
            return Problem(
                self.name, f"it has not responded for {now - since:.0f} s", "its driver or file system hangs"
            )
        newest = self.cheap.published
        if self.problem is None and since is None and newest is not None and now > self._expires(newest):
            return Problem(
                self.name, f"its newest reading is {now - newest.time:.0f} s old", "the machine may be overloaded"
            )
        return self.problem
