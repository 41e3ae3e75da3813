"""HardwareSpanProcessor: measures the spans of one TracerProvider, for programs that add it by code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.sdk_variables import is_disabled
from opentelemetry.instrumentation.hardware.spans.readings import Readings
from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder
from opentelemetry.instrumentation.hardware.system.interpreter import helper
from opentelemetry.instrumentation.hardware.system.uwsgi import call_in_workers, forks_later


class HardwareSpanProcessor(SpanProcessor):
    """Adds energy, busy time, peak memory and CPU time to spans.

    ``HardwareInstrumentor().instrument()`` and ``opentelemetry-instrument`` measure the spans of every TracerProvider;
    they need no processor. Without them::

        provider.add_span_processor(HardwareSpanProcessor())

    It may come before or after the processors that export. Spans that began before it was added, and spans that are
    not recorded, are not changed. The values are those of the devices that this process and its descendants use, as a
    whole: what other programs did on them at the same time is included. The names are in docs/spans.md.

    Args:
        settings: As in :class:`~opentelemetry.instrumentation.hardware.Config`.
    """

    def __init__(self, **settings: Any) -> None:
        self._recorder = SpanRecorder()
        if forks_later():
            call_in_workers(partial(self._start, settings))
        else:
            self._start(settings)

    def _start(self, settings: Mapping[str, Any]) -> None:
        if is_disabled(os.environ):
            return
        self._recorder.watch(only_ends=True)
        config = Config.read(settings)
        if helper():  # a fork server, which has imported the program: its children have sessions of their own
            self._recorder.open(Readings(config))
        else:
            self._recorder.start(config)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Begin to measure a span."""
        del parent_context
        self._recorder.begin(span, span.start_time)

    def on_end(self, span: ReadableSpan) -> None:
        """Do nothing: the span was changed before its end."""

    def shutdown(self) -> None:
        """Stop reading."""
        self._recorder.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Return True: there is nothing to flush."""
        del timeout_millis
        return True
