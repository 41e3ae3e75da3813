"""A program that instruments itself and collects twice for each line of stdin.

Usage: nvidia_run.py. A line is the environment as JSON, beyond the program's own. Prints for each, as JSON, what was
exported and logged, and what the process has loaded by then.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from importlib.abc import MetaPathFinder
from unittest.mock import patch

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.journal import flatten

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

asked: list[str] = []
heard: list[str] = []


class Witness(MetaPathFinder):
    """Records the imports of our threads."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if threading.current_thread().name.startswith("otel-hardware"):
            asked.append(name)


class Ear(logging.Handler):
    """A logging handler that keeps the messages."""

    def emit(self, record: logging.LogRecord) -> None:
        heard.append(f"{record.levelname} {record.getMessage()}")


def run() -> dict[str, object]:
    """Instrument, collect twice and return the result."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(meter_provider=provider, sample_interval=10)
    session = instrumentor._telemetry.session
    assert session is not None
    for _ in range(2):
        session.read_now(10)
        points = list(flatten(reader.get_metrics_data()))
    runner = next(runner for runner in session.runners if runner.name == "nvidia")
    with open("/proc/self/maps") as maps:
        mapped = "nvidia-ml" in maps.read()
    report = {
        "points": [(each.name, dict(each.attributes), each.value) for each in points],
        "missing": runner.source.unsupported if runner.source else [],
        "problem": runner.problem.reason if runner.problem else None,
        "imported": "pynvml" in sys.modules,
        "mapped": mapped,
        "asked": asked.copy(),
        "heard": "\n".join(heard),
    }
    instrumentor.uninstrument()
    provider.shutdown()
    return report


logging.basicConfig(level=logging.INFO, handlers=[Ear()])
for line in sys.stdin:
    sys.meta_path.insert(0, witness := Witness())
    with patch.dict(os.environ, json.loads(line)):
        print(json.dumps(run()), flush=True)
    sys.meta_path.remove(witness)
    asked.clear()
    heard.clear()
