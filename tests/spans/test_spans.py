"""Hardware numbers on spans: the real SDK, the real instrumentor with its threads, and a simulated NVML."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import pytest
from opentelemetry.sdk.metrics import Meter, MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanLimits, SpanProcessor, Tracer, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Decision, Sampler, SamplingResult
from opentelemetry.trace import NonRecordingSpan
from tests.support.children import PATIENCE, command, run, succeed
from tests.support.recorded import Recorded, Rowed
from tests.support.waiting import wait_for
from tests.tools.load import WAVERING, Constant, Load, check_energy, loaded
from tests.tools.nvml import MIB, FakeNvml, Gpu, h100, listed

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import Config, HardwareInstrumentor, HardwareSpanProcessor, sources, spans
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.spans.attributes import measured
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.spans.ledger import Ledger
from opentelemetry.instrumentation.hardware.spans.open_span import OpenSpan
from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder
from opentelemetry.instrumentation.hardware.spans.rows import ACCELERATOR, Rows

GPU_ATTRIBUTES = {
    each.name
    for each in (
        c.SPAN_ENERGY,
        c.SPAN_UNCERTAINTY,
        c.SPAN_GPU_TIME,
        c.SPAN_GPU_UTILIZATION,
        c.SPAN_GPU_MEMORY_PEAK,
        c.SPAN_GPU_THROTTLE_TIME,
    )
}
CPU_TIME, ENERGY = c.SPAN_CPU_TIME.name, c.SPAN_ENERGY.name

LONG = 2.0  # seconds of a span on the simulated machine


class Tracing:
    """A TracerProvider that exports to memory, set as the global one."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False) if provider is None else provider
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))  # before ours
        self.tracer = self.provider.get_tracer("tests.scope")

    def ended(self) -> ReadableSpan:
        return self.exporter.get_finished_spans()[-1]

    def span_from(self, begin: float, end: float, name: str = "past", **options: Any) -> dict[str, Any]:
        """Make a span after the fact, and return its attributes."""
        self.tracer.start_span(name, start_time=int(begin * 1e9), **options).end(int(end * 1e9))
        return dict(self.ended().attributes or {})


@contextmanager
def global_provider(provider: TracerProvider) -> Iterator[None]:
    """Set the global TracerProvider, which the API allows only once per process."""
    with (
        patch.object(trace, "_TRACER_PROVIDER", None),
        patch.object(trace, "_TRACER_PROVIDER_SET_ONCE", type(trace._TRACER_PROVIDER_SET_ONCE)()),
    ):
        trace.set_tracer_provider(provider)
        yield


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    found = Tracing()
    yield found
    found.provider.shutdown()


def gpu(load: Load = WAVERING, **changes: Any) -> Gpu:
    """A GPU that is used by this process."""
    return {**loaded(h100(0), load), "ComputeRunningProcesses": listed((os.getpid(), 700 * MIB)), **changes}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[..., FakeNvml]]:
    """Make a machine with simulated GPUs, which the instrumented program reads with its threads."""
    ours = HardwareInstrumentor()
    with patch.object(sources, "SLOW", 0.1), pytest.MonkeyPatch.context() as patches:

        def make(*gpus: Gpu, **settings: Any) -> FakeNvml:
            fake = FakeNvml(tmp_path, *gpus)
            for name, value in fake.environment.items():
                patches.setenv(name, value)
            settings = {"sources": ["nvidia"], "nvidia_smi": "off", "sample_interval": 0.1, **settings}
            ours.instrument(**settings)
            return fake

        yield make
        ours.uninstrument()


def times(span: ReadableSpan) -> tuple[float, float]:
    """When an ended span began and ended, in seconds since 1970."""
    assert span.start_time is not None
    assert span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9


def rows() -> Sequence[Rows]:
    """Return the rows of the accelerators in use."""
    recorder = HardwareInstrumentor()._telemetry.recorder
    readings = recorder._session if recorder is not None else None
    every = readings.span_rows if readings is not None else ()
    return [each for each in every if each.kind == ACCELERATOR and each.use]


