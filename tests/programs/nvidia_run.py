"""A program that is instrumented and collects twice; prints, as JSON, what came of it and what it took.

Usage: nvidia_run.py, with the settings in the environment; it begins when its standard input says or closes.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from importlib.abc import MetaPathFinder

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.programs.journal import flatten

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

asked: list[str] = []


class Witness(MetaPathFinder):
    """Sees what our threads import."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if threading.current_thread().name.startswith("otel-hardware"):
            asked.append(name)


logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
sys.stdin.readline()
sys.meta_path.insert(0, Witness())
reader = InMemoryMetricReader()
provider = MeterProvider([reader], shutdown_on_exit=False)
instrumentor = HardwareInstrumentor()
instrumentor.instrument(meter_provider=provider, sample_interval=10)
session = instrumentor._session
assert session is not None
for _ in range(2):
    session.fresh(10)
    points = list(flatten(reader.get_metrics_data()))
poller = next(poller for poller in session.board.pollers if poller.name == "nvidia")
with open("/proc/self/maps") as maps:
    mapped = "nvidia-ml" in maps.read()
said = {
    "points": [(each.name, dict(each.attributes), each.value) for each in points],
    "missing": poller.source.missing if poller.source else [],
    "problem": poller.problem.reason if poller.problem else None,
    "imported": "pynvml" in sys.modules,
    "mapped": mapped,
    "asked": asked,
}
instrumentor.uninstrument()
print(json.dumps(said))
