"""Spans: HardwareSpanProcessor adds what the hardware did while a span ran to the attributes of the span.

The attributes are written in ``end()`` of the span, before any processor sees its end. So they reach exporters with
a processor that was registered earlier. The SDK has no public hook for this: in ``on_end``, a span cannot be changed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.parsing import SPAN_FIELDS
from opentelemetry.instrumentation.hardware.pipeline.cuda_events import Begin, CudaEvents
from opentelemetry.instrumentation.hardware.pipeline.ledger import INTERVAL
from opentelemetry.instrumentation.hardware.pipeline.measured import measured
from opentelemetry.instrumentation.hardware.pipeline.rows import HasRows
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.shares import Shares
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system.uwsgi import call_in_workers, forks_later

_LOG = logging.getLogger(__name__)


_ENERGY: Final = c.SPAN_ENERGY.name
_GPU_STREAM_TIME: Final = c.SPAN_GPU_STREAM_TIME.name
_SHARE: Final = c.SPAN_SHARE_ENERGY.name
_SHARE_METHOD: Final = c.SPAN_SHARE_METHOD.name

_LATEST: Final = 100_000_000
"""Nanoseconds between the start of a span and its creation, for a share and for CUDA events."""

_MOST_NAMES: Final = 1000
"""Names of spans for which the decision of the filter is kept."""


class Measurements(Protocol):
    """What spans need of a session, of this process or of its agent.

    Attributes:
        config: The settings.
        ledgers: What the sources measured.
        shares: The shares of spans, if they are wanted.
    """

    config: Config
    shares: Shares | None

    @property
    def ledgers(self) -> Sequence[HasRows]:
        """Return what the sources measured."""

    def note_span(self) -> None:
        """Record that a span began. No lock, no wait."""


class HardwareSpanProcessor(SpanProcessor):
    """Adds energy, busy time, peak memory and throttling to spans.

    ``opentelemetry-instrument`` adds one to the global TracerProvider. By code::

        provider.add_span_processor(HardwareSpanProcessor())

    It may come before or after the processors that export. Spans that began before it was added, and spans that are
    not recorded, are not changed. The values are those of the devices that this process and its descendants use, as a
    whole: what other programs did on them at the same time is included. The names are in docs/spans.md.

    Args:
        session: The session with the ledgers; by default a separate one, which exports no metrics.
        settings: As in :class:`~opentelemetry.instrumentation.hardware.Config`.
    """

    def __init__(self, session: Measurements | None = None, **settings: Any) -> None:
        self._own: Session | None = None
        self._failed = False
        self.session = session
        if session is None and forks_later():
            call_in_workers(partial(self._start, settings))
        elif session is None:
            self._start(settings)

    def _start(self, settings: Mapping[str, Any]) -> None:
        session = Session(Config.read(settings), spans=True)
        try:
            session.start()
        except RuntimeError as error:  # the limit of threads or memory
            _LOG.error("Spans are not measured: %s", error)
            session.close()
            return
        self.session = self._own = session

    @property
    def session(self) -> Measurements | None:
        """The session with the ledgers. Without one, spans are not changed."""
        return self._session

    @session.setter
    def session(self, session: Measurements | None) -> None:
        self._session = session
        if session is not None:
            self._filter = SpanFilter(session.config)
            self._cuda = CudaEvents() if session.config.spans_cuda_events == "on" else None

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Replace the ``end`` of a span."""
        del parent_context
        session = self._session
        try:
            # Another of these processors may have replaced it. vars() would make all attributes of the span slower.
            if session is not None and type(span.end) is not partial:
                session.note_span()
                span.end = partial(self._end, span)  # type: ignore[method-assign]
                if session.shares is not None or self._cuda is not None:
                    self._begin(span, session.shares)
        except Exception:
            self._fail()

    def _begin(self, span: Span, shares: Shares | None) -> None:
        """Begin what needs the call that starts a span. One that is made after the fact has none of it."""
        begin = span.start_time
        if begin is None or time.time_ns() - begin >= _LATEST or not self._filter.accepts(span):
            return
        if shares is not None:
            shares.begin(span, span.get_span_context().span_id, span.parent.span_id if span.parent else None)
        event = None if self._cuda is None else self._cuda.begin()
        if event is not None:
            span.end = partial(self._end, span, event=event)  # type: ignore[method-assign]

    def _end(self, span: Span, end_time: int | None = None, event: Begin | None = None) -> None:
        """End a span in place of its own method."""
        try:  # noqa: SIM105 - suppress() takes half a microsecond
            del span.end
        except AttributeError:  # another thread ends it as well
            pass
        try:
            self._measure(span, end_time, event)
        except Exception:
            self._fail()
        finally:  # also after Ctrl-C while CUDA works
            span.end(end_time)

    def _fail(self) -> None:
        if not self._failed:
            self._failed = True
            _LOG.exception("A span could not be measured; further failures are not logged")

    def _measure(self, span: Span, end_time: int | None, event: Begin | None) -> None:
        session, begin = self._session, span.start_time
        if session is None or begin is None:
            return
        stream_time = None if event is None or self._cuda is None else self._cuda.end(event)
        end = time.time_ns() if end_time is None else end_time
        attributes: dict[str, Any] = {}
        if end - begin >= self._filter.min_duration and self._filter.accepts(span):
            attributes = measured(session.ledgers, begin / 1e9, end / 1e9)
        if stream_time is not None and end - begin >= self._filter.shortest:
            attributes[_GPU_STREAM_TIME] = stream_time
        if session.shares is not None:
            _add_share(attributes, span, session.shares, session.config.spans_shares == "tokens")
        if attributes:
            _set_attributes(span, attributes)

    def on_end(self, span: ReadableSpan) -> None:
        """Do nothing: the span was changed before its end."""

    def shutdown(self) -> None:
        """Stop reading, if this processor started it."""
        if self._own is not None:
            self._own.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return True: there is nothing to flush."""
        del timeout_millis
        return True


def _add_share(attributes: dict[str, Any], span: Span, shares: Shares, by_tokens: bool) -> None:
    """End the share of a span, and add it to its attributes if it is measured; else its parent gets the share."""
    tokens = _tokens(span.attributes or {}) if by_tokens else 0.0
    share = shares.end(span.get_span_context().span_id, tokens, _ENERGY in attributes)
    if share is not None and _ENERGY in attributes:
        attributes[_SHARE] = share.energy
        attributes[_SHARE_METHOD] = "tokens" if share.is_weighted else "equal"


def _tokens(attributes: Mapping[str, Any]) -> float:
    """Return the number of tokens that a span processed; 0 if it is unknown."""
    counts = [next((attributes[name] for name in names if name in attributes), 0) for names in c.TOKEN_COUNTS]
    return float(sum(count for count in counts if isinstance(count, (int, float)) and count > 0))


def _set_attributes(span: Span, attributes: dict[str, Any]) -> None:
    """Set attributes without validation, which takes longer than all the rest. They are valid: strings and numbers.

    What exceeds the limit of the span is dropped; the public method would drop attributes of the program, and log a
    warning for each. If the SDK has changed, the public method is used. The lock is that of the public method. Another
    thread may end the span; then exporters read the attributes, and they must not change any more.
    """
    try:
        bounded: Any = span._attributes
        with span._lock:
            if span._end_time is not None:
                return
            inner, most = bounded._dict, bounded.maxlen
            if most is not None and len(inner) + len(attributes) > most:
                room = most - len(inner)
                bounded.dropped += len(attributes) - room
                attributes = dict(islice(attributes.items(), room))
            inner.update(attributes)
    except AttributeError:
        span.set_attributes(attributes)


class SpanFilter:
    """Which spans are measured.

    Args:
        config: The settings ``SPANS_MIN_DURATION`` and ``SPANS_FILTER``.

    Attributes:
        shortest: Nanoseconds of the shortest span that gets attributes.
        min_duration: Nanoseconds of the shortest one for which readings are close enough.
    """

    def __init__(self, config: Config) -> None:
        self.shortest = int(1e9 * (config.spans_min_duration or 0.0))
        self.min_duration = max(self.shortest, int(1e9 * INTERVAL))
        self._rules = [_rule(word) for word in config.spans_filter or ()]
        self._known: dict[tuple[str, str, str], bool] = {}

    def accepts(self, span: Span) -> bool:
        """Whether a span matches one of the words, or none of those that begin with "-"."""
        if not self._rules:
            return True
        scope = span.instrumentation_scope
        key = span.name, span.kind.name.lower(), scope.name if scope else ""
        known = self._known.get(key)
        if known is None:
            known = self._decide(key)
            if len(self._known) < _MOST_NAMES:
                self._known[key] = known
        return known

    def _decide(self, key: tuple[str, str, str]) -> bool:
        if any(fnmatchcase(key[field], pattern) for field, pattern, excluded in self._rules if excluded):
            return False
        included = [rule for rule in self._rules if not rule[2]]
        return not included or any(fnmatchcase(key[field], pattern) for field, pattern, _ in included)


def _rule(word: str) -> tuple[int, str, bool]:
    """Return the field, the pattern, and whether matching spans are excluded."""
    excluded = word.startswith("-")
    field, _, pattern = word.removeprefix("-").partition(":")
    return SPAN_FIELDS.index(field), pattern, excluded
