"""What this package uses of the SDK beyond its documented interface: one function each, with the reason.

Checked with versions 1.39 to 1.45 of opentelemetry-sdk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from math import inf
from typing import Any

from opentelemetry.sdk.trace import Span, Tracer, TracerProvider

SpanStart = Callable[[Any, "tuple[Any, ...]", "dict[str, Any]"], None]
"""Called with a span and the arguments of ``Tracer.start_span``."""


class TraceHook:
    """Calls back when a TracerProvider is made and when a span starts, also one that is not recorded.

    A SpanProcessor in each provider is not enough: none can be added to a provider that is never global (MLflow,
    logfire, Phoenix), Phoenix removes all processors when the program adds its first one, and processors are not
    told of spans that the sampler drops. So ``TracerProvider.__init__`` and ``Tracer.start_span`` are replaced.
    """

    def __init__(self, provider_made: Callable[[], None], span_started: SpanStart) -> None:
        self._provider_made = provider_made
        self._span_started = span_started
        self._is_on = False
        self._replaced: tuple[Any, Any, Any, Any] | None = None

    def install(self) -> None:
        """Begin to call back."""
        self._is_on = True
        if self._replaced is not None:
            return
        make, start = TracerProvider.__init__, Tracer.start_span

        @wraps(make)
        def __init__(provider: TracerProvider, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            make(provider, *args, **kwargs)
            if self._is_on:
                self._provider_made()

        @wraps(start)
        def start_span(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
            span = start(tracer, *args, **kwargs)
            if self._is_on:
                self._span_started(span, args, kwargs)
            return span

        _replace(__init__, start_span)
        self._replaced = make, start, __init__, start_span

    def remove(self) -> None:
        """Stop calling back. What another package has wrapped in the meantime stays, and does nothing."""
        self._is_on = False
        if self._replaced is None:
            return
        make, start, our_init, our_start = self._replaced
        if TracerProvider.__init__ is our_init and Tracer.start_span is our_start:
            _replace(make, start)
            self._replaced = None


def _replace(make: Any, start: Any) -> None:
    provider: Any = TracerProvider
    tracer: Any = Tracer
    provider.__init__, tracer.start_span = make, start


def free_attributes(span: Span) -> float:
    """Return how many attributes a span has room for; infinity if there is no limit.

    ``Span.set_attributes`` would drop the oldest attributes of the program for ours.
    """
    limit = getattr(getattr(span, "_limits", None), "max_span_attributes", None)
    return inf if limit is None else max(0, limit - len(span.attributes or ()))
