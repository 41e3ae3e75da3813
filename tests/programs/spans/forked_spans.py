"""Spans in forked children. Prints the attributes of each as JSON, one line for each child, and logs with the PID.

Usage: forked_spans.py fork|multiprocessing|daemon process|agent
       forked_spans.py threads process    a span in each of four threads at once; the parent has none
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import threading
import time
import warnings

from tests.support.traces import spans_in_memory

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

logging.basicConfig(level=logging.INFO, format="%(process)d %(levelname)s %(message)s")
warnings.simplefilter("ignore", DeprecationWarning)  # it forks beside threads
provider, exporter = spans_in_memory()
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


def at_once() -> None:
    """Make spans in several threads."""
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


FORKS = {"fork": (work, 2), "threads": (at_once, 3)}
program = os.getpid()
if sys.argv[1] != "threads":
    work()
if sys.argv[1] in FORKS:
    make_spans, count = FORKS[sys.argv[1]]
    for _ in range(count):
        pid = os.fork()
        if not pid:
            make_spans()
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
