"""A program that is also instrumented by opentelemetry-instrumentation-system-metrics.

Usage: peer.py JOURNAL ours|theirs; the one that is instrumented first. Ends when both are in three exports.
"""

from __future__ import annotations

import sys
from functools import partial

from opentelemetry.instrumentation.system_metrics import SystemMetricsInstrumentor
from opentelemetry.metrics import set_meter_provider
from tests.support.journal import OURS, exports, provider
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

JOURNAL, FIRST = sys.argv[1:]
THEIRS = "opentelemetry.instrumentation.system_metrics"
# Without metrics that open sockets and processes, which are slow.
CONFIG: dict[str, list[str] | None] = {
    "system.cpu.time": ["user", "system"],
    "system.memory.usage": ["used", "free"],
    "process.cpu.time": ["user"],
}


def both() -> bool:
    last = exports(JOURNAL)[-3:]
    return len(last) == 3 and all(
        "process.cpu.time" in export.names(OURS) & export.names(THEIRS)
        and {"system.cpu.time", "system.memory.usage"} <= export.names(OURS)
        for export in last
    )


set_meter_provider(provider(JOURNAL, 0.05))
both_instrument = [
    partial(HardwareInstrumentor().instrument, sample_interval=0.1),
    SystemMetricsInstrumentor(config=CONFIG).instrument,
]
for instrument in both_instrument if FIRST == "ours" else reversed(both_instrument):
    instrument()
until(both, "reports of both")
