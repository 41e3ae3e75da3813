"""Spans in forked children. Prints the attributes of each as JSON, one line for each child, and logs with the PID.

Usage: forked_spans.py fork|multiprocessing|daemon process|agent
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import time
import warnings

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

logging.basicConfig(level=logging.INFO, format="%(process)d %(levelname)s %(message)s")
warnings.simplefilter("ignore", DeprecationWarning)  # it forks beside threads
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
HardwareInstrumentor().instrument(mode=sys.argv[2])
tracer = provider.get_tracer("program")


def work() -> None:
    """Make two spans."""
    exporter.clear()
    for name in ("first", "second"):
        with tracer.start_as_current_span(name):
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
            time.sleep(1.0)
    found = {span.name: dict(span.attributes or {}) for span in exporter.get_finished_spans()}
    os.write(1, json.dumps(found).encode() + b"\n")


program = os.getpid()
work()
if sys.argv[1] == "fork":
    for _ in range(2):
        pid = os.fork()
        if not pid:
            work()
            os._exit(0)
        os.waitpid(pid, 0)
elif sys.argv[1] == "daemon":
    if os.fork():
        os._exit(0)
    while os.getppid() == program:
        time.sleep(0.01)
    time.sleep(3.0)  # the agent ends after the program
    work()
    os._exit(0)
else:
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
