"""A program that forks before our fork hook is needed, and whose child instruments itself.

Usage: early_fork.py constructed|instrumenting. In the first case, the parent has only constructed the instrumentor; in
the second, another thread of it is in its first ``instrument()``. The child instruments itself twice and prints whether
its session stayed the same.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider

from opentelemetry.instrumentation.hardware import Config, HardwareInstrumentor

parent = os.getpid()
instrumentor = HardwareInstrumentor()
reading, forked = threading.Event(), threading.Event()
read = Config.read


def read_after_fork(*arguments: Any) -> Config:
    if os.getpid() == parent:
        reading.set()
        forked.wait()
    return read(*arguments)


Config.read = read_after_fork  # type: ignore[assignment, method-assign]
thread = threading.Thread(target=instrumentor.instrument)
if sys.argv[1] == "instrumenting":
    thread.start()
    reading.wait()
pid = os.fork()
if not pid:
    sessions = []
    for _ in range(2):
        instrumentor.instrument(meter_provider=MeterProvider(shutdown_on_exit=False), sources=["process"])
        sessions.append(instrumentor._telemetry.session)
    print(sessions[0] is sessions[1] is not None, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
forked.set()
if thread.ident:
    thread.join()
