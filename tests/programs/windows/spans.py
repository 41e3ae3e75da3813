"""Spans and metrics of a Windows program that uses the GPU of the simulated NVML: windows/spans.py STATE

STATE is a file of tests.tools.nvml without processes. Prints what this process and a child have observed, and the
energy of a measured block, as JSON.
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


def observed(state: str) -> dict[str, object]:
    """Return the attributes of a span of two seconds, and the names of the metrics of this process."""
    use_the_gpu(state)
    reader, exporter, provider = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader]))
    time.sleep(3)  # Wine is slow to load the library
    with provider.get_tracer("test").start_as_current_span("work"):
        time.sleep(2)
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [each for of in data.resource_metrics for scope in of.scope_metrics for each in scope.metrics]
    return {
        "span": dict(exporter.get_finished_spans()[0].attributes or {}),
        "metrics": [each.name for each in metrics],
    }


if __name__ == "__main__":
    found = [observed(sys.argv[1])]
    with multiprocessing.Pool(1) as pool:
        found.append(pool.apply(observed, sys.argv[1:]))
    with measure() as block:
        time.sleep(1)
    print(json.dumps([*found, block.energy]))
