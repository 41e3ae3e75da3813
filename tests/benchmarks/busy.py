"""The share of its speed that a thread loses which computes without pause while our threads read.

The thread computes in turns, without and with the package. At the default of one reading every 2 s the loss is too
small to measure, so the sources are read 40 times as often and the loss is divided by 40. Collections are left out.

The thread and our threads are on CPUs of their own, as the scheduler of an idle machine puts them. Each system call of
ours then waits up to 5 ms for the interpreter lock (``sys.getswitchinterval()``), and makes the thread switch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import in_turn, work, yardstick
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.pipeline.runner import State

_SAMPLE = 2.0
"""Seconds between two samples at the defaults."""

_OFTEN = 40
"""How many times as often the sources are read here."""

_TURN = 0.5
"""Seconds of one turn."""


def figures(seconds: float) -> list[Figure]:
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    cpus = os.sched_getaffinity(0)
    here, there = min(cpus), max(cpus)
    turn = min(_TURN, max(0.05, seconds / 20))

    def beside() -> float:
        with _on(there), _reading(provider), _on(here):
            return _computed(turn)

    def stick() -> float:
        with _on(there):
            far = yardstick()
        return max(yardstick(), far)

    with _on(here):
        cost = in_turn({"alone": lambda: _computed(turn), "beside": beside}, seconds, stick, most=None)
    loss = max(0.0, 1 - cost["alone"] / cost["beside"]) / _OFTEN
    return cost.marked(Figure("a busy thread loses", 100 * loss, "% of speed", bound=0.1))


def _computed(seconds: float) -> float:
    """Milliseconds of wall time for a fixed computation, which is repeated for so long."""
    begun, times = time.perf_counter(), 0
    while (took := time.perf_counter() - begun) < seconds:
        work(1000)
        times += 1
    return 1e3 * took / times


@contextmanager
def _reading(provider: MeterProvider) -> Iterator[None]:
    """Our threads read the default sources often."""
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(meter_provider=provider, sample_interval=_SAMPLE / _OFTEN)
    try:
        session = instrumentor._session
        assert session is not None
        wait_for(lambda: all(runner.state is not State.STARTING for runner in session.runners), 30, "first reading")
        for runner in session.runners:
            if runner.source is not None:
                vars(runner.source)["slow_interval"] = runner.source.slow_interval / _OFTEN
        yield
    finally:
        instrumentor.uninstrument()


@contextmanager
def _on(cpu: int) -> Iterator[None]:
    """Keep this thread, and threads that it starts meanwhile, on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
