"""TraceHook: observes every TracerProvider of the SDK and every span that starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeAlias

from opentelemetry.trace import SpanKind

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Span, Tracer, TracerProvider

_Methods: TypeAlias = "tuple[Any, Any, Any]"


class TraceHook:
    """Calls back when a TracerProvider is made or gets a processor, and when a span starts.

    A SpanProcessor in each provider is not enough: none can be added to a provider that is never global (MLflow,
    logfire, Phoenix), Phoenix removes all processors when the program adds its first one, and processors do not
    receive spans that the sampler drops. So ``TracerProvider.__init__``, its ``add_span_processor`` and
    ``Tracer.start_span`` are replaced.

    Args:
        provider_changed: Called with a provider.
        recorded: Called with a span that is recorded. It must not raise.
        dropped: Called with a span that the sampler has dropped, and its name, context, kind, attributes and start time
            as given to ``Tracer.start_span``. It must not raise.
    """

    def __init__(
        self,
        provider_changed: Callable[[TracerProvider], None],
        recorded: Callable[[Span], None],
        dropped: Callable[..., None],
    ) -> None:
        self._provider_changed = provider_changed
        self._recorded = recorded
        self._dropped = dropped
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
        def start_span(
            tracer: Tracer,
            name: str,
            context: Any = None,
            kind: Any = SpanKind.INTERNAL,
            attributes: Any = None,
            links: Any = (),
            start_time: int | None = None,
            record_exception: bool = True,
            set_status_on_exception: bool = True,
            **others: Any,
        ) -> Any:
            # The API's parameters one by one, because *args and **kwargs take 2 µs. Others are those of later versions.
            call = partial(start, **others) if others else start
            span = call(
                tracer, name, context, kind, attributes, links, start_time, record_exception, set_status_on_exception
            )
            if self._is_on:
                if span.is_recording():
                    self._recorded(span)
                else:
                    self._dropped(span, name, context, kind, attributes, start_time)
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
    from opentelemetry.sdk.trace import Tracer, TracerProvider

    return TracerProvider.__init__, TracerProvider.add_span_processor, Tracer.start_span


def _replace(methods: _Methods) -> None:
    import opentelemetry.sdk.trace

    provider: Any = opentelemetry.sdk.trace.TracerProvider
    tracer: Any = opentelemetry.sdk.trace.Tracer
    provider.__init__, provider.add_span_processor, tracer.start_span = methods
