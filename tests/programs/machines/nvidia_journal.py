"""A program with metrics of NVIDIA GPUs that follows commands on stdin, and exits at its end.

Usage: nvidia_journal.py JOURNAL SECONDS, between two exports and between two samples. Lines of its input:

- `export`: read all sources and export now.
- `later SECONDS`: advance the clock.
- `uninstrument`: uninstrument, and print as JSON the threads and files that are left.
- `again`: instrument again.
- `fork`: fork a child that instruments itself, exports and exits; print its status. For a program that exports on
  command only: the SDK cannot export in a child that is forked during an export.

Each prints one line of JSON when it is done.
"""

from __future__ import annotations

import json
import logging
import os
import sys

from opentelemetry.metrics import set_meter_provider
from tests.support import clock, traces
from tests.support.journal import provider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.pipeline import runner as source_runner

JOURNAL, INTERVAL = sys.argv[1], float(sys.argv[2])
source_runner.RETRY = (0.1, 0.1)  # until a source that failed is opened again
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
meters = provider(JOURNAL, INTERVAL)
set_meter_provider(meters)
instrumentor = HardwareInstrumentor()


def instrument() -> None:
    instrumentor.instrument(sample_interval=min(INTERVAL, 10), preset="all")


def export() -> None:
    session = instrumentor._telemetry.session
    if session is not None:
        session.read_now(60)
    meters.force_flush()


def child() -> None:
    """Instrument as a member of the job, which leaves the metrics of the GPUs to its parent."""
    instrument()
    export()
    instrumentor.uninstrument()


instrument()
for line in sys.stdin:
    word, _, seconds = line.strip().partition(" ")
    report: object = None
    if word == "export":
        export()
    elif word == "later":
        clock.put_forward(float(seconds))
    elif word == "uninstrument":
        instrumentor.uninstrument()
        report = {"threads": traces.threads(), "open": traces.descriptors()}
    elif word == "again":
        instrument()
    elif word == "fork":
        pid = os.fork()
        if not pid:
            child()
            os._exit(0)
        report = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(json.dumps(report), flush=True)
