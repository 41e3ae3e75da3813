"""Fork five times at random function calls of a collection, while another thread makes it. The children have metrics.

Usage: forks_in_collection.py SEED; prints the status of each child, or "hung".
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from types import FrameType
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

PATIENCE = 25.0
"""Seconds. The SDK waits for 30 s."""


class Collection(threading.Thread):
    """A collection that stops at its n-th call until it may continue."""

    def __init__(self, stop_at: int) -> None:
        super().__init__(daemon=True)
        self.stop_at = stop_at
        self.calls = 0
        self.stopped, self.resume = threading.Event(), threading.Event()

    def run(self) -> None:
        sys.setprofile(self.count)
        reader.collect()
        sys.setprofile(None)
        self.stopped.set()

    def count(self, frame: FrameType, event: str, argument: Any) -> None:
        self.calls += event == "call"
        if event == "call" and self.calls == self.stop_at:
            sys.setprofile(None)
            self.stopped.set()
            self.resume.wait()


def status(pid: int) -> int | str:
    """The exit status of a child, or "hung"."""
    deadline = time.monotonic() + PATIENCE
    while not (found := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return "hung"
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(found[1])


chance = random.Random(int(sys.argv[1]))
nowhere = open(os.devnull, "w")  # noqa: SIM115 - open until the exit hooks have ended
reader = PeriodicExportingMetricReader(ConsoleMetricExporter(nowhere), export_interval_millis=3_600_000)
provider = MeterProvider([reader])
instrumentor = HardwareInstrumentor()
instrumentor.instrument(meter_provider=provider, sources=["host", "process"], sample_interval=60)
assert instrumentor._session is not None
instrumentor._session.read_now(60)
reader.collect()
whole = Collection(0)
whole.start()
whole.join()
statuses = []
for _ in range(5):
    collection = Collection(chance.randrange(1, whole.calls))
    collection.start()
    collection.stopped.wait()
    child = os.fork()
    if not child:
        provider.get_meter("child").create_counter("child.steps").add(1)
        sys.exit(0)
    statuses.append(status(child))
    collection.resume.set()
    collection.join()
print(statuses)
