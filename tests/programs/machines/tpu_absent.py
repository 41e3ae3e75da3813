"""Prints, as JSON, the state of the TPU source on a machine without a TPU, and which of its modules were imported."""

from __future__ import annotations

import json
import sys

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

instrumentor = HardwareInstrumentor()
provider = MeterProvider([InMemoryMetricReader()])
instrumentor.instrument(meter_provider=provider, sources=["tpu", "process"], reporter="always")
session = instrumentor._telemetry.session
assert session is not None
session.read_now(10)
(runner,) = (each for each in session.runners if each.name == "tpu")
ours = "opentelemetry.instrumentation.hardware.sources.tpu."
names = ("google.protobuf", "grpc", "libtpu", "tensorflow", *(ours + part for part in ("messages", "rpc")))
print(json.dumps({"state": runner.state.value, "imported": [name for name in names if name in sys.modules]}))
