"""A program with metrics, on a machine where the driver of one source does not respond.

Usage: dead_driver.py JOURNAL SOURCE heal|uninstrument|leave [SETTING=VALUE]

It waits until the source is reported as down. Then the driver begins to respond, or the program uninstruments, or it
exits. Prints its observations as JSON.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time

from opentelemetry.metrics import set_meter_provider
from tests.support import traces
from tests.support.journal import Export, newest, provider
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.pipeline import pace, session
from opentelemetry.instrumentation.hardware.sources import filesystem

JOURNAL, SOURCE, END = sys.argv[1:4]
OTHERS = {"process.cpu.time", "system.filesystem.usage" if SOURCE == "host" else "system.cpu.time"}
heard: list[str] = []


class Ear(logging.StreamHandler):  # type: ignore[type-arg]
    """A logging handler that prints and keeps the messages."""

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        heard.append(record.getMessage())


logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", handlers=[Ear()])


def last() -> Export:
    found = newest(JOURNAL)
    assert found is not None
    return found


def health() -> list[int]:
    return last().values("otel_hardware.source.up", otel_hardware_source=SOURCE)


pace.SHORTEST_PERIOD = 0.2  # the driver counts as dead after 0.6 s instead of 3
filesystem._SLOWER = 1
session._LONGEST_JOIN = 0.2
meters = provider(JOURNAL, 0.1)
set_meter_provider(meters)
instrumentor = HardwareInstrumentor()
instrumentor.instrument(sample_interval=0.2, preset="all", **dict(word.split("=") for word in sys.argv[4:]))
until(lambda: newest(JOURNAL), "export")
until(lambda: health() == [0], "metric that reports the source as down")
until(lambda: any(f"Source {SOURCE}" in text for text in heard), "log message about it")
ill = last()


def alone() -> bool:
    """Whether one export has values of all other sources. On a very busy machine, one may be late."""
    global ill
    ill = last()
    up = ill.values("otel_hardware.source.up")
    return up.count(0) == 1 and ill.names() >= OTHERS


until(alone, "export of the others")
report: dict[str, object] = {"others": sorted(ill.names()), "up": ill.values("otel_hardware.source.up")}
if END == "heal":
    os.kill(int(os.environ["DEAD_MOUNT_SERVER"]), signal.SIGUSR1)
    until(lambda: health() == [1], "recovery")
elif END == "uninstrument":
    begun = time.monotonic()
    instrumentor.uninstrument()
    report["seconds"] = time.monotonic() - begun
    report["threads"] = traces.threads()
print(json.dumps(report), flush=True)
