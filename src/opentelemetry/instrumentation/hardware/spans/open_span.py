"""OpenSpan: a span between its start and its end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from opentelemetry.trace import SpanContext

from opentelemetry.instrumentation.hardware.spans.operations import Operation

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder


class OpenSpan(ref[Any]):
    """A span that is measured and has not ended: a weak reference to it, with what was known at its start.

    Attributes:
        by_id: All of this process.
        key: Its ``id()``.
        recorder: Measures it when it ends.
        pid: The process in which it started.
        start: When it started, in nanoseconds since the epoch.
        cpu_time: CPU seconds of the process at its start; None if it was made after the fact.
        parent: Its parent; None of one that is not recorded.
        share_id: Its ID if it has a share, else 0.
        operation: Name, kind and model if it is not recorded; None if it is.
    """

    # No __init__(): a call takes as long as all else that is done at the start of a span.
    __slots__ = ("cpu_time", "key", "operation", "parent", "pid", "recorder", "share_id", "start")

    by_id: ClassVar[dict[int, OpenSpan]] = {}
    key: int
    recorder: SpanRecorder
    pid: int
    start: int
    cpu_time: float | None
    parent: SpanContext | None
    share_id: int
    operation: Operation | None


def forget(opened: OpenSpan, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
    """Release a span that the program has dropped without an end. Called by the garbage collector.

    When the interpreter ends, that may be after the globals of this module have been removed.
    """
    if not is_finalizing() and OpenSpan.by_id.pop(opened.key, None) is not None:
        opened.recorder.forget(opened)
