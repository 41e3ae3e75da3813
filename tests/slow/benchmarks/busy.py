"""The share of its speed that a thread loses which computes without pause while our threads read.

The thread computes in turns, without and with the package. At the default of one reading every 2 s the loss is too
small to measure. So the sources are read again and again, and the loss per reading is what counts. Collections are left
out.

The thread and our threads are on CPUs of their own, as the scheduler of an idle machine puts them. Each system call of
ours then waits up to 5 ms for the interpreter lock (``sys.getswitchinterval()``), and makes the thread switch.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import Round, in_turn, work, yardstick
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import HardwareInstrumentor, sources
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.sources import Source

_SAMPLE = 2.0  # seconds between two samples at the defaults

_PERIOD = 0.01  # seconds between two samples here; a reading beside a busy thread takes longer

_SLOW = 0.75  # seconds between two slow reads here: about five readings, as at the defaults

_TURN = 1.0  # seconds of one turn


def figures(seconds: float) -> list[Figure]:
    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    cpus = os.sched_getaffinity(0)
    here, there = min(cpus), max(cpus)
    turn = min(_TURN, max(0.05, seconds / 20))

    readings: list[float] = []

    def beside() -> float:
        with _on(there), _reading(provider) as count, _on(here):
            count.clear()
            computed = _computed(turn)
            readings.append(sum(count.values()) / max(1, len(count)) / turn)
            return computed

    def stick() -> float:
        with _on(there):
            far = yardstick()
        return max(yardstick(), far)

    with _on(here):
        cost = in_turn({"alone": lambda: _computed(turn), "beside": beside}, seconds, stick)
    per_second = max(1.0, statistics.median(readings))

    def loss(each: Round) -> float:
        return 100 * max(0.0, 1 - each["alone"] / each["beside"]) / per_second / _SAMPLE

    return [cost.figure("a busy thread loses", loss, "% of speed", bound=0.1)]


def _computed(seconds: float) -> float:
    """Milliseconds of wall time for a fixed computation, which is repeated for so long."""
    begun, times = time.perf_counter(), 0
    while (took := time.perf_counter() - begun) < seconds:
        work(1000)
        times += 1
    return 1e3 * took / times


@contextmanager
def _reading(provider: MeterProvider) -> Iterator[Counter[str]]:
    """Our threads read the default sources again and again; the number of readings by source."""
    instrumentor = HardwareInstrumentor()
    count: Counter[str] = Counter()

    def counted(source: Source) -> Iterable[Point]:
        yield from type(source).read(source)
        count[source.name] += 1

    slow, sources.SLOW = sources.SLOW, _SLOW
    instrumentor.instrument(meter_provider=provider, sample_interval=_PERIOD)
    try:
        session = instrumentor._telemetry.session
        assert session is not None
        wait_for(lambda: session.is_reporter, 30, "lock of the reporter")
        wait_for(lambda: all(runner.state is not State.STARTING for runner in session.runners), 30, "first reading")
        for runner in session.runners:
            if runner.source is not None:
                vars(runner.source)["read"] = partial(counted, runner.source)
        yield count
    finally:
        instrumentor.uninstrument()
        sources.SLOW = slow


@contextmanager
def _on(cpu: int) -> Iterator[None]:
    """Keep this thread, and threads that it starts meanwhile, on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
