"""A program with metrics and NVIDIA GPUs that does what its standard input says, and ends with it.

Usage: nvidia_journal.py JOURNAL. A line `uninstrument` takes the instrumentation away and prints, as JSON, what is
left; `again` gives it back; `fork` makes a child that instruments itself, exports and ends, and prints its status.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time

import traces
from journal import Export, exports, provider
from opentelemetry.metrics import set_meter_provider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

JOURNAL = sys.argv[1]
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
meters = provider(JOURNAL, 0.2)
set_meter_provider(meters)
instrumentor = HardwareInstrumentor()
instrumentor.instrument(sample_interval=0.1)


def up(export: Export) -> bool:
    return export.values("otel_hardware.source.up", otel_hardware_source="nvidia") == [1]


def child() -> None:
    """Ask the driver anew, as a member of the job, which leaves the GPUs' own numbers to its parent."""
    instrumentor.instrument(sample_interval=0.1)
    traces.until(
        lambda: any(export.pid == os.getpid() and up(export) for export in exports(JOURNAL)),
        "export by the child that says that the driver answers",
    )
    instrumentor.uninstrument()


for line in sys.stdin:
    if line == "uninstrument\n":
        instrumentor.uninstrument()
        print(json.dumps({"threads": traces.threads(), "open": traces.descriptors()}), flush=True)
    elif line == "again\n":
        instrumentor.instrument(sample_interval=0.1)
    elif line == "fork\n":
        # The SDK cannot export in a child that was forked during an export: this is the middle of a pause.
        traces.until(lambda: 0.05 < time.monotonic() - exports(JOURNAL)[-1].time < 0.15, "pause between two exports")
        pid = os.fork()
        if not pid:
            child()
            os._exit(0)
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])), flush=True)
