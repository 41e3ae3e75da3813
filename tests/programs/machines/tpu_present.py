"""Prints, as JSON, the exported duty cycles, and the modules that the package's threads imported."""

from __future__ import annotations

import json
import sys
import threading
from importlib.abc import MetaPathFinder

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.sources.reading import numbers

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

searched: list[tuple[str, str]] = []


class ImportRecorder(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        searched.append((threading.current_thread().name, name))


sys.meta_path.insert(0, ImportRecorder())
reader = InMemoryMetricReader()
instrumentor = HardwareInstrumentor()
instrumentor.instrument(meter_provider=MeterProvider([reader]), sources=["tpu"])
session = instrumentor._telemetry.session
assert session is not None
services = sys.modules["opentelemetry.instrumentation.hardware.sources.tpu.services"]
vars(services)["TIMEOUT"] = 30.0  # machines may be busy
session.read_now(60)
data = reader.get_metrics_data()
assert data is not None
values = [
    point.value
    for resource in data.resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics
    if metric.name == "hw.npu.utilization"
    for point in numbers(metric)
    if (point.attributes or {})["hw.npu.task"] == "general"
]
imported = sorted({name for thread, name in searched if thread.startswith("otel-hardware")})
print(json.dumps({"values": sorted(values), "imported": imported}))
instrumentor.uninstrument()
