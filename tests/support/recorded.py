"""Spans that are measured with rows of a test, without a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.spans.readings import Readings
from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder
from opentelemetry.instrumentation.hardware.spans.rows import Rows


class Rowed(Readings):
    """Rows in place of a session. The test makes the readings."""

    has_started = True
    has_accelerators = True

    def __init__(self, config: Config, rows: Callable[[], Sequence[Rows]]) -> None:
        super().__init__(config)
        self._rows = rows

    @property
    def span_rows(self) -> Sequence[Rows]:  # type: ignore[override]
        return self._rows()


class Recorded(SpanProcessor):
    """Measures the spans of one provider with a recorder."""

    def __init__(self, recorder: SpanRecorder) -> None:
        self.recorder = recorder
        recorder.watch(only_ends=True)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.recorder.begin(span, span.start_time)
