"""A program on a machine with an empty /proc and /sys, in a new mount namespace.

Prints as JSON the application's counter and the names of our metrics; status 77 if namespaces are not allowed.
"""

from __future__ import annotations

import json

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support import namespace
from tests.support.journal import APPLICATION, OURS, flatten

namespace.enter()
namespace.empty("/proc", "/sys")

from opentelemetry.instrumentation.hardware import HardwareInstrumentor  # noqa: E402 - on that machine from the start

reader = InMemoryMetricReader()
meters = MeterProvider([reader])
meters.get_meter(APPLICATION).create_counter("application.steps").add(1)
instrumentor = HardwareInstrumentor()
instrumentor.instrument(meter_provider=meters)
if instrumentor._telemetry.session is not None:
    instrumentor._telemetry.session.read_now(10)
points = list(flatten(reader.get_metrics_data()))
instrumentor.uninstrument()
print(
    json.dumps(
        {
            "application": [point.value for point in points if point.scope == APPLICATION],
            "ours": sorted({point.name for point in points if point.scope == OURS}),
        }
    )
)
