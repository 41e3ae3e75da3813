"""A program that closes all descriptors that it knows nothing of, without a fork, and then opens its own.

Usage: closes_all.py sockets|files FOLDER; with "files" each number of ours becomes a file of the program's in which
stands what ours read, with other digits.
Prints, as JSON: how many descriptors of ours are the program's now; which of the program's are no longer its, while
we go on and after uninstrumenting, and what is then left open; and what we say before and at the next reading.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.programs.journal import flatten
from tests.programs.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

KIND, FOLDER = sys.argv[1], Path(sys.argv[2])
OTHER = bytes.maketrans(b"0123456789", b"7777777777")

reader = InMemoryMetricReader()
instrumentor = HardwareInstrumentor()


def numbers() -> dict[str, object]:
    """What does not change in this program, and which sources are well."""
    assert instrumentor._session is not None
    instrumentor._session.fresh(10)
    points = list(flatten(reader.get_metrics_data()))
    names = ("system.memory.limit", "process.thread.count", "otel_hardware.source.up")
    return {
        "names": sorted({point.name for point in points}),
        **{f"{p.name} {sorted(p.attributes.items())}": p.value for p in points if p.name in names},
    }


def open_now() -> dict[int, str]:
    """The numbers, and what each leads to."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the one that listed them
    return found


there = set(open_now())
instrumentor.instrument(meter_provider=MeterProvider([reader]), sample_interval=3600)  # read when asked
until(lambda: numbers() == numbers(), "end of the threads of what is not here")
before = numbers()
ours = {number: os.pread(number, 1 << 16, 0) for number in set(open_now()) - there}
os.closerange(3, 4096)
kept = []
if KIND == "sockets":
    kept = [each for _ in range(20) for each in socket.socketpair()]
    mine = {each.fileno() for each in kept}
else:
    for number, report in ours.items():
        path = FOLDER / str(number)
        path.write_bytes(report.translate(OTHER))
        descriptor = os.open(path, os.O_RDONLY)
        if descriptor != number:
            os.dup2(descriptor, number)
    mine = {number for number, target in open_now().items() if target.startswith(str(FOLDER))}
was = {number: target for number, target in open_now().items() if number in mine}


def lost() -> list[int]:
    """The program's numbers that are no longer its."""
    now = open_now()
    return sorted(number for number, target in was.items() if now.get(number) != target)


threading.Event().wait(0.1)  # it goes on for longer than a round of readings takes
then = numbers()
while_we_go_on = lost()
instrumentor.uninstrument()
print(
    json.dumps(
        {
            "taken": len(mine & set(ours)),
            "lost": while_we_go_on,
            "lost_at_the_end": lost(),
            "left": sorted(set(open_now()) - there - mine),
            "before": before,
            "then": then,
        }
    )
)
