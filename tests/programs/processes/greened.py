"""A program whose threads are replaced by those of ``eventlet`` or ``gevent`` before anything else is imported.

Usage: greened.py eventlet|gevent|eventlet-late|gevent-late. Late: after OpenTelemetry, as celery does it.
Prints the number of collections that had values, our threads that have ended, and the output of a tool.
"""

from __future__ import annotations

import sys

name, _, late = sys.argv[1].partition("-")


def patch() -> None:
    if name == "gevent":
        import gevent.monkey

        gevent.monkey.patch_all()
    else:
        import eventlet

        eventlet.monkey_patch()


if not late:
    patch()

import time  # noqa: E402

from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402

from opentelemetry.instrumentation.hardware import HardwareInstrumentor  # noqa: E402
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool  # noqa: E402
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread  # noqa: E402


def alive(thread: ReaderThread) -> bool:
    return thread._thread is not None and thread._thread.is_alive()


reader = InMemoryMetricReader()
provider = MeterProvider([reader])
HardwareInstrumentor().instrument(meter_provider=provider, sample_interval=0.1, sources=["host", "process"])
session = HardwareInstrumentor()._telemetry.session
assert session is not None
if late:
    session.read_now(60)
    patch()
found = 0
deadline = time.monotonic() + 60
while found < 5 and time.monotonic() < deadline:
    time.sleep(0.05)
    found += reader.get_metrics_data() is not None
tool = Command(Tool("sh", arguments=("-c", "sleep 0.2; echo read"))).run([], 60)
print(found, [thread.name for thread in session.threads if not alive(thread)], tool.stdout.decode().strip())
