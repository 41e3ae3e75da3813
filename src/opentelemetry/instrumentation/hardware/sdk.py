"""What this package uses of the SDK beyond its documented interface: one function each, with the reason.

Checked with versions 1.39 to 1.45 of opentelemetry-sdk.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import wraps
from math import inf
from typing import Any, TypeAlias

from opentelemetry.sdk.trace import Span, Tracer, TracerProvider
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, get_tracer_provider

_Methods: TypeAlias = "tuple[Any, Any, Any]"

SpanStart = Callable[[Any, "tuple[Any, ...]", "dict[str, Any]"], None]
"""Called with a span and the arguments of ``Tracer.start_span``."""


class TraceHook:
    """Calls back when a TracerProvider is made or gets a processor, and when a span starts, also one not recorded.

    A SpanProcessor in each provider is not enough: none can be added to a provider that is never global (MLflow,
    logfire, Phoenix), Phoenix removes all processors when the program adds its first one, and processors are not
    told of spans that the sampler drops. So ``TracerProvider.__init__``, its ``add_span_processor`` and
    ``Tracer.start_span`` are replaced.
    """

    def __init__(self, provider_changed: Callable[[TracerProvider], None], span_started: SpanStart) -> None:
        self._provider_changed = provider_changed
        self._span_started = span_started
        self._is_on = False
        self._replaced: tuple[_Methods, _Methods] | None = None

    def install(self) -> None:
        """Begin to call back."""
        self._is_on = True
        if self._replaced is not None:
            return
        theirs = make, add, start = _methods()

        @wraps(make)
        def __init__(provider: TracerProvider, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            make(provider, *args, **kwargs)
            if self._is_on:
                self._provider_changed(provider)

        @wraps(add)
        def add_span_processor(provider: TracerProvider, *args: Any, **kwargs: Any) -> None:
            add(provider, *args, **kwargs)
            if self._is_on:
                self._provider_changed(provider)

        @wraps(start)
        def start_span(tracer: Tracer, *args: Any, **kwargs: Any) -> Any:
            span = start(tracer, *args, **kwargs)
            if self._is_on:
                self._span_started(span, args, kwargs)
            return span

        ours = __init__, add_span_processor, start_span
        _replace(ours)
        self._replaced = theirs, ours

    def remove(self) -> None:
        """Stop calling back. What another package has wrapped in the meantime stays, and does nothing."""
        self._is_on = False
        if self._replaced is None:
            return
        theirs, ours = self._replaced
        if _methods() == ours:
            _replace(theirs)
            self._replaced = None


def _methods() -> _Methods:
    return TracerProvider.__init__, TracerProvider.add_span_processor, Tracer.start_span


def _replace(methods: _Methods) -> None:
    provider: Any = TracerProvider
    tracer: Any = Tracer
    provider.__init__, provider.add_span_processor, tracer.start_span = methods


def exports_spans(provider: Any) -> bool:
    """Whether spans of a TracerProvider may be seen by anybody: it has a processor, or is not the SDK's.

    Nothing public says which processors a provider has.
    """
    if isinstance(provider, (ProxyTracerProvider, NoOpTracerProvider)) or getattr(provider, "_disabled", False):
        return False
    return _has_others(getattr(provider, "_active_span_processor", None))


def exports_any_spans() -> bool:
    """Whether spans of any TracerProvider may be seen, also of one that was made before and is not global.

    Nothing lists them but the garbage collector, which takes 0.1 s in a program with a million objects.
    """
    if exports_spans(get_tracer_provider()):
        return True
    made = [each for each in gc.get_objects() if issubclass(type(each), TracerProvider)]
    return any(exports_spans(provider) for provider in made)


def exports(span: Span) -> bool:
    """Whether anybody may see a span when it ends; see :func:`exports_spans`."""
    return _has_others(getattr(span, "_span_processor", None))


def _has_others(processor: Any) -> bool:
    """Whether there are processors but ours. It may be so if that is not known."""
    each = getattr(processor, "_span_processors", None)
    return each is None or any(not type(other).__module__.startswith(f"{__package__}.") for other in each)


def free_attributes(span: Span) -> float:
    """Return how many attributes a span has room for; infinity if there is no limit.

    ``Span.set_attributes`` would drop the oldest attributes of the program for ours.
    """
    limit = getattr(getattr(span, "_limits", None), "max_span_attributes", None)
    return inf if limit is None else max(0, limit - len(span.attributes or ()))
