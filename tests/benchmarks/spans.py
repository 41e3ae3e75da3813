"""What a span costs on the thread of the application: with our processor, beside the SDK alone.

A span of two seconds has six attributes of a GPU; a short one has none. The ledger is filled beforehand, and no thread
of ours runs, so the figures are those of the calls alone.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Tracer
from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import in_turn

from opentelemetry.instrumentation.hardware import HardwareSpanProcessor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.pipeline.ledger import ROWS, Ledger
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config

_SPANS = 200
"""Spans of one round."""

_LONG = 2_000_000_000


def figures(seconds: float) -> list[Figure]:
    ledger = _full_ledger()
    session = SimpleNamespace(config=Config(), ledgers=[ledger], note_span=lambda: None)
    ours, plain = TracerProvider(shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
    ours.add_span_processor(HardwareSpanProcessor(cast("Session", session)))
    slowest: list[float] = []
    tracers = {"ours": ours.get_tracer("ours"), "plain": plain.get_tracer("plain")}
    rounds = in_turn(
        {
            "long": lambda: _cost(tracers["ours"], _LONG, slowest),
            "short": lambda: _cost(tracers["ours"], 0),
            "bare": lambda: _cost(tracers["plain"], _LONG),
        },
        seconds,
    )
    slowest.sort()
    p99 = slowest[int(0.99 * len(slowest))] if slowest else 0.0
    return rounds.marked(
        Figure(
            "added to a span of 2 s, median", rounds["long"] - rounds["bare"], "µs", "a bare span", rounds["bare"], 10
        ),
        Figure("added to a span of 2 s, p99", p99 - rounds["bare"], "µs", bound=25),
        Figure("added to a short span, median", rounds["short"] - rounds["bare"], "µs", "a bare span", rounds["bare"]),
    )


def _cost(tracer: Tracer, length: int, costs: list[float] | None = None) -> float:
    """The median microseconds of starting and ending a span."""
    found = []
    for _ in range(_SPANS):
        start = time.time_ns() - length
        begin = time.perf_counter_ns()
        tracer.start_span("span", start_time=start).end()
        found.append((time.perf_counter_ns() - begin) / 1e3)
    if costs is not None:
        costs += found
    return sorted(found)[_SPANS // 2]


def _full_ledger() -> Ledger:
    """A ledger of ten minutes of a GPU that is in use, whose newest reading is in the future."""
    now = [time.time() - 0.1 * ROWS + 300.0]
    ledger = Ledger(lambda: now[0], lambda: now[0])
    gpu: dict[str, Any] = {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0"}
    for number in range(ROWS + 10):
        now[0] += 0.1
        ledger.add(
            [
                c.HW_ENERGY(20.0 * number, {**gpu, c.HW_TYPE: "gpu"}),
                c.HW_GPU_TIME(0.05 * number, {**gpu, c.GPU_TASK: "general"}),
                c.HW_GPU_MEMORY_USAGE(number << 20, gpu),
                c.HW_GPU_THROTTLE_TIME(0.01 * number, {**gpu, c.THROTTLE_REASON: "power_cap"}),
            ]
        )
    ledger.used = frozenset({"GPU-1"})
    return ledger
