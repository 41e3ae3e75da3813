"""A program without OpenTelemetry code of its own that ends in one way or another.

Usage: ends.py return|exit|exception|handler|_exit|term|kill|abort; it waits for the end of its standard input first. If
it is instrumented, it also waits for the first reading of the host: on a busy machine, it would end before.
"""

from __future__ import annotations

import os
import signal
import sys

WAY = sys.argv[1]
if WAY == "handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
sys.stdin.read()
instrumentor = sys.modules.get("opentelemetry.instrumentation.hardware.instrumentor")
session = instrumentor.HardwareInstrumentor()._session if instrumentor else None
if session is not None:
    from tests.programs.traces import until

    collector = session.collector
    until(
        lambda: any(each.name == "host" and each.counters.published for each in collector.runners),
        "reading of the host",
    )
print("ends", flush=True)
if WAY == "exit":
    sys.exit(4)
elif WAY == "exception":
    raise ValueError("the program failed")
elif WAY == "_exit":
    os._exit(5)
elif WAY in ("term", "handler"):
    signal.raise_signal(signal.SIGTERM)
elif WAY == "kill":
    os.kill(os.getpid(), signal.SIGKILL)
elif WAY == "abort":
    os.abort()
