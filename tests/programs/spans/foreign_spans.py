"""A program whose spans are made by another library, which makes its TracerProvider after instrument().

It begins at a line on standard input. It prints, as JSON, its spans as soon as one of them has energy.

Usage: foreign_spans.py LIBRARY
       foreign_spans.py logfire again
       foreign_spans.py logfire before     it calls instrument() after that
       opentelemetry-instrument foreign_spans.py LIBRARY processor
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor, HardwareSpanProcessor

SECONDS = 2.0  # the duration of each span

ATTEMPTS = 20


SETTINGS: dict[str, Any] = {"sources": ["nvidia"], "nvidia_smi": "off", "sample_interval": 0.1}


def nemo_lens(exporter: InMemorySpanExporter) -> Callable[[], AbstractContextManager[object]]:
    from nemo.lens import NemoLensConfig, SpanGroup, managed_span, setup_telemetry

    config = NemoLensConfig(enabled=True, metrics_enabled=False, span_groups="per_step")
    handle = setup_telemetry(config, rank=0, world_size=1, span_exporter=exporter)
    assert handle.is_exporting
    return partial(managed_span, SpanGroup.STEP, "megatron.train.step", iteration=1)


def logfire(exporter: InMemorySpanExporter) -> Callable[[], AbstractContextManager[object]]:
    import logfire

    processors: list[SpanProcessor] = [SimpleSpanProcessor(exporter)]
    if "processor" in sys.argv:  # opentelemetry-instrument has set the global provider, and logfire keeps its own
        processors.append(HardwareSpanProcessor(**SETTINGS))
    options: dict[str, Any] = {"send_to_logfire": False, "console": False, "metrics": False}
    if "again" in sys.argv:
        logfire.configure(**options)
        with logfire.span("before"):
            time.sleep(SECONDS)
    logfire.configure(**options, additional_span_processors=processors)
    if "before" in sys.argv:
        HardwareInstrumentor().instrument(**SETTINGS)
    return partial(logfire.span, "train {step}", step=1)


if __name__ == "__main__":
    input()
    if not {"processor", "before"}.intersection(sys.argv):
        HardwareInstrumentor().instrument(**SETTINGS)
    memory = InMemorySpanExporter()
    span = {"nemo-lens": nemo_lens, "logfire": logfire}[sys.argv[1]](memory)
    for _ in range(ATTEMPTS):
        with span():
            time.sleep(SECONDS)
        trace.get_tracer_provider().force_flush()  # type: ignore[attr-defined] # nemo-lens exports in batches
        if any("hw.energy" in (each.attributes or {}) for each in memory.get_finished_spans()):
            break
    print(
        json.dumps(
            [
                {
                    "name": each.name,
                    "begin": (each.start_time or 0) / 1e9,
                    "end": (each.end_time or 0) / 1e9,
                    "attributes": dict(each.attributes or {}),
                }
                for each in memory.get_finished_spans()
            ]
        )
    )
