"""What spans cost a program that saturates its interpreter: requests per second, and CPU time per request.

Two threads compute without pause, in requests of about 2 ms with one or two short spans inside the span of the request.
They hold the interpreter lock all the time, so whatever else runs in the process takes it from them. Equal programs
differ by up to 4 %, by the addresses of their objects and the seed of their hashes. So the programs of all modes are
forked from one process, and there are several such groups. When all have warmed up, and a span of a second gets its
values in each, they work in turn, for half a second each, while the others wait.

The speed of a shared machine varies by half within a tenth of a second. So the unit is the CPU time of the computing
itself, which is the same in each mode: throughput is this time as a share of the time that has passed, and CPU time per
request is the process's CPU time as a multiple of it. An agent's CPU time is not included, but it does take time from
the program if all CPUs are busy.

A figure is the median over the rounds of the ratio to the program without the package.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import STICK, judged, reference, work
from tests.support.sink import Sink
from tests.support.waiting import wait_for
from tests.tools.nvml import MIB, FakeNvml, h100, listed, moving

from opentelemetry import metrics, trace

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

THREADS = 2

_REQUEST = 3.3  # milliseconds of computing in a request: about 750 spans per second

_WARM_UP = 8.0  # seconds for which each program works before

_GROUPS = 3  # processes of each mode

_START = 30.0  # seconds that all of them take to start and to end, about

_START_LIMIT = 120.0  # seconds after which it has failed to

_SLICE = 0.5  # seconds for which each works in turn


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
    """What a program did, with the CPU time of the computing as unit: in a second, and the process's CPU time."""

    throughput: float
    cpu: float


def figures(seconds: float) -> list[Figure]:
    names = [_WITHOUT, *MODES]
    rounds = max(1, round((seconds - _START) / _SLICE / len(names)))
    taken: list[dict[str, Measured]] = []
    with Sink() as sink, ExitStack() as stack:
        groups = [stack.enter_context(_Group(names, sink.environment())) for _ in range(min(_GROUPS, rounds))]
        for group in groups:
            group.wait()
        for number in range(rounds):
            first, group = number % len(names), groups[number % len(groups)]
            taken.append({name: group.work(name) for name in (*names[first:], *names[:first])})
    return [figure for name in MODES for figure in _of(name, taken)]


def _of(name: str, rounds: Sequence[Mapping[str, Measured]]) -> list[Figure]:
    """The figures of a mode."""
    mode = MODES[name]
    pairs = [(found[name], found[_WITHOUT]) for found in rounds]
    requests = [ours.throughput / without.throughput for ours, without in pairs]
    cpu = [ours.cpu / without.cpu for ours, without in pairs]
    return [
        judged(Figure(f"requests/s, {name}", median(requests), "x", bound=mode.least, minimum=True), requests),
        judged(Figure(f"CPU/request, {name}", median(cpu), "x", bound=mode.most), cpu),
    ]


class _Group:
    """A process for each mode, which works when it is told to."""

    def __init__(self, names: Sequence[str], environment: Mapping[str, str]) -> None:
        spawn = multiprocessing.get_context("spawn")
        pairs = [spawn.Pipe() for _ in names]
        self._pipes = {name: ours for name, (ours, _) in zip(names, pairs)}
        self._theirs = {name: theirs for name, (_, theirs) in zip(names, pairs)}
        self._process = spawn.Process(target=_fork, args=(dict(environment), self._theirs))

    def __enter__(self) -> _Group:
        self._process.start()
        for pipe in self._theirs.values():
            pipe.close()
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes.values():
            pipe.close()
        self._process.join(_START_LIMIT)
        self._process.kill()

    def wait(self) -> None:
        """Wait until all can be measured."""
        for pipe in self._pipes.values():
            if not pipe.poll(_START_LIMIT):
                raise RuntimeError(f"a program did not start in {_START_LIMIT:g} s")
            pipe.recv()

    def work(self, name: str) -> Measured:
        """Let one work for a slice of time."""
        self._pipes[name].send(_SLICE)
        return Measured(*self._pipes[name].recv())


def _fork(environment: dict[str, str], pipes: dict[str, Connection]) -> None:
    """Fork the programs of a group, and wait for their end."""
    fork = multiprocessing.get_context("fork")
    programs = [fork.Process(target=_be, args=(name, environment, pipes)) for name in pipes]
    for program in programs:
        program.start()
    for pipe in pipes.values():
        pipe.close()
    for program in programs:
        program.join()


# -- the program


def _be(name: str, environment: dict[str, str], pipes: dict[str, Connection]) -> None:
    """Be the program in a mode."""
    pipe = pipes.pop(name)
    for other in pipes.values():
        other.close()
    for variable in [each for each in os.environ if each.startswith("OTEL_")]:
        del os.environ[variable]
    os.environ.update(environment)
    metrics.set_meter_provider(MeterProvider([PeriodicExportingMetricReader(_NoMetrics())], shutdown_on_exit=False))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_NoSpans()))
    trace.set_tracer_provider(provider)
    tracer = trace.get_tracer("contention")
    mode = MODES.get(name)
    with TemporaryDirectory() as folder:
        if mode is not None:
            _start(mode, Path(folder))
        done, may_work = [0.0] * THREADS, threading.Event()
        may_work.set()
        for number in range(THREADS):
            threading.Thread(target=_serve, args=(tracer, done, number, may_work), daemon=True).start()
        time.sleep(_WARM_UP)
        if mode is not None and mode.values:
            wait_for(lambda: _has(tracer, mode.values), 60.0, f"a span with {mode.values}")
        may_work.clear()
        pipe.send(None)
        while True:
            try:
                seconds = pipe.recv()
            except EOFError:
                break
            begun, cpu = time.perf_counter(), time.process_time()
            worked = sum(done)
            may_work.set()
            time.sleep(seconds)
            may_work.clear()
            elapsed, cpu = time.perf_counter() - begun, time.process_time() - cpu
            worked = sum(done) - worked
            pipe.send((worked / elapsed, cpu / worked))
        if mode is not None:
            _instrumentor().uninstrument()


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


def _serve(tracer: Tracer, done: list[float], number: int, may_work: threading.Event) -> None:
    """Work on requests while it may, and add up the CPU time of the computing."""
    turns = int(_REQUEST / reference() * STICK / 4)

    def compute() -> None:
        begun = time.thread_time()
        work(turns)
        done[number] += time.thread_time() - begun

    for children in cycle((1, 2)):
        may_work.wait()
        with tracer.start_as_current_span("request"):
            for _ in range(children):
                compute()
                with tracer.start_as_current_span("query"):
                    compute()
            for _ in range(4 - 2 * children):
                compute()


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
