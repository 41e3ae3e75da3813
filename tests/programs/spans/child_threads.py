"""The first spans of forked children, in four threads at once. Prints their attributes as JSON, one line per child."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

warnings.simplefilter("ignore", DeprecationWarning)  # it forks beside threads
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
HardwareInstrumentor().instrument()
tracer = provider.get_tracer("program")


def work() -> None:
    """Make spans at once."""
    together = threading.Barrier(4)

    def make() -> None:
        together.wait()
        with tracer.start_as_current_span("span"):
            time.sleep(0.5)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.write(1, json.dumps([dict(span.attributes or {}) for span in exporter.get_finished_spans()]).encode() + b"\n")


for _ in range(3):
    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    os.waitpid(pid, 0)
