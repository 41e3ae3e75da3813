"""A program that instruments itself and exports to a journal.

Usage: job.py JOURNAL alone           reports once and ends
       job.py JOURNAL wait            reports once more for each line of its standard input
       job.py JOURNAL again           reports once, then becomes `alone` by exec
"""

from __future__ import annotations

import os
import sys

from opentelemetry.metrics import set_meter_provider
from tests.support.journal import exports, provider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

JOURNAL, ROLE = sys.argv[1:]

meters = provider(JOURNAL, 60)
set_meter_provider(meters)
instrumentor = HardwareInstrumentor()
instrumentor.instrument(sample_interval=10)


def report() -> None:
    """Read the sources and export."""
    session = instrumentor._telemetry.session
    assert session is not None
    session.read_now(10)
    meters.force_flush()


report()
# One write, even if output is not buffered: several ranks write at the same time.
sys.stdout.write(f"{os.getpid()} {os.environ['OTEL_PYTHON_HARDWARE_JOB']}\n")
sys.stdout.flush()
if ROLE == "wait":
    for _ in sys.stdin:
        report()
        print("reported", flush=True)
elif ROLE == "again":
    assert exports(JOURNAL)
    os.execv(sys.executable, [sys.executable, __file__, JOURNAL, "alone"])
