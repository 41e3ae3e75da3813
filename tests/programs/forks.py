"""A program with metrics that forks, by os.fork or by multiprocessing, and lets the child say how it is.

Usage: forks.py JOURNAL REPORT os|multiprocessing ours|bare
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from pathlib import Path

import traces
from journal import exports, provider, resting
from opentelemetry.metrics import set_meter_provider
from traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

JOURNAL, REPORT, WAY, WITH = sys.argv[1:]
LARGE = 200 << 20
INTERVAL = 0.5


def mine() -> int:
    """How many collections of this process were exported."""
    return sum(export.pid == os.getpid() for export in exports(JOURNAL))


def child() -> None:
    report: dict[str, object] = {"pid": os.getpid()}
    report["silent"] = {
        "threads": traces.threads(),
        "open": traces.descriptors(),
        "instrumented": HardwareInstrumentor().is_instrumented_by_opentelemetry,
    }
    before = mine()
    until(lambda: mine() >= before + 3, "exports before it instruments itself")
    if WITH == "ours":
        report["last silent export"] = mine()
        HardwareInstrumentor().instrument(sample_interval=INTERVAL)
        ballast = bytearray(LARGE)
        ballast[::4096] = b"x" * len(ballast[::4096])
        until(lambda: seen() >= LARGE, "export of the memory that was taken")
        report["loud"] = {"threads": traces.threads()}
    begun = time.monotonic()
    meters.shutdown()
    report["shutdown"] = time.monotonic() - begun
    Path(REPORT).write_text(json.dumps(report))


def seen() -> int:
    own = [export for export in exports(JOURNAL) if export.pid == os.getpid()]
    return max((sum(export.values("process.memory.usage")) for export in own), default=0)


meters = provider(JOURNAL, INTERVAL)
set_meter_provider(meters)
if WITH == "ours":
    HardwareInstrumentor().instrument(sample_interval=INTERVAL)
    until(lambda: exports(JOURNAL) and exports(JOURNAL)[-1].values("process.memory.usage"), "numbers of the parent")
else:
    until(lambda: exports(JOURNAL), "export of the parent")
until(lambda: resting(JOURNAL, INTERVAL), "pause between two exports")
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
count = mine()
until(lambda: mine() >= count + 2, "exports of the parent after its child")
sys.exit(status)
