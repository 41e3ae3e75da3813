"""Fork many times while sources are read and collections run as often as possible. Every fourth child instruments.

Half of these are forked while another thread holds our locks.

Usage: fork_storm.py COUNT SECONDS; prints the status of each child, "hung" for one that did not end in so many seconds.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricsData, PeriodicExportingMetricReader
from tests.support import traces
from tests.support.journal import Journal
from tests.support.relatives import held, outcome

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

COUNT, SECONDS = int(sys.argv[1]), float(sys.argv[2])


class Nowhere(Journal):
    def export(self, metrics_data: MetricsData, *args: object, **kwargs: object) -> object:  # type: ignore[override]
        self.count += 1
        return None


def child(number: int) -> int:
    """Return 0 if a child works correctly, otherwise the number of the failed check."""
    instrumentor = HardwareInstrumentor()
    if instrumentor.is_instrumented_by_opentelemetry:
        return 2
    if traces.threads():
        return 3
    if len(traces.descriptors()) > readers:  # a thread that reads a file during the fork has one open
        return 4
    if number % 4:
        return 0
    instrumentor.instrument(sample_interval=10, meter_provider=provider)  # it is read when it is asked
    session = instrumentor._telemetry.session
    if session is None:
        return 5
    session.read_now(SECONDS)
    snapshot = session.collector.collect({})
    if snapshot.problems:
        return 6
    if not snapshot.values:
        return 7
    instrumentor.uninstrument()
    return 8 if traces.threads() or len(traces.descriptors()) > readers else 0


def locks() -> list[AbstractContextManager[Any]]:
    """All our locks, which a thread that instruments or creates an instrument holds."""
    telemetry = HardwareInstrumentor()._telemetry
    return [telemetry.lock, *(each._lock for each in telemetry.instruments.values())]


exporter = Nowhere("/dev/null")
provider = MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=20)])
HardwareInstrumentor().instrument(sample_interval=0.001, meter_provider=provider, reporter="always")
readers = len(traces.threads())
outcomes: list[object] = []
for number in range(COUNT):
    with nullcontext() if number % 8 else held(*locks()):
        pid = os.fork()
        if not pid:
            try:
                os._exit(child(number))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
    outcomes.append(outcome(pid, SECONDS))
print(json.dumps({"outcomes": outcomes, "collections": exporter.count}))
provider.shutdown()
