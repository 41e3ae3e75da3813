"""A program with metrics that forks with os.fork or multiprocessing. The child writes a report.

Usage: forks.py JOURNAL REPORT os|multiprocessing

It exports on demand and at exit only, because the SDK cannot export in a child that is forked during an export.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

from opentelemetry.metrics import set_meter_provider
from tests.support import traces
from tests.support.journal import exports, provider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

JOURNAL, REPORT, WAY = sys.argv[1:]
LARGE = 200 << 20


def instrument() -> None:
    """Instrument this process, with readings on demand only."""
    HardwareInstrumentor().instrument(sample_interval=10)


def export() -> None:
    """Read the sources and export."""
    session = HardwareInstrumentor()._telemetry.session
    if session is not None:
        session.read_now(30)
    meters.force_flush()


def child() -> None:
    report: dict[str, object] = {"pid": os.getpid()}
    report["silent"] = {
        "threads": traces.threads(),
        "open": traces.descriptors(),
        "instrumented": HardwareInstrumentor().is_instrumented_by_opentelemetry,
    }
    for _ in range(3):
        export()
    report["last silent export"] = sum(each.pid == os.getpid() for each in exports(JOURNAL))
    instrument()
    ballast = bytearray(LARGE)
    ballast[::4096] = b"x" * len(ballast[::4096])
    export()
    report["loud"] = {"threads": traces.threads()}
    begun = time.monotonic()
    meters.shutdown()
    report["shutdown"] = time.monotonic() - begun
    Path(REPORT).write_text(json.dumps(report))


meters = provider(JOURNAL, 3600)
set_meter_provider(meters)
instrument()
export()
if WAY == "os":
    pid = os.fork()
    if not pid:
        child()
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
else:
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    status = process.exitcode or 0
export()
sys.exit(status)
