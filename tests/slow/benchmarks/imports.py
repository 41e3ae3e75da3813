"""The cost of importing the package in a process that has imported the OpenTelemetry modules that it needs.

A program that exports metrics imports the SDK and an exporter as well. The bounds are shares of what these take.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial

from tests.slow.benchmarks import fresh
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import in_turn

_GROUND = (
    "opentelemetry.instrumentation.instrumentor",
    "opentelemetry.metrics",
    "opentelemetry.sdk.metrics",
    "opentelemetry.sdk.metrics.export",
)
_TIME, _MEMORY = 0.25, 0.15
_EXPORTER = "opentelemetry.exporter.otlp.proto.http.metric_exporter"

# What is imported. Of the instrumentors, only the last module counts.
_MODULES = {
    "ours": (*_GROUND, "opentelemetry.instrumentation.hardware:HardwareInstrumentor"),
    "peer": (*_GROUND, "opentelemetry.instrumentation.system_metrics:SystemMetricsInstrumentor"),
    "SDK and exporter": (*_GROUND, f"{_EXPORTER}:OTLPMetricExporter"),
}


def figures(seconds: float) -> list[Figure]:
    memory: dict[str, float] = {}

    def run(name: str) -> float:
        milliseconds, memory[name] = fresh.call(f"{__name__}:added", name)
        return float(milliseconds)

    runs: dict[str, Callable[[], float]] = {}
    for name in _MODULES:
        run(name)  # writes the byte code
        runs[name] = partial(run, name)
        runs[f"memory of {name}"] = partial(memory.__getitem__, name)
    cost = in_turn(runs, seconds, plain=[f"memory of {name}" for name in _MODULES])
    return [
        figure
        for title, unit, before, bound in (
            ("import", "ms of CPU", "", _TIME),
            ("private memory", "MiB", "memory of ", _MEMORY),
        )
        for figure in (
            cost.figure(
                title,
                f"{before}ours",
                unit,
                "SDK and exporter",
                f"{before}SDK and exporter",
                bound=bound,
                relative=True,
            ),
            cost.figure(title, f"{before}ours", unit, "system-metrics", f"{before}peer"),
        )
    ]


def added(name: str) -> tuple[float, float]:
    """CPU milliseconds and private megabytes of an import."""
    *ground, last = _MODULES[name]
    before = _private(), time.process_time_ns()
    for module in ground:
        importlib.import_module(module)
    if name != "SDK and exporter":
        before = _private(), time.process_time_ns()
    module, _, attribute = last.partition(":")
    getattr(importlib.import_module(module), attribute)
    return (time.process_time_ns() - before[1]) / 1e6, (_private() - before[0]) / 2**20


def _private() -> int:
    """Bytes of memory that this process shares with no other."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))
