"""Print as JSON the state of the sources of IPUs, TPUs and Neuron devices, and their modules and threads."""

from __future__ import annotations

import json
import sys
import threading

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

NAMES = ("graphcore", "tpu", "trainium")
MESSAGES = "opentelemetry.instrumentation.hardware.sources.tpu.messages"
LIBRARIES = ("grpc", "tensorflow", "libtpu", "cloud_tpu_client", "gcipuinfo", "google.protobuf", MESSAGES)

instrumentor = HardwareInstrumentor()
provider = MeterProvider([InMemoryMetricReader()])
instrumentor.instrument(meter_provider=provider, sample_interval=0.1, reporter="always")
session = instrumentor._telemetry.session
assert session is not None
session.read_now(10)
session.read_now(10)
states = {each.name: each.state.value for each in session.runners if each.name in NAMES}
threads = [each.name for each in threading.enumerate() if any(name in each.name for name in NAMES)]
imported = [name for name in LIBRARIES if name in sys.modules]
print(json.dumps({"states": states, "threads": threads, "imported": imported}))
