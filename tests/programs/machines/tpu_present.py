"""Prints, as JSON, the exported duty cycles, and the modules that the package's threads imported."""

from __future__ import annotations

import json
import sys
import threading
from importlib.abc import MetaPathFinder

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.journal import flatten

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
values = [
    point.value
    for point in flatten(reader.get_metrics_data())
    if point.name == "hw.npu.utilization" and point.attributes["hw.npu.task"] == "general"
]
imported = sorted({name for thread, name in searched if thread.startswith("otel-hardware")})
print(json.dumps({"values": sorted(values), "imported": imported}))
instrumentor.uninstrument()
