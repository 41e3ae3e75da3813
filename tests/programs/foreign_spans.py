"""A program whose spans are made by another library, which sets the TracerProvider after instrument().

It begins at a line on standard input. It prints, as JSON, its spans as soon as one of them has energy.

Usage: foreign_spans.py LIBRARY
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor

SECONDS = 2.0
"""The duration of each span."""

ATTEMPTS = 20


def nemo_lens(exporter: InMemorySpanExporter) -> Callable[[], AbstractContextManager[object]]:
    from nemo.lens import NemoLensConfig, SpanGroup, managed_span, setup_telemetry

    config = NemoLensConfig(enabled=True, metrics_enabled=False, span_groups="per_step")
    setup_telemetry(config, rank=0, world_size=1, span_exporter=exporter)
    return partial(managed_span, SpanGroup.STEP, "megatron.train.step", iteration=1)


def logfire(exporter: InMemorySpanExporter) -> Callable[[], AbstractContextManager[object]]:
    import logfire

    processor = SimpleSpanProcessor(exporter)
    logfire.configure(send_to_logfire=False, console=False, metrics=False, additional_span_processors=[processor])
    return partial(logfire.span, "train {step}", step=1)


if __name__ == "__main__":
    input()
    HardwareInstrumentor().instrument(sources=["nvidia"], nvidia_smi="off", sample_interval=0.1)
    memory = InMemorySpanExporter()
    span = {"nemo-lens": nemo_lens, "logfire": logfire}[sys.argv[1]](memory)
    spans = []
    for _ in range(ATTEMPTS):
        with span():
            time.sleep(SECONDS)
        trace.get_tracer_provider().force_flush()  # type: ignore[attr-defined] # the SDK's, or a wrapper of it
        spans = [
            {
                "name": each.name,
                "seconds": (each.end_time - each.start_time) / 1e9,
                "attributes": dict(each.attributes or {}),
            }
            for each in memory.get_finished_spans()
            if each.end_time is not None and each.start_time is not None
        ]
        if any("hw.energy" in (each.attributes or {}) for each in memory.get_finished_spans()):
            break
    print(json.dumps(spans))
