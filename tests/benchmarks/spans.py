"""What a span costs on the thread of the application: with our processor, beside the SDK alone.

A span of two seconds has six attributes of a GPU; a short one has none. The ledger is filled beforehand, and no thread
of ours runs, so the figures are those of the calls alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import Tracer
from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import in_turn

from opentelemetry.instrumentation.hardware import HardwareSpanProcessor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.pipeline.ledger import Ledger
from opentelemetry.instrumentation.hardware.pipeline.rows import SIZE
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config

_SPANS = 200
"""Spans of one round."""

_LONG = 2_000_000_000


def figures(seconds: float) -> list[Figure]:
    ledger, read = _full_ledger()
    session = Session(Config(sources=["process"]), spans=True)  # it is not started
    session.ledgers = [ledger]
    ours, plain = TracerProvider(shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
    ours.add_span_processor(HardwareSpanProcessor(session))
    unrecorded = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
    unrecorded.add_span_processor(HardwareSpanProcessor(session))
    off = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
    slow: dict[str, float] = {}

    def cost(name: str, provider: TracerProvider, length: int) -> float:
        read()
        median, slow[name] = _cost(provider.get_tracer("spans"), length)
        return median

    rounds = in_turn(
        {
            "long": lambda: cost("long", ours, _LONG),
            "long p99": lambda: slow["long"],
            "short": lambda: cost("short", ours, 0),
            "bare": lambda: cost("bare", plain, _LONG),
            "bare p99": lambda: slow["bare"],
            "unrecorded": lambda: cost("unrecorded", unrecorded, _LONG),
            "off": lambda: cost("off", off, _LONG),
        },
        seconds,
    )
    bare, p99, without = rounds["bare"], rounds["bare p99"], rounds["off"]
    unrecorded_cost = max(0.0, rounds["unrecorded"] - without)
    return rounds.marked(
        Figure("added to a span of 2 s, median", rounds["long"] - bare, "µs", "a bare span", bare, 10),
        Figure("added to a span of 2 s, p99", rounds["long p99"] - p99, "µs", "a bare span, p99", p99, 25),
        Figure("added to a short span, median", rounds["short"] - bare, "µs", "a bare span", bare),
        Figure("added to a span that is not recorded", unrecorded_cost, "µs", "a bare one", without),
    )


def _cost(tracer: Tracer, length: int) -> tuple[float, float]:
    """The median and the 99th percentile of the microseconds of starting and ending a span."""
    found = []
    for _ in range(_SPANS):
        start = time.time_ns() - length
        begin = time.thread_time_ns()
        tracer.start_span("span", start_time=start).end()
        found.append((time.thread_time_ns() - begin) / 1e3)
    found.sort()
    return found[_SPANS // 2], found[int(0.99 * _SPANS)]


def _full_ledger() -> tuple[Ledger, Callable[[], None]]:
    """A ledger of ten minutes of a GPU that is in use, and what adds a reading to it."""
    now = [time.time() - 0.1 * SIZE]
    ledger = Ledger(lambda: now[0], lambda: now[0])
    gpu: dict[str, Any] = {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0"}

    def read() -> None:
        ledger.add(
            [
                c.HW_ENERGY(200.0 * now[0], {**gpu, c.HW_TYPE: "gpu"}),
                c.HW_GPU_TIME(0.5 * now[0], {**gpu, c.GPU_TASK: "general"}),
                c.HW_GPU_MEMORY_USAGE(int(now[0]) << 20, gpu),
                c.HW_GPU_THROTTLE_TIME(0.1 * now[0], {**gpu, c.THROTTLE_REASON: "power_cap"}),
            ]
        )

    def read_now() -> None:
        now[0] = max(time.time(), now[0])
        read()

    for _ in range(SIZE):
        now[0] += 0.1
        read()
    ledger.use(frozenset({"GPU-1"}))
    return ledger, read_now
