"""What a span costs on the thread of the application: with our processor, beside the SDK alone.

A span of two seconds has all attributes of a GPU and of the process, a short root has its CPU time, and a short child,
which most spans are, has none. The rows are filled beforehand, and no thread of ours runs, so the figures are those of
the calls alone.

The medians are differences between spans with and without our processor. The 99th percentile is that of the time in our
code, which is measured for each span. The difference between two 99th percentiles would be that of the machine instead:
the timer (250 Hz) interrupts one of 200 spans of 20 µs, but one of 400 spans of 10 µs. It stands beside that of a plain
loop that always takes our median: what that has above the median is noise.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import Tracer
from tests.slow.benchmarks import fresh
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import STICK, Round, Rounds, in_turn, reference, work
from tests.support.recorded import Recorded, Rowed

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.spans.demand import INTERVAL
from opentelemetry.instrumentation.hardware.spans.ledger import Ledger
from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder
from opentelemetry.instrumentation.hardware.spans.rows import CAPACITY, Rows

_SPANS = 200  # spans of one round, for a median

_MANY = 1000  # spans of one round, for the 99th percentile

_FEW = 25  # spans of one round with other work before each

_LONG = 2_000_000_000

_SOURCE = Path(__file__).read_text("utf-8")
_DATA = bytearray(8 << 20)


def figures(seconds: float) -> list[Figure]:
    slowest = Rounds(fresh.call(f"{__name__}:slow", seconds / 2))
    recorder = SpanRecorder()
    read = _open(recorder)
    ours, plain = TracerProvider(shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
    ours.add_span_processor(Recorded(recorder))
    unrecorded = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)
    unrecorded.add_span_processor(Recorded(recorder))
    off = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)

    def median(provider: TracerProvider, length: int, has_parent: bool = False) -> float:
        read()
        tracer = provider.get_tracer("spans")
        with tracer.start_as_current_span("root") if has_parent else nullcontext():
            return statistics.median(_microseconds(lambda: _span(tracer, length)) for _ in range(_SPANS))

    def cold(provider: TracerProvider) -> float:
        read()
        tracer = provider.get_tracer("spans")
        return statistics.median(_microseconds(lambda: _span(tracer, _LONG)) for _ in range(_FEW) if _work_otherwise())

    rounds = in_turn(
        {
            "long": lambda: median(ours, _LONG),
            "root": lambda: median(ours, 0),
            "bare": lambda: median(plain, _LONG),
            "child": lambda: median(ours, 0, has_parent=True),
            "bare child": lambda: median(plain, 0, has_parent=True),
            "cold": lambda: cold(ours),
            "bare and cold": lambda: cold(plain),
            "unrecorded": lambda: median(unrecorded, _LONG),
            "off": lambda: median(off, _LONG),
        },
        seconds / 2,
    )

    def added(name: str, beside: str) -> Callable[[Round], float]:
        return lambda each: max(0.0, each[name] - each[beside])

    cold_and_bare = "bare and cold"
    return [
        rounds.figure("added to a span of 2 s, median", added("long", "bare"), "µs", "a bare span", "bare", bound=30),
        slowest.figure(
            "added to a span of 2 s, p99", "ours", "µs", "a plain loop, p99", "loop", bound=1.25, relative=True
        ),
        rounds.figure(
            "the same after other work, median", added("cold", cold_and_bare), "µs", "a bare span", cold_and_bare
        ),
        rounds.figure(
            "added to a short child, median", added("child", "bare child"), "µs", "a bare child", "bare child", bound=10
        ),
        rounds.figure("added to a short root, median", added("root", "bare"), "µs", "a bare span", "bare"),
        rounds.figure("added to a span that is not recorded", added("unrecorded", "off"), "µs", "a bare one", "off"),
    ]


def slow(seconds: float) -> Rounds:
    """The 99th percentile of the time in our code, and that of a loop which always takes the median.

    It is called in a process of its own, because what it replaces makes the SDK slower.
    """
    recorder = _Timed()
    read = _open(recorder)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Recorded(recorder))
    tracer = provider.get_tracer("spans")
    medians: list[float] = []

    def p99() -> float:
        read()
        found = [recorder.microseconds(lambda: _span(tracer, _LONG)) for _ in range(_MANY)]
        medians.append(statistics.median(found))
        return _p99(found)

    def p99_of_loop() -> float:
        turns = int(medians[-1] / (1e3 * reference() / STICK))
        return _p99([_microseconds(lambda: work(turns)) for _ in range(_MANY)])

    return in_turn({"ours": p99, "loop": p99_of_loop}, seconds)


def _p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100)[-1]


class _Timed(SpanRecorder):
    """Times itself."""

    _spent = 0

    def microseconds(self, call: Callable[[], object]) -> float:
        """The time in this recorder during a call."""
        self._spent = 0
        call()
        return self._spent / 1e3

    def begin(self, span: Span, start: int | None) -> None:
        begin = time.thread_time_ns()
        super().begin(span, start)
        self._spent += time.thread_time_ns() - begin

    def end(self, *arguments: Any) -> None:
        begin = time.thread_time_ns()
        super().end(*arguments)
        self._spent += time.thread_time_ns() - begin


def _span(tracer: Tracer, length: int) -> None:
    tracer.start_span("span", start_time=time.time_ns() - length).end()


def _work_otherwise() -> bool:
    """Fill the caches of the CPU with other data and other code, as a program does between its spans."""
    return bool(compile(_SOURCE, __file__, "exec")) and bool(bytes(_DATA))


def _microseconds(call: Callable[[], object]) -> float:
    begin = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - begin) / 1e3


def _open(recorder: SpanRecorder) -> Callable[[], None]:
    """Let a recorder measure with a full ledger. Returns what adds a reading, as often as in a program."""
    now = [time.time() - INTERVAL * CAPACITY]
    ledger = Ledger(Rows, lambda: now[0], lambda: now[0])
    gpu: dict[str, Any] = {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0"}

    def read() -> None:
        points = [
            c.HW_ENERGY(200.0 * now[0], {**gpu, c.HW_TYPE: "gpu"}),
            c.HW_GPU_TIME(0.5 * now[0], {**gpu, c.GPU_TASK: "general"}),
            c.HW_GPU_MEMORY_USAGE(int(now[0]) << 20, gpu),
            c.HW_GPU_THROTTLE_TIME(0.1 * now[0], {**gpu, c.THROTTLE_REASON: "power_cap"}),
        ]
        ledger.add(points, {"GPU-1": now[0]})
        ledger.add([c.PROCESS_CPU_TIME(0.5 * now[0]), c.PROCESS_MEMORY_USAGE(5 << 20)])

    def read_now() -> None:
        if time.time() - now[0] >= INTERVAL:
            now[0] = time.time()
            read()
            recorder.advance()

    for _ in range(CAPACITY):
        now[0] += INTERVAL
        read()
    ledger.use({"GPU-1"}, is_known=True)
    recorder.open(Rowed(Config(), lambda: ledger.rows))
    return read_now
