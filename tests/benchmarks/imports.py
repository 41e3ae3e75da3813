"""The cost of importing the package in a process that has imported the OpenTelemetry modules that it needs."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from functools import partial

from tests.benchmarks import fresh
from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import in_turn

_GROUND = (
    "opentelemetry.instrumentation.instrumentor",
    "opentelemetry.metrics",
    "opentelemetry.sdk.metrics",
    "opentelemetry.sdk.metrics.export",
)
_INSTRUMENTORS = {
    "ours": "opentelemetry.instrumentation.hardware:HardwareInstrumentor",
    "peer": "opentelemetry.instrumentation.system_metrics:SystemMetricsInstrumentor",
}


def figures(seconds: float) -> list[Figure]:
    memory: dict[str, float] = {}

    def run(instrumentor: str) -> float:
        milliseconds, memory[instrumentor] = fresh.call(f"{__name__}:added", instrumentor)
        return float(milliseconds)

    runs: dict[str, Callable[[], float]] = {}
    for name, instrumentor in _INSTRUMENTORS.items():
        run(instrumentor)  # writes the byte code
        runs[name] = partial(run, instrumentor)
        runs[f"memory of {name}"] = partial(memory.__getitem__, instrumentor)
    cost = in_turn(runs, seconds, plain=[f"memory of {name}" for name in _INSTRUMENTORS])
    return [
        cost.figure("import", "ours", "ms of CPU", "system-metrics", "peer", bound=15.0),
        cost.figure("private memory", "memory of ours", "MiB", "system-metrics", "memory of peer", bound=1.5),
    ]


def added(instrumentor: str) -> tuple[float, float]:
    """CPU milliseconds and private megabytes of importing an instrumentor, named as in an entry point."""
    for ground in _GROUND:
        importlib.import_module(ground)
    module, _, name = instrumentor.partition(":")
    before, begun = _private(), time.process_time_ns()
    getattr(importlib.import_module(module), name)
    return (time.process_time_ns() - begun) / 1e6, (_private() - before) / 2**20


def _private() -> int:
    """Bytes of memory that this process shares with no other."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))
