"""A program that knows nothing of OpenTelemetry and starts a child by multiprocessing's spawn or forkserver.

Usage: spawns.py spawn|forkserver [instrument]
Prints "parent PID" and "child PID", and ends when its standard input is closed.
With "instrument" the child does what a server's post-fork hook would do.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from multiprocessing.connection import Connection


def child(end: Connection, instrument: bool) -> None:
    if instrument:
        from opentelemetry.instrumentation.hardware import HardwareInstrumentor

        HardwareInstrumentor().instrument()
    print("child", os.getpid(), flush=True)
    end.recv()


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    here, there = context.Pipe()
    process = context.Process(target=child, args=(there, "instrument" in sys.argv))
    process.start()
    print("parent", os.getpid(), flush=True)
    sys.stdin.read()
    here.send("end")
    process.join()
    sys.exit(process.exitcode)
