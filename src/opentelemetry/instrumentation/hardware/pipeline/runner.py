"""SourceRunner: opens one source, reads it when it is due, and opens it again after a failure.

A driver that hangs, raises or returns invalid data affects only its own source. A source that may block has a
thread of its own (:mod:`.thread`). :mod:`.pace` decides what is due; the rest is a machine of four states::

    STARTING --Unavailable--> ABSENT       for good: it is not on this machine
    STARTING or UP --exception--> FAILED   closed; Unavailable as well, if it was open once
    STARTING or FAILED --reading--> UP     opened, in FAILED after a backoff
    UP --is_outdated--> UP                 closed and opened again, without an interruption of its values

A reading that does not end is no state: it is seen by the threads of other sources (:meth:`warn_if_hanging`).
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
from opentelemetry.instrumentation.hardware.pipeline.pace import Pace, Part
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.spans.ledger import Ledger

_LOG = logger(__name__)

RETRY = (1.0, 60.0)  # first and longest delay in seconds until a failed source is opened again

_WARNING_PERIOD = 600.0  # least seconds between two warnings that the metrics of a source are missing


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
        schedule: When collections are expected.
        counters: The counters to continue.
        from_start: Counters count from their first reading.
        clock: Monotonic seconds.
        demand: When spans need readings; None if no ledger is kept for them.
        only_spans: Whether nothing else needs readings. Then its absence is not worth a line at INFO: no metrics are
            missing, and each forked child would log it again.
        cpu_clock: CPU seconds of the thread that reads.

    Attributes:
        ledger: What it measured, for spans.
        source: The open source.
        cpu_time: CPU seconds that its thread used for it.
        pace: What it reads, and when.
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
        self.busy_since: float | None = None
        self.source: Source | None = None
        self.is_outdated = False
        self.pace = Pace(partial(Aggregator, counters, from_start), schedule, clock, demand, only_spans)
        self._demand = demand or Demand()
        self._absent_level = logging.DEBUG if only_spans else logging.INFO
        self._make = make
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._was_open = False
        self._hangs = False
        self._warned = -inf  # when there was a warning that its metrics are missing
        self._interruptions = 0  # since then
        self._backoff = Backoff(*RETRY)

    # -- what its thread calls

    def next_reading(self, now: float) -> float:
        """Return when the next reading is due."""
        if self.state is State.ABSENT:
            return inf
        if self.state is State.FAILED:
            return max(self._backoff.retry_at, self.pace.rests_until)
        due = self.pace.next(now)
        return max(now, self.pace.rests_until) if self.source is None or self.is_outdated else due

    def read(self, everything: bool = False) -> None:
        """Open the source if it is closed, and read what is due, or everything. Never raises."""
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
            self.pace.rest_after(self._cpu_clock() - cpu_time)

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
            _LOG.log(self._absent_level, "Source %s", self.problem)
            return False
        self._was_open = True
        self.pace.learn(source.readings())
        return True

    def _read(self, source: Source, everything: bool) -> None:
        now = self.busy_since = self._clock()  # not when it was opened: what hangs expires when it counts as hung
        if any(self.pace.is_expired(part, now) for part in self.pace.exported):  # a pause
            self._interrupt()
        due = self.pace.due(now, everything)
        first: list[Point] | None = None
        for part in due:
            if part.reading.for_spans:
                continue
            part.last, begin = now, self._clock()
            points = [*part.reading.read()]
            part.errors = part.values.add(begin, points)
            if part is self.pace.parts[0]:
                first = points
        if first is not None:
            self.pace.duration = self._clock() - now
        self._read_for_spans(source, [part for part in due if part.reading.for_spans], first)
        self.pace.learn(source.readings())
        errors = [error for part in self.pace.parts for error in part.errors] + source.errors
        if errors:
            more = f", and {len(errors) - 1} more of the kind" if len(errors) > 1 else ""
            self._warn(Problem(self.name, redacted(errors[0] + more)))
        elif self.problem is not None or self._hangs:
            _LOG.info("Source %s has recovered", self.name)
            self.problem = None
        self.state, self._hangs = State.UP, False
        self._backoff.succeed()

    def _read_for_spans(self, source: Source, parts: Sequence[Part], first: Iterable[Point] | None) -> None:
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
            self.pace.span_duration = self._clock() - now
            if self.reads_for_each_span:
                self._demand.ready = self._demand.rested(now, self.pace.span_duration)
        elif first is not None and not any(part.reading.for_spans for part in self.pace.parts):
            ledger.add(first)
        ledger.use(source.used_devices, source.is_use_known)

    @property
    def poll(self) -> float:
        """Return the seconds after which its thread must look whether a span is open; infinity if it is woken."""
        return self._demand.poll if self.pace.follows_spans else inf

    @property
    def reads_for_each_span(self) -> bool:
        """Whether the start of a span causes a reading: of devices that the program uses, and that change quickly."""
        source = self.source
        return source is not None and self.pace.follows_spans and bool(source.used_devices)

    def _interrupt(self) -> None:
        for part in self.pace.parts:
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
        return tuple(metric for part in self.pace.exported for metric in part.values.metrics)

    def fresh(self, now: float) -> list[tuple[Aggregator, Published]]:
        """Return the newest readings, without those that have expired."""
        return [
            (part.values, published)
            for part in self.pace.exported
            if (published := part.values.published) is not None and not self.pace.is_expired(part, now)
        ]

    def is_fresh(self, now: float) -> bool:
        """Return whether the first of the readings was made, and has not expired."""
        return any(part.values.published and not self.pace.is_expired(part, now) for part in self.pace.parts[:1])

    def points(self, now: float) -> list[tuple[Series, Number]]:
        """Return the value of every series since the first reading."""
        rows = chain.from_iterable(published.window(None).items() for _, published in self.fresh(now))
        return [(Series(metric, attributes), value) for metric, points in rows for value, attributes in points]

    def _hangs_since(self, now: float) -> float | None:
        """Return when the reading began that has not ended within three periods; None if there is none."""
        since = self.busy_since
        return since if since is not None and now - since > self.pace.patience() else None

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
        for first in self.pace.parts[:1]:
            if self.problem is None and self.busy_since is None and self.pace.is_expired(first, now):
                reason = f"its newest reading is {now - first.last:.0f} s old"
                return Problem(self.name, reason, "the machine may be overloaded")
        return self.problem
