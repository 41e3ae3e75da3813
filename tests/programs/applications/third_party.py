"""A program with metrics and the sources of other packages, which exits while one of them hangs.

Usage: third_party.py JOURNAL uninstrument|leave; prints its observations as JSON.
"""

from __future__ import annotations

import json
import logging
import sys
import time

from opentelemetry.metrics import set_meter_provider
from tests.support import traces
from tests.support.journal import newest, provider
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

JOURNAL, END = sys.argv[1:]
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
meters = provider(JOURNAL, 0.1)
set_meter_provider(meters)
instrumentor = HardwareInstrumentor()
instrumentor.instrument(sample_interval=0.1)
until(lambda: (export := newest(JOURNAL)) and export.values("hw.errors"), "number of the other package's")
until(lambda: (export := newest(JOURNAL)) and "system.uptime" in export.names(), "number of ours")
assert instrumentor._telemetry.session is not None
stuck = [runner for runner in instrumentor._telemetry.session.runners if runner.name == "stuck"]
until(lambda: all(runner.busy_since is not None for runner in stuck), "reading that hangs")
report: dict[str, object] = {"threads": traces.threads()}
if END == "uninstrument":
    begun = time.monotonic()
    instrumentor.uninstrument()
    report["seconds"] = time.monotonic() - begun
    report["left"] = traces.threads()
print(json.dumps(report), flush=True)
