"""Prints, as JSON, the state of the TPU source on a machine without a TPU, and which of its modules were imported."""

from __future__ import annotations

import json
import sys

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

instrumentor = HardwareInstrumentor()
instrumentor.instrument(sources=["tpu", "process"])
session = instrumentor._session
assert session is not None
session.fresh(10)
(poller,) = (each for each in session.board.pollers if each.name == "tpu")
ours = "opentelemetry.instrumentation.hardware.sources.tpu."
names = ("grpc", "h2", "libtpu", "tensorflow", *(ours + part for part in ("driver", "messages", "rows", "rpc", "sdk")))
print(json.dumps({"state": poller.state.value, "imported": [name for name in names if name in sys.modules]}))
