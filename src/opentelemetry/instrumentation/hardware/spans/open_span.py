"""OpenSpan: a span between its start and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from opentelemetry.instrumentation.hardware.spans.operations import Operation

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder


class OpenSpan:
    """A span that has started. Its :meth:`end` takes the place of the span's.

    Args:
        recorder: Measures the span when it ends.
        span: The span.
        cpu_time: CPU seconds of the process at its start; None if it was made after the fact.
        pid: The process in which it started.
        replaced: What a processor had set as the span's end before; None if it is the method of the class.
        operation: Name, kind and model of a span that is not recorded; None of a recorded one.

    Attributes:
        has_share: Whether a share of it has begun.
    """

    __slots__ = ("_recorder", "_replaced", "_span", "cpu_time", "has_share", "operation", "pid")

    def __init__(
        self,
        recorder: SpanRecorder,
        span: Any,
        cpu_time: float | None,
        pid: int,
        replaced: Callable[..., None] | None = None,
        operation: Operation | None = None,
    ) -> None:
        self._recorder = recorder
        self._span = span
        self.cpu_time = cpu_time
        self.pid = pid
        self._replaced = replaced
        self.operation = operation
        self.has_share = False

    def end(self, end_time: int | None = None) -> None:
        """End the span."""
        span = self._span
        if span is None:  # another thread has ended it
            return
        self._span = None
        try:
            if self._replaced is None:
                del span.end
            else:
                span.end = self._replaced
        except AttributeError:  # another thread ends it as well
            pass
        try:
            self._recorder.end(self, span, end_time)
        except Exception as error:
            self._recorder.fail(error)
        finally:  # also after Ctrl-C
            if end_time is None:  # what replaced it may have no parameter
                span.end()
            else:
                span.end(end_time)

    def __del__(self) -> None:
        span = getattr(self, "_span", None)  # a signal handler may have raised in __init__
        if span is not None:
            self._recorder.forget(self, span)
