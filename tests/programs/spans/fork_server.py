"""A program without code of this package, whose worker is a child of multiprocessing's fork server and makes a span.

Prints the attributes of the span as JSON, and how many threads the fork server has.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time

from opentelemetry import trace


def work() -> None:
    """Make a span."""
    with trace.get_tracer("program").start_as_current_span("span") as span:
        end = time.process_time() + 0.3
        while time.process_time() < end:
            pass
    threads = len(os.listdir(f"/proc/{os.getppid()}/task"))
    print(json.dumps([dict(span.attributes or {}), threads]), flush=True)  # type: ignore[attr-defined] # the SDK's


if __name__ == "__main__":
    worker = multiprocessing.get_context("forkserver").Process(target=work)
    worker.start()
    worker.join()
