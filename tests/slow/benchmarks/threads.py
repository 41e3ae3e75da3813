"""The share of a core that our threads use at the defaults, in an idle program."""

from __future__ import annotations

import threading
import time

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import in_turn, yardstick
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.pipeline.runner import State

_EXPORT = 60.0  # seconds between two collections at the defaults

_SAMPLE = 2.0  # seconds between two samples at the defaults


def figures(seconds: float) -> list[Figure]:
    reader = InMemoryMetricReader()
    HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    session = HardwareInstrumentor()._telemetry.session
    assert session is not None
    wait_for(lambda: session.is_reporter, 30, "lock of the reporter")
    wait_for(lambda: all(runner.state is not State.STARTING for runner in session.runners), 30, "first reading")
    reader.get_metrics_data()
    pause = min(_SAMPLE, seconds / 2)
    threading.Event().wait(pause)

    def sampled() -> float:
        begun, used = time.monotonic(), _used()
        threading.Event().wait(pause)
        return (_used() - used) / (time.monotonic() - begun)

    rounds = in_turn({"sampled": sampled}, seconds, _stick)
    used = _used()
    session.read_now(5.0)  # once a minute, before a collection
    due = (_used() - used) / _EXPORT
    HardwareInstrumentor().uninstrument()
    # The difference of two clocks can be negative.
    return [rounds.figure("CPU time", lambda each: 100 * max(0.0, each["sampled"] + due), "% of core", bound=0.1)]


def _used() -> float:
    """Seconds of CPU time of all threads but this one."""
    return time.process_time() - time.thread_time()


def _stick() -> float:
    """The yardstick, after a first time that wakes the CPU."""
    yardstick()
    return yardstick()