def wait_for_readings(seconds: float, used: int = 1) -> tuple[float, float]:
    """Wait until there are readings around so many seconds, of which the end is now. Returns begin and end."""
    begin = time.time()

    def is_covered() -> bool:
        return len(rows()) == used and all(each.newest > begin + 0.1 + seconds for each in rows())

    wait_for(is_covered, PATIENCE, "readings")
    return begin + 0.1, begin + 0.1 + seconds


# -- what the attributes say


def test_span_has_energy_busy_time_and_memory_of_the_gpu_in_use(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    """Also if the provider is set after instrument(), and the exporter's processor is registered before ours."""
    machine(gpu(), gpu(ComputeRunningProcesses="", UUID="GPU-idle"))
    with global_provider(tracing.provider):
        wait_for_readings(0.5)
        with tracing.tracer.start_as_current_span("step", end_on_exit=False) as step:
            time.sleep(LONG)
            step.end(time.time_ns())  # otherwise the SDK's end comes after the last reading, on a busy machine later
    span = tracing.ended()
    found: dict[str, Any] = dict(span.attributes or {})
    assert set(found) >= {*GPU_ATTRIBUTES, c.SPAN_SHARE_ENERGY.name}
    begin, end = times(span)
    check_energy(found, begin, end)
    busy = (WAVERING.joules(begin, end) - WAVERING.base * (end - begin)) / (WAVERING.peak - WAVERING.base)
    assert found[c.SPAN_GPU_TIME.name] == pytest.approx(busy, abs=0.3 * (end - begin)), "the driver gives means"
    assert found[c.SPAN_GPU_UTILIZATION.name] == pytest.approx(found[c.SPAN_GPU_TIME.name] / (end - begin), rel=1e-3)
    assert found[c.SPAN_GPU_MEMORY_PEAK.name] > 1000 * MIB
    assert found[c.SPAN_SHARE_ENERGY.name] == found[ENERGY], "it was alone"


def test_span_that_is_made_after_the_fact_has_the_energy_of_its_time(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    """As vLLM makes ``llm_request``: when the request has finished, with a start in the past."""
    machine(gpu())
    with global_provider(tracing.provider):
        begin, end = wait_for_readings(1.0)
        found = tracing.span_from(begin, end, kind=trace.SpanKind.SERVER)
    check_energy(found, begin, end)


def test_gpu_of_a_child_process_counts(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    """vLLM's API server makes the span, and a child of it computes."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        machine(gpu(ComputeRunningProcesses=listed((child.pid, 700 * MIB))))
        with global_provider(tracing.provider):
            begin, end = wait_for_readings(1.0)
            found = tracing.span_from(begin, end)
        child.communicate(b"\n")
    check_energy(found, begin, end)


def test_gpu_is_noticed_before_the_next_slow_reading(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    with patch.object(sources, "SLOW", 3600.0):
        fake = machine(gpu(ComputeRunningProcesses=""))
        with global_provider(tracing.provider):
            session = HardwareInstrumentor()._telemetry.session
            assert session is not None
            ledger = session.runners[0].ledger
            assert ledger is not None
            wait_for(lambda: any(each.newest > 0 for each in ledger.rows), PATIENCE, "readings")
            begin = time.time()
            fake.set_lines({"gpu0.ComputeRunningProcesses": listed((os.getpid(), 700 * MIB))})
            wait_for_readings(LONG)
            found = tracing.span_from(begin, begin + LONG)
    check_energy(found, begin, begin + LONG)  # also of the time before it was noticed


def test_values_are_sums_over_the_gpus_in_use(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    machine(gpu(), gpu(UUID="GPU-2", MemoryInfo=(81_559 * MIB, 557 * MIB, 11_002 * MIB, 70_000 * MIB)))
    with global_provider(tracing.provider):
        begin, end = wait_for_readings(1.0, used=2)
        found = tracing.span_from(begin, end)
    check_energy(found, begin, end, gpus=2)
    assert found[c.SPAN_GPU_UTILIZATION.name] == pytest.approx(found[c.SPAN_GPU_TIME.name] / 2, rel=1e-3)


def test_cpu_time_is_that_of_the_process(tracing: Tracing) -> None:
    with (
        HardwareInstrumentor(sources=["process"], sample_interval=0.1),
        global_provider(tracing.provider),
        tracing.tracer.start_as_current_span("busy"),
    ):
        before = time.process_time()
        while time.process_time() < before + 1.2:
            sum(range(1000))
        used = time.process_time() - before
    found: dict[str, Any] = dict(tracing.ended().attributes or {})
    assert found[CPU_TIME] == pytest.approx(used, rel=0.01)
    assert c.SPAN_ENERGY.name not in found


@pytest.mark.parametrize("before", [0.0, 0.5])
def test_cpu_time_of_descendants_is_added(tracing: Tracing, before: float) -> None:
    program = "import time\nwhile time.process_time() < 2.0: pass"
    with (
        HardwareInstrumentor(sources=["process"], sample_interval=0.1),
        global_provider(tracing.provider),
        tracing.tracer.start_as_current_span("with a child"),
    ):
        time.sleep(before)
        subprocess.run([sys.executable, "-c", program], check=True)
        time.sleep(1.5)
    found: dict[str, Any] = dict(tracing.ended().attributes or {})
    assert found[c.SPAN_TREE_CPU_TIME.name] > found[CPU_TIME] + 0.5
    assert found[c.SPAN_TREE_MEMORY_PEAK.name] > 10 * MIB


def test_span_during_which_nothing_could_be_read_for_a_while_has_values(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    """As while an extension in C keeps the GIL. If the power varied, the bound could be larger than the energy."""
    machine(gpu(Constant(always=0.25)))
    with global_provider(tracing.provider):
        wait_for_readings(5.0)  # until then the power may be anything
        with tracing.tracer.start_as_current_span("blocked"):
            ctypes.PyDLL(None).usleep(1_500_000)
    blocked = tracing.ended()
    begin, end = times(blocked)  # a busy machine sleeps longer
    assert dict(blocked.attributes or {})[ENERGY] == pytest.approx(250.0 * (end - begin), rel=0.1)


# -- which spans


def test_short_and_unrecorded_spans_are_not_changed(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    machine(gpu())
    with global_provider(tracing.provider):
        begin, end = wait_for_readings(1.0)
        with tracing.tracer.start_as_current_span("parent"):
            assert tracing.span_from(begin + 0.5, begin + 0.501) == {}
            assert tracing.span_from(begin, end)[ENERGY] > 0
        assert CPU_TIME in (tracing.ended().attributes or {}), "a root always has values"
    with global_provider(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)):
        trace.get_tracer("off").start_span("never").end()


def test_short_span_calls_few_functions_of_ours() -> None:
    """In a program that saturates its interpreter, each call costs a share of its throughput: their code is cold."""
    recorder, folders, called = SpanRecorder(), tuple(spans.__path__), list[str]()
    recorder.open(Rowed(Config(), lambda: ()))  # with accelerators
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Recorded(recorder))
    tracer = provider.get_tracer("program")

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(folders):
            called.append(frame.f_code.co_name)

    with tracer.start_as_current_span("root"):
        tracer.start_span("first").end()
        sys.setprofile(profile)
        tracer.start_span("child").end()
        sys.setprofile(None)
    recorder.close()
    # The wrapper of start_span() is not among them, because this recorder has none.
    assert called == ["begin", "begin", "end_span", "end", "_end_share", "forget"]


@pytest.mark.parametrize(
    ("settings", "measures"),
    [
        ({"spans_filter": "name:p*"}, True),
        ({"spans_filter": ["name:other"]}, False),
        ({"spans_filter": "-name:past"}, False),
        ({"spans_filter": "kind:server"}, False),
        ({"spans_filter": "kind:internal,-scope:elsewhere"}, True),
        ({"spans_filter": "scope:tests.*"}, True),
        ({"spans_filter": "-scope:tests.*,name:past"}, False),
        ({"spans_min_duration": 0.9}, True),
        ({"spans_min_duration": "1.5"}, False),
        ({"spans": "off"}, False),
    ],
)
def test_filters(
    machine: Callable[..., FakeNvml], tracing: Tracing, settings: dict[str, object], measures: bool
) -> None:
    machine(gpu(), **settings)
    with global_provider(tracing.provider):
        if settings.get("spans") == "off":
            begin = time.time()
            assert tracing.span_from(begin - 1.0, begin) == {}
            assert rows() == []
            return
        begin, end = wait_for_readings(1.0)
        assert bool(tracing.span_from(begin, end)) == measures


def test_filter_that_matches_nothing_is_logged_once(caplog: pytest.LogCaptureFixture, tracing: Tracing) -> None:
    with HardwareInstrumentor(sources=["process"], spans_filter=["name:generate"]), global_provider(tracing.provider):
        for _ in range(1100):
            tracing.tracer.start_span("POST /generate").end()
    assert [each.message for each in caplog.records] == ["spans_filter has matched none of the first 1000 spans"]


# -- energy that adds up


class Meters:
    """A MeterProvider, and what it exports."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def points(self, metric: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        assert data is not None
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]


def test_shares_and_the_metric_by_operation_add_up_to_the_energy(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    """Those of the rest are exact in test_shares.py, with a clock that is set by hand."""
    meters = Meters()
    machine(gpu(), meter_provider=meters.provider, detail=["spans"])
    with global_provider(tracing.provider):
        wait_for_readings(0.5)
        with tracing.tracer.start_as_current_span("parent"):
            time.sleep(0.5)
            with tracing.tracer.start_as_current_span("child"):
                time.sleep(1.0)
            wait_for_readings(0.0)  # what was extrapolated at the end of the child may be too high until then
            with tracing.tracer.start_as_current_span("short"):
                time.sleep(0.05)
        wait_for_readings(1.5)
        (rest,) = meters.points(c.SPANS_ENERGY_UNATTRIBUTED.name)
    found: dict[str, dict[str, Any]] = {
        each.name: dict(each.attributes or {}) for each in tracing.exporter.get_finished_spans()
    }
    share = c.SPAN_SHARE_ENERGY.name
    assert found["child"][share] == found["child"][ENERGY]
    error = found["parent"][c.SPAN_UNCERTAINTY.name] + found["child"][c.SPAN_UNCERTAINTY.name]
    assert found["child"][share] + found["parent"][share] == pytest.approx(found["parent"][ENERGY], abs=error)
    metric = {point.attributes[c.SPAN_NAME]: point.sum for point in meters.points(c.SPAN_ENERGY_BY_OPERATION.name)}
    assert metric["child"] == pytest.approx(found["child"][share], rel=1e-3)
    (short,) = [each for each in tracing.exporter.get_finished_spans() if each.name == "short"]
    begin, end = times(short)
    most = WAVERING.peak * (end - begin)
    least = 0.5 * WAVERING.base / WAVERING.peak * most
    # It has no bound of its own. Its readings are those of its parent, which a busy machine delays.
    assert least < metric["short"] < 1.5 * most + error, "the power of the 0.1 s around it"
    assert sum(metric.values()) == pytest.approx(found["parent"][ENERGY], abs=error)
    assert rest.value > 0.0, "the energy before and after the spans"


def test_energy_by_operation_has_exemplars_and_counts_unsampled_requests(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    """Ten requests at a time, of which one is recorded."""
    meters = Meters()
    machine(gpu(), meter_provider=meters.provider, detail=["spans"])
    sampled = iter([True, *[False] * 9])

    class Tenth(Sampler):
        def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
            decision = Decision.RECORD_AND_SAMPLE if next(sampled) else Decision.DROP
            return SamplingResult(decision, {c.REQUEST_MODEL: "llama"})

        def get_description(self) -> str:
            return "one of ten"

    ten = Tracing(TracerProvider(Tenth(), shutdown_on_exit=False))
    with global_provider(ten.provider):
        wait_for_readings(0.5)
        spans, begins, ends = [], [], []
        for _ in range(10):
            spans.append(ten.tracer.start_span("request", attributes={c.REQUEST_MODEL: "llama"}))
            begins.append(time.time())
        time.sleep(LONG)
        for span in spans:
            span.end()
            ends.append(time.time())
        found: dict[str, Any] = dict(ten.ended().attributes or {})
        (point,) = meters.points(c.SPAN_ENERGY_BY_OPERATION.name)
    assert len(ten.exporter.get_finished_spans()) == 1
    begin, end = times(ten.ended())
    check_energy(found, begin, end)
    # A busy machine may pause between two begins or ends.
    edges = [*begins, end]
    parts = [WAVERING.joules(begin, edges[count], 0) for count, begin in enumerate(begins, 1)]
    share = sum(part / count for count, part in enumerate(parts, 1)) / sum(parts)
    assert found[c.SPAN_SHARE_ENERGY.name] == pytest.approx(found[ENERGY] * share, rel=0.02)
    assert dict(point.attributes) == {c.SPAN_NAME: "request", c.SPAN_KIND: "internal", c.REQUEST_MODEL: "llama"}
    assert point.count == 10
    energy = found[ENERGY] + WAVERING.joules(edges[-1], ends[-1], 0)
    assert point.sum == pytest.approx(energy, abs=found[c.SPAN_UNCERTAINTY.name])
    assert [each.trace_id for each in point.exemplars] == [ten.ended().get_span_context().trace_id]  # type: ignore[union-attr]


def test_operations_are_bounded(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    meters = Meters()
    machine(gpu(), meter_provider=meters.provider, detail=["spans"])
    with global_provider(tracing.provider):
        wait_for_readings(0.5)
        for number in range(130):
            span = tracing.tracer.start_span(f"GET /{number}")
            time.sleep(0.002)
            span.end()
        wait_for_readings(0.5)  # a span counts when its end has been read
        points = meters.points(c.SPAN_ENERGY_BY_OPERATION.name)
    names = [point.attributes[c.SPAN_NAME] for point in points]
    assert len(names) == 101
    assert "other" in names


# -- providers, sessions, processes


@pytest.mark.parametrize("when", ["before", "after"])
def test_provider_that_is_never_global_is_measured_and_not_changed(machine: Callable[..., FakeNvml], when: str) -> None:
    """As those of MLflow and Phoenix, which replaces its exporter when the first processor is added."""

    class Foreign(TracerProvider):
        def add_span_processor(self, span_processor: SpanProcessor) -> None:
            assert type(span_processor) is SimpleSpanProcessor
            super().add_span_processor(span_processor)

    if when == "before":
        tracing = Tracing(Foreign(shutdown_on_exit=False))
    machine(gpu())
    if when == "after":
        tracing = Tracing(Foreign(shutdown_on_exit=False))
    tracing.tracer.start_span("first").end()
    wait_for_readings(0.5)
    with tracing.tracer.start_as_current_span("step"):
        time.sleep(1.0)
    processors = tracing.provider._active_span_processor._span_processors
    assert [type(each) for each in processors] == [SimpleSpanProcessor]
    check_energy(tracing.ended().attributes or {}, *times(tracing.ended()))


def test_uninstrument_restores_the_sdk_and_instrument_measures_again(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    original = Tracer.start_span, TracerProvider.__init__, Span.end, NonRecordingSpan.end
    machine(gpu())
    for _ in range(3):
        HardwareInstrumentor().uninstrument()
        assert (Tracer.start_span, TracerProvider.__init__, Span.end, NonRecordingSpan.end) == original
        tracing.tracer.start_span("without").end()
        machine(gpu())
    with global_provider(tracing.provider):
        tracing.tracer.start_span("first").end()
        begin, end = wait_for_readings(1.0)
        check_energy(tracing.span_from(begin, end), begin, end)


@pytest.mark.parametrize(("owner", "name"), [(Tracer, "start_span"), (Span, "end")])
def test_method_that_another_package_wraps_meanwhile_stays_wrapped(
    machine: Callable[..., FakeNvml], tracing: Tracing, owner: type, name: str
) -> None:
    machine(gpu())
    ours, calls = getattr(owner, name), list[object]()

    def theirs(*args: Any, **kwargs: Any) -> Any:
        calls.append(type(args[0]))
        return ours(*args, **kwargs)

    with patch.object(owner, name, theirs):
        HardwareInstrumentor().uninstrument()
        tracing.tracer.start_span("theirs").end()
        assert getattr(owner, name) is theirs
    assert len(calls) == 1
    assert tracing.ended().name == "theirs"
    HardwareInstrumentor().instrument(sources=["process"])
    HardwareInstrumentor().uninstrument()


def test_end_that_a_processor_has_replaced_is_called(tracing: Tracing) -> None:
    class Replacing(SpanProcessor):
        def on_start(self, span: Any, parent_context: object = None) -> None:
            end = span.end

            def replacement() -> None:
                span.set_attribute("program", 1)
                end()

            span.end = replacement

    tracing.provider.add_span_processor(Replacing())
    HardwareInstrumentor().instrument(sources=["process"])
    try:
        with global_provider(tracing.provider), tracing.tracer.start_as_current_span("span"):
            pass
    finally:
        HardwareInstrumentor().uninstrument()
    assert set(tracing.ended().attributes or {}) == {"program", CPU_TIME}


def test_processor_by_code_needs_no_metrics() -> None:
    """It also serves a child that is forked, which has no threads of ours."""
    program = """
import os, time
from opentelemetry.instrumentation.hardware import HardwareSpanProcessor
from tests.support.traces import spans_in_memory, threads, until
provider, memory = spans_in_memory()
provider.add_span_processor(HardwareSpanProcessor(sources=["process"], sample_interval=0.1))
tracer = provider.get_tracer("by code")
def measured():
    with tracer.start_as_current_span("work"):
        time.sleep(0.5)
    return memory.get_finished_spans()[-1].attributes
until(measured, "attributes")
print(*sorted(measured()))
span = tracer.start_span("at fork")
if os.fork() == 0:
    span.end()
    with tracer.start_as_current_span("in the child"):
        pass
    os._exit(0)
assert os.wait()[1] == 0
span.end()
provider.shutdown()
until(lambda: not threads(), "end of the threads")
"""
    answer = succeed([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program])  # fork beside threads
    assert set(answer.stdout.split()) == {CPU_TIME}
    assert answer.stderr == ""


def test_log_handler_that_makes_spans_does_not_block_a_forked_child() -> None:
    """The start of the session of the child logs that a source is unknown."""
    program = """
import logging, os, time
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from tests.support.traces import spans_in_memory
provider, memory = spans_in_memory()
tracer = provider.get_tracer("program")
class Handler(logging.Handler):
    def emit(self, record):
        tracer.start_span("logged").end()
logging.getLogger().addHandler(Handler())
HardwareInstrumentor().instrument(sources=["process", "unknown"])
if os.fork() == 0:
    memory.clear()
    with tracer.start_as_current_span("work"):
        time.sleep(0.3)
    for span in memory.get_finished_spans():
        print(span.name, *span.attributes, flush=True)
    os._exit(0)
os.wait()
"""
    answer = run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program])  # fork beside threads
    assert sorted({*answer.stdout.splitlines()}) == ["logged", f"work {CPU_TIME}"], answer.stderr


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads
@pytest.mark.parametrize("is_first", [True, False])
def test_forked_child_ends_spans_of_its_parent(
    machine: Callable[..., FakeNvml], tracing: Tracing, is_first: bool
) -> None:
    """They are not measured there: the clock of the child's CPU time begins at 0."""
    machine(gpu())
    with global_provider(tracing.provider):
        wait_for_readings(0.5)
        span = tracing.tracer.start_span("before the fork")
        pid = os.fork()
        if not pid:
            status = 1
            try:
                if is_first:
                    span.end()
                with tracing.tracer.start_as_current_span("in the child"):
                    pass
                if not is_first:
                    span.end()
                assert isinstance(span, ReadableSpan)
                status = len(span.attributes or {})
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        span.end()


# -- faults


def test_spans_that_cannot_be_measured_cost_no_metrics(caplog: pytest.LogCaptureFixture) -> None:
    """A MeterProvider of an older API refuses the boundaries of the histogram."""
    meters, ours = Meters(), HardwareInstrumentor()
    with patch.object(Meter, "create_histogram", side_effect=TypeError("unexpected keyword")):
        ours.instrument(sources=["process"], meter_provider=meters.provider, detail=["spans"])
    try:
        wait_for(lambda: meters.points("process.cpu.time"), PATIENCE, "metrics")
    finally:
        ours.uninstrument()
        meters.provider.shutdown()
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == ["Spans are not measured"]


def test_failure_is_logged_once_and_spans_end(tracing: Tracing, caplog: pytest.LogCaptureFixture) -> None:
    with (
        HardwareInstrumentor(sources=["process"]),
        global_provider(tracing.provider),
        patch("opentelemetry.instrumentation.hardware.spans.recorder.measured", side_effect=AttributeError),
    ):
        for number in range(3):
            tracing.span_from(time.time() - 1.0, time.time(), name=f"span {number}")
    assert [span.name for span in tracing.exporter.get_finished_spans()] == ["span 0", "span 1", "span 2"]
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == [
        "A span could not be measured; further failures are not logged"
    ]


def test_processor_that_may_have_no_thread_leaves_the_spans_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    provider = TracerProvider(shutdown_on_exit=False)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        provider.add_span_processor(HardwareSpanProcessor(sources=["process"]))
    span = provider.get_tracer("program").start_span("span")
    assert id(span) not in OpenSpan.by_id
    span.end()
    provider.shutdown()
    assert [each.message for each in caplog.records] == ["Spans are not measured: can't start new thread"]


def test_span_that_is_open_when_the_interpreter_ends_prints_nothing() -> None:
    """Another module that keeps it may be removed after ours."""
    program = """
import logging
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry import metrics, trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from tests.support.traces import spans_in_memory
provider, memory = spans_in_memory()
metrics.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
HardwareInstrumentor().instrument(sources=["process"])
logging.kept = provider.get_tracer("program").start_span("open")
"""
    answer = run([sys.executable, "-c", program])
    assert (answer.returncode, answer.stderr) == (0, "")


def test_failure_at_the_start_of_a_span_does_not_reach_the_program(caplog: pytest.LogCaptureFixture) -> None:
    provider = TracerProvider()
    processor = HardwareSpanProcessor(sources=["process"])
    provider.add_span_processor(processor)
    try:
        with patch.object(Demand, "begin", side_effect=ValueError("closed")):
            for number in range(2):
                provider.get_tracer("program").start_span(f"span {number}").end()
    finally:
        provider.shutdown()
    assert len([each for each in caplog.records if each.levelno >= logging.ERROR]) == 1


def test_what_a_signal_handler_raises_in_our_code_reaches_the_program() -> None:
    """Such as the soft time limit of Celery, or an alarm that ends a request."""
    outcome = run(command("spans/raising_handler"))
    assert (outcome.returncode, outcome.stderr) == (0, "")
    interrupted, kept = json.loads(outcome.stdout)
    assert len(interrupted) > 10
    assert kept == []


def test_second_end_has_the_warning_of_the_sdk(tracing: Tracing, caplog: pytest.LogCaptureFixture) -> None:
    with HardwareInstrumentor(sources=["process"]), global_provider(tracing.provider):
        span = tracing.tracer.start_span("twice")
        barrier = threading.Barrier(2)

        def end() -> None:
            barrier.wait()
            span.end()

        both = [threading.Thread(target=end) for _ in range(2)]
        for each in both:
            each.start()
        for each in both:
            each.join()
    assert len(tracing.exporter.get_finished_spans()) == 1
    assert [each.message for each in caplog.records] in ([], ["Calling end() on an ended span."])


def test_span_that_another_thread_ends_meanwhile_is_not_changed_any_more(tracing: Tracing) -> None:
    """Its exporter reads the attributes, and fails if they change."""

    def end_elsewhere(*_: object) -> dict[str, float]:
        other = threading.Thread(target=type(span).end, args=(span,))
        other.start()
        other.join()
        return {c.SPAN_ENERGY.name: 1.0}

    with (
        HardwareInstrumentor(sources=["process"]),
        global_provider(tracing.provider),
        patch("opentelemetry.instrumentation.hardware.spans.recorder.measured", side_effect=end_elsewhere),
    ):
        span = tracing.tracer.start_span("shared", start_time=time.time_ns() - 10**9)
        span.end()
    (found,) = tracing.exporter.get_finished_spans()
    assert dict(found.attributes or {}) == {}


def test_memory_of_open_spans_is_bounded_and_released(tracing: Tracing) -> None:
    with HardwareInstrumentor(sources=["process"]), global_provider(tracing.provider):
        plain = _size_of_spans(TracerProvider(shutdown_on_exit=False).get_tracer("plain"), 8_000)
        with_ours = _size_of_spans(tracing.tracer, 8_000)
    assert with_ours - plain < 400, "bytes per open span"


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_limit_of_attributes_is_kept_and_those_of_the_program_stay(
    limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    tracing = Tracing(TracerProvider(shutdown_on_exit=False, span_limits=SpanLimits(max_span_attributes=limit)))
    with HardwareInstrumentor(sources=["process"]):
        tracing.tracer.start_span("span", attributes={"own": 1}).end()
    expected = {"own"} if limit == 1 else {"own", CPU_TIME} if limit else set()
    assert set(tracing.ended().attributes or {}) == expected
    assert caplog.messages == []


def _size_of_spans(tracer: trace.Tracer, count: int) -> float:
    tracemalloc.start()
    spans = [tracer.start_span("open") for _ in range(count)]
    size = tracemalloc.get_traced_memory()[0] / len(spans)
    tracemalloc.stop()
    return size


def read(*devices: str, seconds: int = 20, energy: Sequence[str] = (), every: float = 1.0) -> tuple[Rows, ...]:
    """Return the rows of devices in use that were read once per second, and of which some have energy."""
    now = [0.0]
    ledger = Ledger(Rows, lambda: now[0], lambda: now[0])
    ledger.use(devices, is_known=True)
    while now[0] < seconds:
        for each in devices:
            found = [c.HW_GPU_TIME(0.5 * now[0], {c.HW_ID: each, c.HW_NAME: each, c.GPU_TASK: "general"})]
            if each in energy:
                found.append(c.HW_ENERGY(5.0 * now[0], {c.HW_ID: each, c.HW_NAME: each, c.HW_TYPE: "gpu"}))
            ledger.add(found, {each: now[0]})
        now[0] += every
    return ledger.rows


def test_unknown_of_one_device_is_absent() -> None:
    found = measured(read("GPU-1", "GPU-2", energy=["GPU-1"]), 2.0, 7.0)
    assert ENERGY not in found
    assert found[c.SPAN_GPU_TIME.name] == 5.0
    assert found[c.SPAN_GPU_UTILIZATION.name] == 0.5


def test_sum_without_a_device_that_was_not_read_is_absent() -> None:
    both = read("GPU-1", energy=["GPU-1"]) + read("GPU-2", energy=["GPU-2"], seconds=10)
    assert measured(both, 2.0, 7.0)[ENERGY] == 50.0
    assert measured(both, 2.0, 17.0) == {}


def test_energy_below_its_bound_is_absent() -> None:
    """The span is shorter than the time between two readings, and they are far from its ends."""
    rows = read("GPU-1", energy=["GPU-1"], every=2.0)
    assert measured(rows, 3.0, 17.0)[ENERGY] == 70.0
    assert set(measured(rows, 2.9, 3.1)) == {c.SPAN_GPU_TIME.name, c.SPAN_GPU_UTILIZATION.name}
    assert measured(rows, 2.95, 3.0) == {}, "no reading is about so short a time"


def test_public_name_is_a_span_processor() -> None:
    from opentelemetry.sdk.trace import SpanProcessor

    assert issubclass(HardwareSpanProcessor, SpanProcessor)
