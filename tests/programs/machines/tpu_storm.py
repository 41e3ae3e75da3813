"""Fork many times during calls to a TPU runtime. The children do the usual work of forked children.

Usage: tpu_storm.py ADDRESS METRIC COUNT SECONDS TIMEOUT

Waits until METRIC is exported, unless it is "". Forks COUNT children, one of each kind of work at a time. Prints the
status of each child, "hung" for one that runs for more than SECONDS, and whether grpcio is loaded. TIMEOUT is that of a
call.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.journal import flatten
from tests.support.relatives import outcome
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.settings import JOB
from opentelemetry.instrumentation.hardware.sources.tpu import services

ADDRESS, METRIC, COUNT, SECONDS = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
vars(services)["TIMEOUT"] = float(sys.argv[5])


def exported() -> bool:
    """Whether the wanted metric is exported."""
    return not METRIC or METRIC in {point.name for point in flatten(reader.get_metrics_data())}


def nothing() -> None:
    """A child that only ends."""


def thread() -> None:
    """A child with a thread of its own."""
    other = threading.Thread(target=nothing)
    other.start()
    other.join()


def program() -> None:
    """A child that starts a program, by vfork and by a fork that runs Python code."""
    subprocess.run(["true"], check=True)
    subprocess.run(["true"], check=True, preexec_fn=nothing)


def fork() -> None:
    """A child that forks again."""
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def instrument() -> None:
    """A child that is a job of its own and instruments itself."""
    del os.environ[JOB]
    HardwareInstrumentor().instrument(**settings)
    until(exported, f"{METRIC} of a child")
    HardwareInstrumentor().uninstrument()


def sockets() -> list[str]:
    """The connections that are open."""
    names = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [os.readlink(name) for name in names if os.path.exists(name) and "socket" in os.readlink(name)]


WORK: tuple[Callable[[], object], ...] = (nothing, gc.collect, thread, program, fork, instrument)


def child(number: int) -> None:
    """Do some work, and end one way or the other."""
    if len(sockets()) > 2 * (not METRIC):  # the client may be started again just now, which makes a pair
        os._exit(2)
    WORK[number % len(WORK)]()
    if number // len(WORK) % 2:
        os._exit(0)
    sys.exit()  # with the interpreter's finalization


reader = InMemoryMetricReader()
settings = {
    "reporter": "always",
    "sources": ["tpu"],
    "tpu_runtime": [ADDRESS],
    "sample_interval": 0.001,
    "meter_provider": MeterProvider([reader]),
}
HardwareInstrumentor().instrument(**settings)
until(exported, METRIC)
outcomes: list[object] = []
for first in range(0, COUNT, len(WORK)):
    pids = []
    for number in range(first, first + len(WORK)):
        pid = os.fork()
        if not pid:
            child(number)
        pids.append(pid)
    outcomes += [outcome(pid, SECONDS) for pid in pids]
until(exported, f"{METRIC} after the last fork")
print(json.dumps({"outcomes": outcomes, "loaded": "grpc" in sys.modules}))
HardwareInstrumentor().uninstrument()
