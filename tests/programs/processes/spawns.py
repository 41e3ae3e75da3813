"""A program without OpenTelemetry code that starts a child with multiprocessing's spawn or forkserver.

Usage: spawns.py spawn|forkserver [instrument]
Prints "parent PID" and "child PID", and ends when its standard input is closed.
With "instrument" the child does what a server's post-fork hook would do, and exports twice.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection
from typing import Any


def child(end: Connection, instrument: bool) -> None:
    if instrument:
        from opentelemetry.metrics import get_meter_provider

        from opentelemetry.instrumentation.hardware import HardwareInstrumentor

        instrumentor = HardwareInstrumentor()
        instrumentor.instrument()
        for _ in range(2):
            instrumentor._telemetry.session.read_now(30)  # type: ignore[union-attr] # there is one now
            get_meter_provider().force_flush()  # type: ignore[attr-defined] # it is the SDK's
    print("child", os.getpid(), flush=True)
    end.recv()


if __name__ == "__main__":
    context: Any = multiprocessing.get_context(sys.argv[1])
    here, there = context.Pipe()
    process = context.Process(target=child, args=(there, "instrument" in sys.argv))
    process.start()
    print("parent", os.getpid(), flush=True)
    sys.stdin.read()
    here.send("end")
    process.join()
    sys.exit(process.exitcode)
