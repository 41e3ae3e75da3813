"""What spans cost a program that saturates its interpreter: requests per second, and CPU time per request.

Two threads compute without pause, in requests of about 2 ms with one or two short spans inside the span of the request.
They hold the interpreter lock all the time, so whatever else runs in the process takes it from them. Each measurement
is a fresh process, which is measured when it has warmed up and a span of a second gets its values. CPU time is that of
the program's process alone: an agent is not included, but it does take time of a CPU from the program if all are busy.

Each round measures every mode once, in an order that rotates. A figure is the median over the rounds of the ratio to
the program without the package, and stands beside the smallest and the largest. The simulated driver of the GPUs builds
its answers from text, which costs more than a real one.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer
from tests.benchmarks import fresh
from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import ENOUGH, STICK, reference, slow, work, yardstick
from tests.sink import Sink
from tests.tools.nvml import MIB, FakeNvml, h100, listed, moving
from tests.waiting import wait_for

from opentelemetry import metrics, trace

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

ROUNDS = 8
THREADS = 2

_REQUEST = 2.0
"""Milliseconds of computing in a request."""

_START = 1.2
"""Seconds that a process takes to start and end, about."""

_SHORTEST = 2.6
"""Seconds of a process in a quick run: with fewer seconds, there are fewer rounds."""


class Mode(NamedTuple):
    """How the program is started.

    Attributes:
        least: Minimum of the ratio of throughput.
        most: Maximum of the ratio of CPU time per request.
        gpus: The simulated GPUs.
        used: How many of them the program uses.
        settings: Environment variables, without ``OTEL_PYTHON_HARDWARE_``.
        values: An attribute that a span of a second has when the program has warmed up.
    """

    least: float
    most: float
    gpus: int = 0
    used: int = 0
    settings: Mapping[str, str] = {}
    values: str = ""


MODES = {
    "no GPU": Mode(0.98, 1.02, values="process.cpu.time"),
    "1 of 8 GPUs": Mode(0.98, 1.02, 8, 1, values="hw.energy"),
    "8 of 8 GPUs": Mode(0.97, 1.02, 8, 8, values="hw.energy"),
    "agent": Mode(0.99, 1.02, settings={"MODE": "agent"}, values="process.cpu.time"),
    "spans off": Mode(0.98, 1.02, settings={"SPANS": "off"}),
}
_WITHOUT = "without"


class Measured(NamedTuple):
    """What a program did: requests per second of time, and milliseconds of CPU time per request."""

    throughput: float
    cpu: float


Round = Mapping[str, tuple[Measured, float]]
"""Of each mode, what the program did, and the longer time of the yardstick before and after it."""


def figures(seconds: float) -> list[Figure]:
    rounds = min(ROUNDS, max(1, round(seconds / _SHORTEST / (1 + len(MODES)))))
    length = max(0.5, seconds / rounds / (1 + len(MODES)) - _START)
    taken: list[Round] = []
    with Sink() as sink:
        for number in range(rounds):
            before, found = yardstick(), {}
            for name in _rotated([_WITHOUT, *MODES], number):
                values = fresh.call(f"{__name__}:measured", name, 3 * length / 7, 4 * length / 7, sink.environment())
                after = yardstick()
                found[name] = (Measured(*values), max(before, after))
                before = after
            taken.append(found)
    best = min(reference(), *(stick for found in taken for _, stick in found.values()))
    return [figure for name in MODES for figure in _of(name, taken, best)]


def _of(name: str, rounds: Sequence[Round], best: float) -> list[Figure]:
    """The figures of a mode. A round is quiet if it was so for this mode and for the program without the package."""
    mode = MODES[name]
    quiet = [found for found in rounds if not slow((found[name][1], found[_WITHOUT][1]), best)]
    noisy = len(quiet) < max(ENOUGH, len(rounds) / 2)
    pairs = [(found[name][0], found[_WITHOUT][0]) for found in (quiet if len(quiet) >= ENOUGH else rounds)]
    requests = [ours.throughput / without.throughput for ours, without in pairs]
    cpu = [ours.cpu / without.cpu for ours, without in pairs]
    figures = [
        Figure(f"requests/s, {name}", statistics.median(requests), "x", bound=mode.least, minimum=True).over(requests),
        Figure(f"CPU/request, {name}", statistics.median(cpu), "x", bound=mode.most).over(cpu),
    ]
    return [figure._replace(noisy=noisy) for figure in figures]


def _rotated(names: list[str], number: int) -> list[str]:
    first = number % len(names)
    return names[first:] + names[:first]


# -- the program


def measured(name: str, warm: float, seconds: float, environment: dict[str, str]) -> Measured:
    """Be the program in a mode: compute for so many seconds after the warm-up."""
    os.environ.update(environment)
    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(_NoMetrics())], shutdown_on_exit=False))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_NoSpans()))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("contention")
    with TemporaryDirectory() as folder:
        mode = MODES.get(name)
        if mode is not None:
            _start(mode, Path(folder))
        done = [0] * THREADS
        for number in range(THREADS):
            threading.Thread(target=_serve, args=(tracer, done, number), daemon=True).start()
        time.sleep(warm)
        if mode is not None and mode.values:
            wait_for(lambda: _has(tracer, mode.values), 60.0, f"a span with {mode.values}")
        begun, requests, cpu = time.perf_counter(), sum(done), time.process_time()
        time.sleep(seconds)
        elapsed, requests, cpu = time.perf_counter() - begun, sum(done) - requests, time.process_time() - cpu
        if mode is not None:
            _instrumentor().uninstrument()
    return Measured(requests / elapsed, 1e3 * cpu / requests)


def _start(mode: Mode, folder: Path) -> None:
    """Instrument the program as its user does: by environment variables and one call."""
    os.environ.update({f"OTEL_PYTHON_HARDWARE_{key}": value for key, value in mode.settings.items()})
    if mode.gpus:
        used = {
            "FieldValues.83": f"ullong {moving(5_000_000, 250_000.0)}",
            "ComputeRunningProcesses": listed((os.getpid(), 700 * MIB)),
        }
        gpus = ({**h100(index), **(used if index < mode.used else {})} for index in range(mode.gpus))
        os.environ.update(FakeNvml(folder, *gpus).environment)
        del os.environ["FAKE_NVML_CALLS"]  # the calls are not written down
    _instrumentor().instrument()


def _instrumentor() -> HardwareInstrumentor:
    # The program without the package does not import it.
    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

    return HardwareInstrumentor()


def _serve(tracer: Tracer, done: list[int], number: int) -> None:
    """Work on requests until the process ends, and count them."""
    turns = int(_REQUEST / reference() * STICK / 4)
    while True:
        with tracer.start_as_current_span("request"):
            work(turns)
            with tracer.start_as_current_span("query"):
                work(turns)
            if done[number] % 2:
                with tracer.start_as_current_span("render"):
                    work(turns)
            else:
                work(turns)
            work(turns)
        done[number] += 1


def _has(tracer: Tracer, attribute: str) -> bool:
    """Whether a span of a second that ends now has this attribute."""
    span = tracer.start_span("probe", start_time=time.time_ns() - 10**9)
    span.end()
    assert isinstance(span, ReadableSpan)
    return attribute in (span.attributes or {})


class _NoSpans(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


class _NoMetrics(MetricExporter):
    def export(self, metrics_data: object, timeout_millis: float = 0, **kwargs: object) -> MetricExportResult:
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 0) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 0, **kwargs: object) -> None:
        pass
