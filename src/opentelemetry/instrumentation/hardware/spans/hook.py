"""TraceHook: observes every TracerProvider of the SDK, and every span that starts or ends."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias
from weakref import WeakSet

from opentelemetry.trace import NonRecordingSpan, SpanKind

from opentelemetry.instrumentation.hardware.spans.open_span import OpenSpan

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import Span, Tracer, TracerProvider

# A class, the name of its method, the method, and what takes its place.
_Replaced: TypeAlias = "tuple[Any, str, Any, Any]"


class TraceHook:
    """Calls back when a TracerProvider is made or gets a processor, and when a span starts or ends.

    A SpanProcessor in each provider is not enough: none can be added to a provider that is never global (MLflow,
    logfire, Phoenix), Phoenix removes all processors when the program adds its first one, processors do not receive
    spans that the sampler drops, and a span cannot be changed in ``on_end``. So methods of ``TracerProvider``,
    ``Tracer``, ``Span`` and ``NonRecordingSpan`` are replaced.

    Args:
        provider_changed: Called with a provider.
        recorded: Called with a span that is recorded, and its start time as given to ``Tracer.start_span``. It must not
            raise.
        dropped: Called with a span that the sampler has dropped, and its name, context, kind, attributes and start time
            as given to ``Tracer.start_span``. It must not raise.
    """

    # The hooks that want the ends of spans, which are the same for all, and what was replaced for them.
    _ends: ClassVar[WeakSet[TraceHook]] = WeakSet()
    _replaced_ends: ClassVar[list[_Replaced]] = []

    def __init__(
        self,
        provider_changed: Callable[[TracerProvider], None],
        recorded: Callable[[Span, int | None], None],
        dropped: Callable[..., None],
    ) -> None:
        self._provider_changed = provider_changed
        self._recorded = recorded
        self._dropped = dropped
        self._is_on = False
        self._replaced: list[_Replaced] = []

    def install(self, only_ends: bool) -> None:
        """Begin to call back: when open spans end, and unless ``only_ends`` for everything else."""
        from opentelemetry.sdk.trace import Span, Tracer, TracerProvider

        self._is_on = True
        self._ends.add(self)
        if not self._replaced_ends:
            _replace(self._replaced_ends, Span, "end", _end)
            _replace(self._replaced_ends, NonRecordingSpan, "end", _end)
        if not only_ends and not self._replaced:
            _replace(self._replaced, TracerProvider, "__init__", self._change)
            _replace(self._replaced, TracerProvider, "add_span_processor", self._change)
            _replace(self._replaced, Tracer, "start_span", self._start)

    def remove(self) -> None:
        """Stop calling back. What another package has wrapped in the meantime stays, and does nothing."""
        self._is_on = False
        _restore(self._replaced)
        self._ends.discard(self)
        if not self._ends:
            _restore(self._replaced_ends)

    def _change(self, change: Any) -> Any:
        def changed(provider: TracerProvider, *args: Any, **kwargs: Any) -> None:
            change(provider, *args, **kwargs)
            if self._is_on:
                self._provider_changed(provider)

        return changed

    def _start(self, start: Any) -> Any:
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
                    self._recorded(span, start_time)
                else:
                    self._dropped(span, name, context, kind, attributes, start_time)
            return span

        return start_span


def _end(end: Any) -> Any:
    def end_span(span: Any, end_time: int | None = None) -> None:
        opened = OpenSpan.by_id.pop(id(span), None)
        try:
            if opened is not None:
                opened.recorder.end(span, end_time, opened)
        finally:  # also after Ctrl-C
            del opened  # before the span, or it would call back
            end(span, end_time)

    return end_span


def _replace(replaced: list[_Replaced], owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    theirs = getattr(owner, name)
    ours = wraps(theirs)(make(theirs))
    setattr(owner, name, ours)
    replaced.append((owner, name, theirs, ours))


def _restore(replaced: list[_Replaced]) -> None:
    """Put all methods back, unless another package has wrapped one of them."""
    if all(getattr(owner, name) is ours for owner, name, _, ours in replaced):
        for owner, name, theirs, _ in replaced:
            setattr(owner, name, theirs)
        replaced.clear()
