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
_OURS = "opentelemetry.instrumentation.hardware"
_PEERS = "opentelemetry.instrumentation.system_metrics"


def figures(quick: bool) -> list[Figure]:
    rounds = 3 if quick else 15
    memory: dict[str, list[float]] = {_OURS: [], _PEERS: []}

    def run(module: str) -> float:
        milliseconds, megabytes = fresh.call(f"{__name__}:added", module)
        memory[module].append(megabytes)
        return float(milliseconds)

    with TemporaryDirectory() as compiled:  # as an installed package is, whatever this checkout was told about bytecode
        os.environ["PYTHONPYCACHEPREFIX"] = compiled
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        for module in memory:
            fresh.call(f"{__name__}:added", module)
        cost = in_turn({module: partial(run, module) for module in memory}, rounds)
    added = {module: sorted(values)[len(values) // 2] for module, values in memory.items()}
    beside = "system-metrics"
    return [
        Figure("import, beyond OpenTelemetry's own", cost[_OURS], "ms CPU", beside, cost[_PEERS], 15.0),
        Figure("  private memory that it adds", added[_OURS], "MB", beside, added[_PEERS], 1.5),
    ]


def added(module: str) -> tuple[float, float]:
    """CPU milliseconds and private megabytes of importing a module in this process."""
    for name in _GROUND:
        importlib.import_module(name)
    before, begun = _private(), time.process_time_ns()
    importlib.import_module(module)
    return (time.process_time_ns() - begun) / 1e6, (_private() - before) / 2**20


def _private() -> int:
    """Bytes that this process shares with nobody."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith("Private_"))
