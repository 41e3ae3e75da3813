"""Print as JSON the modules that our threads import after ``instrument()``, while all sources are read."""

from __future__ import annotations

import json
import sys
import threading
from importlib.abc import MetaPathFinder

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

asked: list[tuple[str, str]] = []


class Witness(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        asked.append((threading.current_thread().name, name))


sys.meta_path.insert(0, Witness())
instrumentor = HardwareInstrumentor()
details = ["cpu", "connections", "processes"]
provider = MeterProvider([InMemoryMetricReader()])
instrumentor.instrument(meter_provider=provider, sample_interval=0.1, detail=details, include_metrics=["*"])
session = instrumentor._telemetry.session
assert session is not None
session.read_now(10)
session.read_now(10)
print(json.dumps(sorted({name for thread, name in asked if thread.startswith("otel-hardware")})))
