"""A program that ends in one way or another.

Usage: ends.py return|exit|exception|handler|_exit|term|kill|abort; it waits for the end of its standard input first. If
it is instrumented, it also waits for the first reading of the host: on a busy machine, it would end before.

With ENDS_METRIC, it has a metric of its own. With ENDS_WAITED, it prints at last how long its main thread has waited
since it ended: neither running nor ready to run, so on a busy machine this is no longer than on another one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path


class Waited:
    """Prints the seconds for which the main thread has waited, when the interpreter clears the program's variables."""

    def __init__(self) -> None:
        self._begin = self._seconds()

    @staticmethod
    def _seconds(now: Callable[[], int] = time.monotonic_ns, schedule: Path = Path("/proc/self/schedstat")) -> float:
        running, ready, _ = map(int, schedule.read_text().split())
        return (now() - running - ready) / 1e9

    def __del__(self, write: Callable[[int, bytes], int] = os.write) -> None:
        write(1, b"waited %.3f s\n" % (self._seconds() - self._begin))


WAY = sys.argv[1]
if WAY == "handler":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
sys.stdin.read()
if "ENDS_METRIC" in os.environ:
    from opentelemetry.metrics import get_meter

    get_meter("application").create_counter("application.steps").add(1)
instrumentor = sys.modules.get("opentelemetry.instrumentation.hardware.instrumentor")
session = instrumentor.HardwareInstrumentor()._telemetry.session if instrumentor else None
if session is not None:
    from tests.support.traces import until

    collector = session.collector
    until(
        lambda: any(each.name == "host" and each.metrics for each in collector.runners),
        "reading of the host",
    )
print("ends", flush=True)
waited = Waited() if "ENDS_WAITED" in os.environ else None
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
