"""Spans that are measured with rows of a test, without a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.spans.ledger import Demand
from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder
from opentelemetry.instrumentation.hardware.spans.rows import Rows


class Readings:
    """Rows in place of a session."""

    serves_children = False
    has_started = True
    has_accelerators = True

    def __init__(self, config: Config, rows: Callable[[], Sequence[Rows]]) -> None:
        self.config = config
        self.demand: Demand | None = Demand()
        self._rows = rows

    @property
    def span_rows(self) -> Sequence[Rows]:
        return self._rows()

    def start(self) -> None:
        """Do nothing: the test makes the readings."""

    def advance(self) -> None:
        """Do nothing: the test makes the readings."""

    def expect_spans(self) -> None:
        """Do nothing: the test makes the readings."""

    def wake_for_spans(self) -> None:
        """Do nothing: the test makes the readings."""


class Recorded(SpanProcessor):
    """Measures the spans of one provider with a recorder."""

    def __init__(self, recorder: SpanRecorder) -> None:
        self.recorder = recorder

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.recorder.begin(span)
