"""A program with one span, which is its first. Prints its attributes, begin and end as JSON.

Usage: first_span.py auto|code|instrument|late|agent PAUSE DURATION [NVML-FOLDER]

It uses a simulated GPU if there is a folder for one; `auto` runs under opentelemetry-instrument.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support.children import instrumented
from tests.tools.load import WAVERING, loaded
from tests.tools.nvml import MIB, FakeNvml, h100, listed

from opentelemetry import trace

way, pause, duration = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
if len(sys.argv) > 4 and not os.environ.get("FAKE_NVML_STATE"):
    gpu = {**loaded(h100(0), WAVERING), "ComputeRunningProcesses": listed((os.getpid(), 700 * MIB))}
    os.environ.update(FakeNvml(Path(sys.argv[4]), gpu).environment)
exporter = InMemorySpanExporter()
if way == "auto":
    if "AGAIN" not in os.environ:  # the PID, which the driver lists, stays the same
        os.environ["AGAIN"] = "1"
        os.execvp("opentelemetry-instrument", instrumented("spans/first_span", *sys.argv[1:]))
    provider = trace.get_tracer_provider()
elif way == "code":
    from opentelemetry.instrumentation.hardware import HardwareSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(HardwareSpanProcessor())
else:
    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

    if way == "instrument":
        provider = TracerProvider()
        trace.set_tracer_provider(provider)
    HardwareInstrumentor().instrument(mode="agent" if way == "agent" else "process")
    if way != "instrument":
        provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))  # type: ignore[attr-defined]
time.sleep(pause)
with provider.get_tracer("program").start_as_current_span("first"):
    time.sleep(duration)
(span,) = exporter.get_finished_spans()
times = {"begin": (span.start_time or 0) / 1e9, "end": (span.end_time or 0) / 1e9}
print(json.dumps({**(span.attributes or {}), **times}))
