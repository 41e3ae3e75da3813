"""Instrument before a provider is set, set one, and repeat.

Prints, as JSON, how often each series of ours is in one export: after the provider was set, after ``uninstrument()``,
after ``instrument()`` with the provider that is global now, and after the same one is given explicitly as well.
"""

from __future__ import annotations

import json
from collections import Counter

from opentelemetry.metrics import get_meter_provider, set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.journal import OURS, flatten

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

instrumentor = HardwareInstrumentor()
reader = InMemoryMetricReader()


def counts() -> dict[str, int]:
    """Return the number of our metrics in an export, and the count of the most frequent series."""
    if instrumentor._telemetry.session is not None:
        for _ in range(2):  # what is of the time between two readings is there as well
            instrumentor._telemetry.session.read_now(10)
    ours = [point for point in flatten(reader.get_metrics_data()) if point.scope == OURS]
    series = Counter(point.series for point in ours)
    return {"metrics": len({point.name for point in ours}), "most": max(series.values(), default=0)}


report = {}
instrumentor.instrument(sources="process")
set_meter_provider(MeterProvider([reader]))
report["set later"] = counts()
instrumentor.uninstrument()
report["uninstrumented"] = counts()
instrumentor.instrument(sources="process")
report["again"] = counts()
instrumentor.instrument(meter_provider=get_meter_provider())
report["explicit too"] = counts()
instrumentor.uninstrument()
instrumentor.instrument(meter_provider=get_meter_provider(), sources="process")
report["explicit alone"] = counts()
print(json.dumps(report))
