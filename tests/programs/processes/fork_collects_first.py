"""A program whose forked child collects before our fork hook runs there, as readers do on a busy machine.

Usage: fork_collects_first.py JOURNAL. Prints the PID of the child.
"""

from __future__ import annotations

import os
import sys

from tests.support.journal import provider
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

METRIC = "process.memory.usage"


def has_read() -> bool:
    session = instrumentor._telemetry.session
    return session is not None and any(metric.name == METRIC for metric in session.collector.metrics())


def collect_in_child() -> None:
    lock.release()
    meters.force_flush()


if __name__ == "__main__":
    instrumentor = HardwareInstrumentor()
    meters = provider(sys.argv[1], 3600)
    # No thread of ours may hold the lock while the child is made: only our fork hook renews it there.
    lock = meters._measurement_consumer._lock
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=collect_in_child)
    instrumentor.instrument(meter_provider=meters)
    until(has_read, METRIC)
    meters.force_flush()
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    print(child)
