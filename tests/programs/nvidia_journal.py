"""A program with metrics and NVIDIA GPUs that does what its standard input says, and ends with it.

Usage: nvidia_journal.py JOURNAL. A line `uninstrument` takes the instrumentation away and prints, as JSON, what is
left; `again` gives it back; `fork` makes a child that instruments itself, exports and ends, and prints its status.
"""

from __future__ import annotations

import json
import logging
import os
import sys

from opentelemetry.metrics import set_meter_provider
from tests.programs import traces
from tests.programs.journal import Export, exports, provider, resting

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

JOURNAL = sys.argv[1]
INTERVAL = 0.4
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
meters = provider(JOURNAL, INTERVAL)
set_meter_provider(meters)
instrumentor = HardwareInstrumentor()
instrumentor.instrument(sample_interval=INTERVAL)


def up(export: Export) -> bool:
    return export.values("otel_hardware.source.up", otel_hardware_source="nvidia") == [1]


def child() -> None:
    """Ask the driver anew, as a member of the job, which leaves the GPUs' own numbers to its parent."""
    instrumentor.instrument(sample_interval=INTERVAL)
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
        instrumentor.instrument(sample_interval=INTERVAL)
    elif line == "fork\n":
        traces.until(lambda: resting(JOURNAL, INTERVAL), "pause between two exports")
        pid = os.fork()
        if not pid:
            child()
            os._exit(0)
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])), flush=True)
