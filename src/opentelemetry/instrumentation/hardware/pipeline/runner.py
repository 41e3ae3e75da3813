"""SourceRunner: opens one source, reads it when it is due, and opens it again after a failure.

A driver that hangs, raises or returns invalid data affects only its own source. A source that may block has a
thread of its own (:mod:`.thread`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from functools import partial
from itertools import chain
from math import inf

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Metric, Number, Point, Problem, Series, Unavailable
from opentelemetry.instrumentation.hardware.pipeline.aggregate import Aggregator, Published
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.redaction import redacted
from opentelemetry.instrumentation.hardware.sources import SLOW, Reading, Source
from opentelemetry.instrumentation.hardware.spans.ledger import INTERVAL, Demand, Ledger

_LOG = logging.getLogger(__name__)

# Number of its periods after which a reading expires, and after which a source that is being read counts as hung.
PERIODS = 3

# Seconds. For expiry, a shorter period counts as this: a busy machine delays threads by tenths of a second.
SHORTEST_PERIOD = 1.0

# Seconds between readings while no reader has collected for a long time, so that a scrape now and then is complete.
IDLE_PERIOD = 30.0

RETRY = (1.0, 60.0)  # first and longest delay in seconds until a failed source is opened again


_WARNING_PERIOD = 600.0  # least seconds between two warnings that the metrics of a source are missing


# CPU seconds of each of two consecutive readings after which the source rests. A single one may contain a garbage
# collection of the program.
_LONG = 0.05

_REST = 60  # length of the rest, as a multiple of the CPU seconds: a source that floods takes 1.7 % of a core

_SHORTEST = 0.01  # least seconds between two readings of the same

_EARLY = 0.1  # what is due within this share of its period is read along with what is due now


class State(Enum):
    """The condition of a source."""

    STARTING = "starting"
    UP = "up"
    ABSENT = "absent"
    FAILED = "failed"


class _Part:
    """One of the readings of a source, and what was read so far.

    Attributes:
        reading: As of the last reading. Other threads use it while the source may be closed.
        values: Its values; not used if it is for spans.
        last: When it was read last.
        due: When it is read next.
        errors: What was wrong with its points.
    """

    def __init__(self, reading: Reading, values: Aggregator) -> None:
        self.reading = reading
        self.values = values
        self.last = self.due = -inf
        self.errors: list[str] = []


class SourceRunner:
    """One source and what was read from it.

    Args:
        make: Creates the source. Called each time that it is opened.
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
    """

    def __init__(
        self,
        make: Callable[[], Source],
        name: str,
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
        self.is_outdated = False
        self._demand = demand or Demand()
        self._only_spans = only_spans
        self._make = make
        self._new_values = partial(Aggregator, counters, from_start)
        self._schedule = schedule
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._parts: tuple[_Part, ...] = ()
        self._span_duration = 0.0  # of the last readings for spans
        self._was_open = False
        self._hangs = False
        self._warned = -inf  # when there was a warning that its metrics are missing
        self._interruptions = 0  # since then
        self._backoff = Backoff(*RETRY)
        self._rests_until = -inf
        self._last_cpu_time = 0.0  # of the last reading

    # -- what its thread calls

    def next_reading(self, now: float) -> float:
        """Return when the next reading is due."""
        if self.state is State.ABSENT:
            return inf
        if self.state is State.FAILED:
            return max(self._backoff.retry_at, self._rests_until)
        for part in self._parts:
            due = max(self._due(part, now), self._rests_until)
            part.due = max(due, min(now, part.due))  # a thread that is woken early is not late
        if self.source is None or self.is_outdated:
            return max(now, self._rests_until)
        return min(part.due for part in self._parts)

    def _due(self, part: _Part, now: float) -> float:
        """Return when a part is due, however late that is."""
        last, (_, every, before_collection, apart, for_spans) = part.last, part.reading
        if for_spans:
            return inf if self.ledger is None else self._demand.due(every, last, self._span_duration)
        if part.values.published is None:
            return now
        if self._schedule.quiet(now):
            return last + max(self._period(part), IDLE_PERIOD)
        if self._only_spans:
            return last + max(self._period(part), SLOW)
        due = last + every
        if before_collection:
            lead = self._lead()
            due = min(due, self._schedule.due(last + 2 * lead) - lead)  # what is so new is new enough for a collection
        return max(last + IDLE_PERIOD if due == inf else due, last + apart)

    def _lead(self) -> float:
        """Return the seconds between a reading and its collection: short, but enough to complete it."""
        return min(0.05 + 3 * (self.duration or 0.0), 0.25 * self._schedule.shortest(self._clock()))

    def read(self, everything: bool = False) -> None:
        """Open the source if it is closed, and read what is due. Never raises.

        Args:
            everything: Read also what is not due.
        """
        self.busy_since = self._clock()
        cpu_time = self._cpu_clock()
        try:
            if self.is_outdated:
                self._close_source()
                everything = True
            if self.source is None and self._open():
                cpu_time = self._cpu_clock()  # opening may import modules, which happens once
                everything = True
            if self.source is not None:
                self._read(self.source, everything)
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
        """Copy what the source reads and how often. Invalid values raise here, in its own thread."""
        parts = []
        for number, (read, every, before_collection, apart, for_spans) in enumerate(source.readings()):
            reading = Reading(read, max(float(every), _SHORTEST), before_collection, float(apart), for_spans)
            if number < len(self._parts):
                parts.append(self._parts[number])
                parts[-1].reading = reading
            else:
                parts.append(_Part(reading, self._new_values()))
        self._parts = tuple(parts)

    def _read(self, source: Source, everything: bool) -> None:
        """Read what is due, or will be so soon that one reading does for both."""
        now = self.busy_since = self._clock()  # not when it was opened: what hangs expires when it counts as hung
        if any(self._is_expired(part, now) for part in self._exported()):  # a pause
            self._interrupt()
        due = [
            part
            for part in self._parts
            if self._due(part, now) - now <= (0.0 if part.reading.apart else _EARLY * min(1.0, self._period(part)))
            or (everything and (not part.reading.for_spans or (self._only_spans and self._due(part, now) < inf)))
        ]
        due += [part for part in self._parts if part not in due and self._is_before_collection(part, now, due)]
        exported = [part for part in due if not part.reading.for_spans]
        first: list[Point] | None = None
        for part in exported:
            part.last, begin = now, self._clock()
            points = [*part.reading.read()]
            part.errors = part.values.add(begin, points)
            if part is self._parts[0]:
                first = points
        if first is not None:
            self.duration = self._clock() - now
        self._read_for_spans(source, [part for part in due if part.reading.for_spans], first)
        self._learn(source)
        errors = [error for part in self._parts for error in part.errors] + source.errors
        if errors:
            more = f", and {len(errors) - 1} more of the kind" if len(errors) > 1 else ""
            self._warn(Problem(self.name, redacted(errors[0] + more)))
        elif self.problem is not None or self._hangs:
            _LOG.info("Source %s has recovered", self.name)
            self.problem = None
        self.state, self._hangs = State.UP, False
        self._backoff.succeed()

    def _is_before_collection(self, part: _Part, now: float, due: Sequence[_Part]) -> bool:
        """Whether a part is read along with a sample, because a collection is expected before the next two.

        It may come earlier than expected, for example if the export before it took less time.
        """
        if not part.reading.before_collection or self._parts[0] not in due:
            return False
        return self._schedule.due(part.last + 2 * self._lead()) - now <= 2 * self._period(self._parts[0])

    def _read_for_spans(self, source: Source, parts: Sequence[_Part], first: Iterable[Point] | None) -> None:
        """Add a reading to the ledger: of what spans need, or of the first part if the source has no other."""
        ledger, now = self.ledger, self._clock()
        if ledger is None or not self._demand.is_tracing:
            return
        if parts:
            try:
                points = [point for part in parts for point in part.reading.read()]
                ledger.add(points, source.updated)
            except Exception:  # such as the end of the process; the usual readings decide whether the source has failed
                _LOG.debug("Source %s cannot be read for spans", self.name, exc_info=True)
                ledger.interrupt()
            for part in parts:
                part.last = now
            self._span_duration = self._clock() - now
            if self.reads_for_each_span:
                self._demand.ready = self._demand.rested(now, self._span_duration)
        elif first is not None and not any(part.reading.for_spans for part in self._parts):
            ledger.add(first)
        ledger.use(source.used_devices, source.is_use_known)

    @property
    def poll(self) -> float:
        """Return the seconds after which its thread must look whether a span is open; infinity if it is woken."""
        return self._demand.poll if self._follows_spans() else inf

    @property
    def reads_for_each_span(self) -> bool:
        """Whether the start of a span causes a reading: of devices that the program uses, and that change quickly."""
        source = self.source
        return source is not None and self._follows_spans() and bool(source.used_devices)

    def _follows_spans(self) -> bool:
        return self.ledger is not None and any(
            part.reading.for_spans and part.reading.every <= INTERVAL for part in self._parts
        )

    def _interrupt(self) -> None:
        for part in self._parts:
            part.values.interrupt()
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
        return tuple(metric for part in self._exported() for metric in part.values.metrics)

    def fresh(self, now: float) -> list[tuple[Aggregator, Published]]:
        """Return the newest readings, without those that have expired."""
        return [
            (part.values, published)
            for part in self._exported()
            if (published := part.values.published) is not None and not self._is_expired(part, now)
        ]

    def is_fresh(self, now: float) -> bool:
        """Return whether the first of the readings was made, and has not expired."""
        return any(part.values.published and not self._is_expired(part, now) for part in self._parts[:1])

    def points(self, now: float) -> list[tuple[Series, Number]]:
        """Return the value of every series since the first reading."""
        rows = chain.from_iterable(published.window(None).items() for _, published in self.fresh(now))
        return [(Series(metric, attributes), value) for metric, points in rows for value, attributes in points]

    def _exported(self) -> list[_Part]:
        return [part for part in self._parts if not part.reading.for_spans]

    def period(self) -> float:
        """Return the seconds between two readings."""
        return min((self._period(part) for part in self._exported()), default=SHORTEST_PERIOD)

    def _period(self, part: _Part) -> float:
        _, every, _, apart, _ = part.reading
        return max(self._schedule.shortest(self._clock()) if every == inf else every, apart)

    def _is_expired(self, part: _Part, now: float) -> bool:
        """Whether a reading is older than three of its periods, and the next one is late by two."""
        published, period = part.values.published, max(self._period(part), SHORTEST_PERIOD)
        return published is not None and now > max(published.time + PERIODS * period, part.due + (PERIODS - 1) * period)

    def _hangs_since(self, now: float) -> float | None:
        """Return when the reading began that has not ended within three periods; None if there is none."""
        since = self.busy_since
        return since if since is not None and now - since > PERIODS * max(self.period(), SHORTEST_PERIOD) else None

    def warn_if_hanging(self, now: float) -> None:
        """Log once that the source hangs. Called by the threads of other sources."""
        since = self._hangs_since(now)
        if since is not None and not self._hangs:
            self._hangs = True
            self._log_interruption(
                f" has not responded for {now - since:.0f} s; its metrics are missing until it does", now
            )

    def health(self, now: float) -> Problem | None:
        """Return the current problem of the source, or None."""
        since = self._hangs_since(now)
        if since is not None:
            return Problem(
                self.name, f"it has not responded for {now - since:.0f} s", "its driver or file system hangs"
            )
        for first in self._parts[:1]:
            if self.problem is None and self.busy_since is None and self._is_expired(first, now):
                reason = f"its newest reading is {now - first.last:.0f} s old"
                return Problem(self.name, reason, "the machine may be overloaded")
        return self.problem
