"""What the programs of the trainers have in common: a provider that knows each span, and the trainings that they do.

A program prints the spans of each training by its name, as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from tests.support.waiting import wait_for

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "training"
BATCHES, ACCUMULATED, EPOCHS = 10, 4, 2

# The optimizer step after which a training stops early, and the batch at which it fails, from 0.
STOP, FAIL = 2, 5


class Failure(Exception):  # noqa: N818 - what the program raises on purpose
    """The error of a training that fails."""


class Forwards:
    """Counts the batches of a training. Each takes a tenth of a second, so that a step of four is long enough."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self.batch = 0

    def next(self) -> None:
        """Take the time of a batch, or raise."""
        if self.fails and self.batch == FAIL:
            raise Failure("out of memory")
        self.batch += 1
        time.sleep(0.1)


class _Started(SpanProcessor):
    """Keeps the spans that were started."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.spans.append(span)


def report(trainings: dict[str, Callable[[], object]]) -> None:
    """Do each training, and print its spans."""
    started, provider = _Started(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(started)
    trace.set_tracer_provider(provider)
    HardwareInstrumentor().instrument()
    tracer = trace.get_tracer("warm-up")

    def has_values() -> bool:
        tracer.start_span("warm-up", start_time=time.time_ns() - 10**9).end()
        return "process.cpu.time" in (started.spans[-1].attributes or {})

    wait_for(has_values, 60.0, "span with values")
    found = {}
    for name, train in trainings.items():
        started.spans.clear()
        with suppress(Failure):
            train()
        found[name] = [_described(span) for span in started.spans]
        assert not trace.get_current_span().get_span_context().is_valid, f"{name}: a span is still current"
    HardwareInstrumentor().uninstrument()
    json.dump(found, sys.stdout)


def _described(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert span.start_time is not None
    assert context is not None
    return {
        "name": span.name,
        "trace": context.trace_id,
        "id": context.span_id,
        "parent": span.parent.span_id if span.parent else None,
        "seconds": (span.end_time - span.start_time) / 1e9 if span.end_time else None,
        "failed": not span.status.is_ok,
        "attributes": dict(span.attributes or {}),
    }
