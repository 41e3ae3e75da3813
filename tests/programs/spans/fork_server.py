"""A program with a worker that makes a span, and is a child of multiprocessing's fork server.

The fork server imports this module, too. WAY is how it measures spans. Prints the attributes of the span as JSON, and
how many threads the fork server has.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time

from tests.support.traces import spans_in_memory

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor, HardwareSpanProcessor

WAY = os.environ.get("WAY")

if WAY:
    provider, _ = spans_in_memory()
    if WAY == "processor":
        provider.add_span_processor(HardwareSpanProcessor())
    else:
        HardwareInstrumentor().instrument()
    trace.set_tracer_provider(provider)


def work() -> None:
    """Make a span."""
    with trace.get_tracer("program").start_as_current_span("span") as span:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
    threads = len(os.listdir(f"/proc/{os.getppid()}/task"))
    print(json.dumps([dict(span.attributes or {}), threads]), flush=True)  # type: ignore[attr-defined] # the SDK's


if __name__ == "__main__":
    context = multiprocessing.get_context("forkserver")
    if WAY:  # Python 3.14 imports the main module by itself
        context.set_forkserver_preload(["tests.programs.spans.fork_server"])
    worker = context.Process(target=work)
    worker.start()
    worker.join()
