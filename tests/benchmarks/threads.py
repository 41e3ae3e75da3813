"""What our threads use of a core at the defaults, in a program that itself does nothing."""

from __future__ import annotations

import threading
import time

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.benchmarks.figure import Figure
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.poller import State

_EXPORT = 60.0
"""Seconds between two collections at the defaults."""


def figures(quick: bool) -> list[Figure]:
    reader = InMemoryMetricReader()
    HardwareInstrumentor().instrument(meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    session = HardwareInstrumentor()._session
    assert session is not None
    wait_for(lambda: all(poller.state is not State.STARTING for poller in session.board.pollers), 30, "first reading")
    reader.get_metrics_data()
    threading.Event().wait(2.0)

    seconds = 6.0 if quick else 20.0
    begun = time.process_time()
    threading.Event().wait(seconds)
    sampled = time.process_time()
    session.fresh(5.0)  # what a collection that is due adds, once a minute
    due = time.process_time() - sampled
    HardwareInstrumentor().uninstrument()
    share = (sampled - begun) / seconds + due / _EXPORT
    return [Figure(f"our threads at the defaults, over {seconds:g} s", 100 * share, "% of core", bound=0.1)]
