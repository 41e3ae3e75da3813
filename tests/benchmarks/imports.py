"""What importing us adds to a process that has the OpenTelemetry modules that we stand on."""

from __future__ import annotations

import importlib
import os
import time
from functools import partial
from tempfile import TemporaryDirectory

from tests.benchmarks import fresh
from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import in_turn

_GROUND = (
    "opentelemetry.instrumentation.instrumentor",
    "opentelemetry.metrics",
    "opentelemetry.sdk.metrics",
    "opentelemetry.sdk.metrics.export",
)
_OURS = "opentelemetry.instrumentation.hardware:HardwareInstrumentor"
_PEERS = "opentelemetry.instrumentation.system_metrics:SystemMetricsInstrumentor"


def figures(quick: bool) -> list[Figure]:
    rounds = 3 if quick else 15
    memory: dict[str, list[float]] = {_OURS: [], _PEERS: []}

    def run(instrumentor: str) -> float:
        milliseconds, megabytes = fresh.call(f"{__name__}:added", instrumentor)
        memory[instrumentor].append(megabytes)
        return float(milliseconds)

    with TemporaryDirectory() as compiled:  # as an installed package is, whatever this checkout was told about bytecode
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for instrumentor in memory:
            fresh.call(f"{__name__}:added", instrumentor)
        cost = in_turn({instrumentor: partial(run, instrumentor) for instrumentor in memory}, rounds)
    added = {instrumentor: sorted(values)[len(values) // 2] for instrumentor, values in memory.items()}
    beside = "system-metrics"
    return [
        Figure("import, beyond OpenTelemetry's own", cost[_OURS], "ms CPU", beside, cost[_PEERS], 15.0),
        Figure("  private memory that it adds", added[_OURS], "MB", beside, added[_PEERS], 1.5),
    ]


def added(instrumentor: str) -> tuple[float, float]:
    """CPU milliseconds and private megabytes of importing an instrumentor, which is named as by an entry point."""
    for ground in _GROUND:
        importlib.import_module(ground)
    module, _, name = instrumentor.partition(":")
    before, begun = _private(), time.process_time_ns()
    getattr(importlib.import_module(module), name)
    return (time.process_time_ns() - begun) / 1e6, (_private() - before) / 2**20


def _private() -> int:
    """Bytes that this process shares with nobody."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))
