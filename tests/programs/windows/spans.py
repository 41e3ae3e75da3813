"""Spans and metrics of a Windows program that uses the GPU of the simulated NVML: windows/spans.py STATE

STATE is a file of tests.tools.nvml without processes. Prints the attributes of a span of this process and of one of a
child, the total of a measured block, and the names of the metrics, as JSON.
"""

import ctypes
import json
import multiprocessing
import os
import sys
import time

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from opentelemetry.instrumentation.hardware import HardwareInstrumentor, measure


def use_the_gpu(state: str) -> None:
    """Become a process that computes. The memory that it uses is not known, as with the driver model WDDM."""
    own = f"{state}-{os.getpid()}"
    with open(state, newline="\n") as file:
        lines = file.read()
    with open(own, "w", newline="\n") as file:
        file.write(f"{lines}gpu0.ComputeRunningProcesses {os.getpid()}:{2**64 - 1}\n")
    ctypes.CDLL("msvcrt")._putenv(f"FAKE_NVML_STATE={own}".encode())  # os.environ is not that of another library


def span(state: str) -> dict[str, object]:
    """Return the attributes of a span of two seconds."""
    use_the_gpu(state)
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    time.sleep(3)  # Wine is slow to load the library
    with provider.get_tracer("test").start_as_current_span("work"):
        time.sleep(2)
    return dict(exporter.get_finished_spans()[0].attributes or {})


def span_of_child(state: str) -> dict[str, object]:
    """Return the attributes of a span of a new process."""
    HardwareInstrumentor().instrument()
    return span(state)


if __name__ == "__main__":
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    HardwareInstrumentor().instrument(meter_provider=meters)
    found: dict[str, object] = {"span": span(sys.argv[1])}
    with multiprocessing.Pool(1) as pool:
        found["child"] = pool.apply(span_of_child, sys.argv[1:])
    with measure() as block:
        time.sleep(1)
    found["measured"] = block.energy
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [each for of in data.resource_metrics for scope in of.scope_metrics for each in scope.metrics]
    found["metrics"] = [each.name for each in metrics]
    meters.shutdown()
    print(json.dumps(found))
