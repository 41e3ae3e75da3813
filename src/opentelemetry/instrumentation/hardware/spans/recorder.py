"""SpanRecorder: adds what the hardware did while a span ran to its attributes, and its joules to a metric.

They are set in ``end()`` of the span: ``on_end`` cannot change it. No driver is called in the threads of the program.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.trace import NoOpTracerProvider, SpanKind, get_current_span

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware import sdk
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.spans.attributes import measured, rounded, token_count
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.spans.filter import SpanFilter
from opentelemetry.instrumentation.hardware.spans.hook import TraceHook
from opentelemetry.instrumentation.hardware.spans.open_span import OpenSpan, forget
from opentelemetry.instrumentation.hardware.spans.operations import EnergyByOperation, Operation
from opentelemetry.instrumentation.hardware.spans.readings import Readings, SessionReadings
from opentelemetry.instrumentation.hardware.spans.shares import Shares

_LOG = logger(__name__)

_ENERGY: Final = c.SPAN_ENERGY.name
_SHARE: Final = c.SPAN_SHARE_ENERGY.name

_LATE: Final = 100_000_000  # nanoseconds from the start to the creation of a span that is made after the fact

_PATIENCE: Final = 1.0  # seconds for which the first spans of a forked child wait for its session

_, _SPAN_ID, _IS_REMOTE = range(3)  # places in a SpanContext, which is a tuple; its properties are calls of functions


class SpanRecorder:
    """Measures spans with the readings of a session.

    Attributes:
        shares: The shares of the spans.
    """

    def __init__(self) -> None:
        self.shares: Shares | None = None
        self._session: Readings | None = None
        self._pid = 0  # of the process with this session
        self._starting: dict[int, threading.Lock] = {}  # by PID, because a fork copies a lock that is held
        self._is_ready = False  # the session reads for spans
        self._dividing: Shares | None = None  # the shares, if there are accelerators
        self._hook = TraceHook(self._provider_changed, self.begin, self._begin_dropped)
        self._has_failed = False
        self._own: Session | None = None  # that only measures spans
        self._metric: EnergyByOperation | None = None

    def open(self, session: Readings, metric: EnergyByOperation | None = None) -> None:
        """Measure spans with a session.

        Args:
            session: The session.
            metric: Where their energy is recorded by operation. In a forked child, it stays the same.
        """
        self._filter = SpanFilter(session.config)
        self._close_own()
        self._use(session)
        if metric is not None:
            self._metric = metric

    def start(self, config: Config) -> None:
        """Measure spans with a session that is for nothing else. Logs a message if the process may have no threads."""
        session = Session(config, demand=Demand(), only_spans=True)
        readings = SessionReadings(session)
        self.open(readings)
        readings.expect_spans()
        self._own = session
        session.on_reading = self.advance
        try:
            session.start()
        except RuntimeError as error:  # the limit of threads or memory
            _LOG.error("Spans are not measured: %s", error)
            self.close()

    def _use(self, session: Readings) -> None:
        method = session.config.spans_shares or "equal"
        self.shares = None if method == "off" else Shares(lambda: session.span_rows, method == "tokens")
        self._session, self._pid, self._is_ready = session, os.getpid(), False
        self._dividing = self.shares if session.has_accelerators else None

    def _close_own(self) -> None:
        own, self._own = self._own, None
        if own is not None and own.pid == os.getpid():
            own.close()

    def watch(self, only_ends: bool = False) -> None:
        """Measure the spans of every TracerProvider of the SDK; or only those that are given to :meth:`begin`."""
        self._hook.install(only_ends)
        if not only_ends:
            self._check_global()

    def _check_global(self) -> None:
        """Expect spans if there is a global TracerProvider. It may have been made before."""
        session = self._session
        if session is not None and not isinstance(sdk.tracer_provider(), NoOpTracerProvider | None):
            session.expect_spans()

    def _provider_changed(self, provider: TracerProvider) -> None:
        """Expect spans of a provider, and let the session read if they can be exported."""
        session = self._session
        try:
            if session is not None:
                session.expect_spans()
                if not session.has_started and self._pid == os.getpid() and sdk.exports_spans(provider):
                    session.start()
        except Exception as error:
            self.fail(error)

    def advance(self) -> None:
        """Take over the energy that has been read. Called by our threads after their readings."""
        session = self._session
        if session is None:
            return
        session.advance()
        if not session.demand.is_tracing:
            self._check_global()
        self._dividing = self.shares if session.has_accelerators else None
        if self._dividing is not None:
            self._dividing.advance()

    def close(self) -> None:
        """Measure no more spans."""
        self._hook.remove()
        self._session = self.shares = self._dividing = self._metric = None
        self._is_ready = False
        self._close_own()

    # -- the threads of the program

    def begin(self, span: Span, start: int | None) -> None:
        """Begin to measure a recorded span. Never raises, never waits.

        Args:
            span: The span.
            start: When it started, in nanoseconds since the epoch; None if it starts now.
        """
        try:
            now = time.time_ns()  # first, because the start of a session takes a while
            if not ((self._is_ready and self._pid == os.getpid()) or self._prepare(span)):
                return
            session, shares, key = self._session, self._dividing, id(span)
            if session is None or key in OpenSpan.by_id:  # another recorder measures it
                return
            is_late = start is not None and now - start >= _LATE
            parent: Any = span.parent
            has_share = not (shares is None or is_late) and (self._filter.accepts_all or self._filter.accepts(span))
            share_id = span.context[_SPAN_ID] if has_share else 0
            opened = OpenSpan(span, forget)
            opened.recorder, opened.key, opened.pid = self, key, self._pid
            opened.parent, opened.share_id, opened.operation = parent, share_id, None
            opened.start = now if start is None else start
            opened.cpu_time = None if is_late else time.process_time()
            OpenSpan.by_id[key] = opened
            if shares is not None and share_id:
                shares.begin(share_id, parent and parent[_SPAN_ID])
            demand, instant = session.demand, time.monotonic()
            demand.open.add(key)
            if instant >= demand.ready and demand.begin(key, instant):
                session.wake_for_spans()
        except Exception as error:
            self.fail(error)

    def _begin_dropped(self, span: Any, name: str, context: Any, kind: SpanKind, given: Any, begin: int | None) -> None:
        """Begin the share of a span that the sampler has dropped, so that it does not go to others."""
        session, shares = self._session, self._dividing
        try:
            if session is None or shares is None or not session.has_started or self._pid != os.getpid():
                return
            now, span_id = time.time_ns(), span.get_span_context().span_id
            parent_id = get_current_span(context).get_span_context().span_id
            is_late = begin is not None and now - begin >= _LATE
            if not is_late and span_id != parent_id:  # else its tracer is disabled
                opened = OpenSpan(span, forget)
                opened.recorder, opened.key, opened.pid, opened.start = self, id(span), self._pid, now
                opened.parent, opened.cpu_time, opened.share_id = None, None, span_id
                opened.operation = name, kind, (given or {}).get(c.REQUEST_MODEL)
                OpenSpan.by_id[opened.key] = opened
                shares.begin(span_id, parent_id or None)
        except Exception as error:
            self.fail(error)

    def _prepare(self, span: Span) -> bool:
        """Let the session read. In a forked child, another one starts at the first span. Returns whether one reads."""
        session = self._session
        if session is None or not (session.has_started or sdk.exports(span)):
            return False
        if self._pid != os.getpid():
            self._start_in_child(session)
            session = self._session
            if session is None or self._pid != os.getpid():
                return False
        if not session.has_started:
            session.start()
        session.expect_spans()
        self._is_ready = session.has_started
        return self._is_ready

    def _start_in_child(self, session: Readings) -> None:
        """Measure the spans of a forked child. Its threads wait for the one that has the first span.

        The wait has an end: what the start calls, such as a log handler, may make a span itself.
        """
        starting = self._starting.setdefault(os.getpid(), threading.Lock())
        if not starting.acquire(timeout=_PATIENCE):
            return
        try:
            if self._pid != os.getpid():
                if session.serves_children:
                    session.demand.join()
                    self._use(session)
                else:
                    self.start(session.config)
        except Exception:
            self._session = None
            raise
        finally:
            starting.release()

    def end(self, span: Any, end_time: int | None, opened: OpenSpan) -> None:
        """Measure a span that ends."""
        session = self._session
        try:
            if session is None or opened.pid != os.getpid():
                return
            demand, share_id = session.demand, opened.share_id
            demand.open.discard(opened.key)
            if not demand.open:
                demand.end(opened.key)
            now, spans, parent, begin = time.time_ns(), self._filter, opened.parent, opened.start
            end = now if end_time is None else end_time
            least = spans.shortest_root if parent is None or parent[_IS_REMOTE] else spans.shortest
            is_long = opened.operation is None and end - begin >= least
            if not (is_long or share_id):
                return
            values: dict[str, float | str] = {}
            if is_long and (spans.accepts_all or spans.accepts(span)):
                cpu_time = None
                if opened.cpu_time is not None and now - end < _LATE:
                    cpu_time = time.process_time() - opened.cpu_time
                values = measured(session.span_rows, begin / 1e9, end / 1e9, cpu_time)
            if share_id:
                values.update(self._end_share(span, share_id, values.get(_ENERGY), opened.operation))
            if values and span.is_recording():  # another thread may have ended it
                free = sdk.free_attributes(span)
                if len(values) == 1 and free != 0:
                    span.set_attribute(*values.popitem())  # takes half of the time
                else:
                    span.set_attributes(dict(islice(values.items(), free)))
        except Exception as error:
            self.fail(error)

    def _end_share(self, span: Any, span_id: int, energy: Any, operation: Operation | None) -> dict[str, float | str]:
        """End the share of a span, and add it to the metric. Returns its attributes, if the span's energy is known."""
        shares, metric = self.shares, self._metric
        if shares is None:
            return {}
        attributes: Mapping[str, Any] = {}
        if operation is None and (shares.by_tokens or metric is not None):
            attributes = span.attributes or {}
        tokens = token_count(attributes) if shares.by_tokens else 0.0
        is_kept = energy is not None or operation is not None
        if energy is None and metric is None:
            shares.forget(span_id, tokens, is_kept)
            return {}
        share = shares.end(span_id, energy, tokens, is_kept)
        if share is not None and metric is not None:  # also 0 J: sum and count give the mean of an operation
            metric.record(share.energy, span, operation or (span.name, span.kind, attributes.get(c.REQUEST_MODEL)))
        if share is None or energy is None:
            return {}
        values: dict[str, float | str] = {_SHARE: rounded(min(energy, share.energy + share.given))}
        if shares.by_tokens:
            values[c.SPAN_SHARE_METHOD.name] = "tokens" if share.is_weighted else "equal"
        return values

    def forget(self, opened: OpenSpan) -> None:
        """Release a span that the program has dropped without an end."""
        session, shares = self._session, self.shares
        if session is None or opened.pid != os.getpid():
            return
        session.demand.end(opened.key)
        if shares is not None and opened.share_id:
            shares.lose(opened.share_id)

    def fail(self, error: Exception) -> None:
        """Log a failure once. It never reaches the program, unless a signal handler of the program has raised it."""
        if _is_of_signal_handler(error):
            raise error
        if not self._has_failed:
            self._has_failed = True
            _LOG.exception("A span could not be measured; further failures are not logged")


def _is_of_signal_handler(error: Exception) -> bool:
    """Whether a signal handler of the program has raised an error, such as Celery's soft time limit, in our code."""
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(each, "__code__", None) or getattr(type(each).__call__, "__code__", None) for each in handlers}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(error.__traceback__))
