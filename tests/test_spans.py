"""Hardware numbers on spans: the real SDK, the real instrumentor with its threads, and a simulated NVML."""

from __future__ import annotations

import ctypes
import logging
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from tests.children import PATIENCE, command, run
from tests.tools import fake_nvml, need
from tests.tools.nvml import MIB, FakeNvml, Gpu, h100, listed, moving
from tests.waiting import wait_for

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import HardwareInstrumentor, HardwareSpanProcessor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.pipeline import runner
from opentelemetry.instrumentation.hardware.pipeline.collector import Reader
from opentelemetry.instrumentation.hardware.pipeline.ledger import Ledger
from opentelemetry.instrumentation.hardware.pipeline.measured import measured
from opentelemetry.instrumentation.hardware.sources import nvidia
from opentelemetry.instrumentation.hardware.spans import _set_attributes

GPU_ATTRIBUTES = {
    each.name
    for each in (
        c.SPAN_ENERGY,
        c.SPAN_GPU_TIME,
        c.SPAN_GPU_UTILIZATION,
        c.SPAN_GPU_MEMORY_PEAK,
        c.SPAN_GPU_THROTTLE_TIME,
        c.SPAN_RESOLUTION,
    )
}
TREE_ATTRIBUTES = {c.SPAN_TREE_CPU_TIME.name, c.SPAN_TREE_MEMORY_PEAK.name, c.SPAN_RESOLUTION.name}

WATTS = 250.0
LONG = 2.0
"""Seconds of a span on the simulated machine. A busy machine may read late, but the power is constant."""


class Tracing:
    """A TracerProvider that exports to memory, set as the global one."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False) if provider is None else provider
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))  # before ours
        self.tracer = self.provider.get_tracer("tests.scope")

    def ended(self) -> ReadableSpan:
        """The span that ended last."""
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


def gpu(**changes: Any) -> Gpu:
    """A GPU that draws a constant power, used by this process."""
    return {
        **h100(0),
        "PowerUsage": int(1000 * WATTS),
        "FieldValues.83": f"ullong {moving(5_000_000, 1000 * WATTS)}",
        "UtilizationRates": (40, 10),
        "ComputeRunningProcesses": listed((os.getpid(), 700 * MIB)),
        **changes,
    }


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[..., FakeNvml]]:
    """Make a machine with simulated GPUs, which the instrumented program reads with its threads."""
    need(fake_nvml)
    ours = HardwareInstrumentor()
    with patch.object(nvidia.Nvidia, "slow_interval", 0.1), pytest.MonkeyPatch.context() as patches:

        def make(*gpus: Gpu, **settings: Any) -> FakeNvml:
            fake = FakeNvml(tmp_path, *gpus)
            for name, value in fake.environment.items():
                patches.setenv(name, value)
            settings = {"sources": ["nvidia"], "nvidia_smi": "off", "sample_interval": 0.1, **settings}
            ours.instrument(**settings)
            return fake

        yield make
        ours.uninstrument()


def ledgers() -> list[Ledger]:
    session = HardwareInstrumentor()._session
    return session.ledgers if session is not None else []


def wait_for_readings(seconds: float, used: int = 1) -> tuple[float, float]:
    """Wait until the ledger covers so many seconds in which devices are used. Returns such an interval.

    On a busy machine, readings may be too far apart at first.
    """
    wait_for(lambda: any(len(each.used) == used for each in ledgers()), PATIENCE, "device that is used")
    (ledger,) = [each for each in ledgers() if each.used]
    found: list[float] = []

    def is_covered() -> bool:
        begin = time.time()
        for instant in (begin, begin + seconds + 0.2):
            wait_for(lambda: _is_between_readings(ledger, instant), PATIENCE, "reading")  # noqa: B023
        found[:] = begin + 0.1, begin + 0.1 + seconds
        return ledger.rows is not None and ledger.rows.places(*found) is not None

    wait_for(is_covered, PATIENCE, "readings that are close enough")
    return found[0], found[1]


def _is_between_readings(ledger: Ledger, instant: float) -> bool:
    place = None if ledger.rows is None else ledger.rows.place(instant)
    return place is not None and place[3] <= 1.0


# -- what the attributes say


def test_span_has_energy_busy_time_and_memory_of_the_gpu_in_use(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    """Also if the provider is set after instrument(), and the exporter's processor is registered before ours."""
    idle = {
        **gpu(),
        "ComputeRunningProcesses": "",
        "UUID": "GPU-idle",
        "FieldValues.83": f"ullong {moving(9, 70_000.0)}",
    }
    machine(gpu(), idle)
    with global_provider(tracing.provider):
        tracing.tracer.start_span("first").end()  # from now on there are readings for spans
        wait_for_readings(0.5)
        with tracing.tracer.start_as_current_span("step"):
            time.sleep(LONG)
    span = tracing.ended()
    found: dict[str, Any] = dict(span.attributes or {})
    assert set(found) == GPU_ATTRIBUTES
    seconds = (span.end_time - span.start_time) / 1e9  # type: ignore[operator]
    assert found[c.SPAN_ENERGY.name] == pytest.approx(WATTS * seconds, rel=0.02)
    assert found[c.SPAN_GPU_TIME.name] == pytest.approx(0.4 * seconds, rel=0.02)
    assert found[c.SPAN_GPU_UTILIZATION.name] == pytest.approx(0.4, rel=0.02)
    assert found[c.SPAN_GPU_MEMORY_PEAK.name] > 1000 * MIB
    assert 0 < found[c.SPAN_RESOLUTION.name] < seconds


def test_span_that_is_made_after_the_fact_has_the_energy_of_its_time(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    """As vLLM makes ``llm_request``: when the request has finished, with a start in the past."""
    machine(gpu())
    with global_provider(tracing.provider):
        tracing.tracer.start_span("first").end()
        begin, end = wait_for_readings(1.0)
        found = tracing.span_from(begin, end, kind=trace.SpanKind.SERVER)
    assert found[c.SPAN_ENERGY.name] == pytest.approx(WATTS * 1.0, rel=0.02)


def test_gpu_of_a_child_process_counts(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    """vLLM's API server makes the span, and a child of it computes."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        machine(gpu(ComputeRunningProcesses=listed((child.pid, 700 * MIB))))
        with global_provider(tracing.provider):
            tracing.tracer.start_span("first").end()
            begin, end = wait_for_readings(1.0)
            found = tracing.span_from(begin, end)
        child.communicate(b"\n")
    assert found[c.SPAN_ENERGY.name] == pytest.approx(WATTS, rel=0.02)


def test_gpu_is_noticed_before_the_next_slow_reading(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    with patch.object(nvidia.Nvidia, "slow_interval", 3600.0), patch.object(runner, "_LOOKS", 10**6):
        fake = machine(gpu(ComputeRunningProcesses=""))
        with global_provider(tracing.provider):
            tracing.tracer.start_span("first").end()
            wait_for(lambda: any(each.rows and each.rows.count > 20 for each in ledgers()), PATIENCE, "readings")
            (rows,) = [each.rows for each in ledgers()]
            assert rows is not None
            begin, end = rows.times[1], rows.times[rows.count - 1]
            fake.set_lines({"gpu0.ComputeRunningProcesses": listed((os.getpid(), 700 * MIB))})
            wait_for(lambda: any(each.used for each in ledgers()), PATIENCE, "device that is used")
            found = tracing.span_from(begin, end)
    expected = pytest.approx(WATTS * (end - begin), rel=0.1)
    assert found[c.SPAN_ENERGY.name] == expected, "also of the time before it was noticed"


def test_values_are_sums_over_the_gpus_in_use(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    machine(gpu(), gpu(UUID="GPU-2", MemoryInfo=(81_559 * MIB, 557 * MIB, 11_002 * MIB, 70_000 * MIB)))
    with global_provider(tracing.provider):
        tracing.tracer.start_span("first").end()
        begin, end = wait_for_readings(1.0, used=2)
        found = tracing.span_from(begin, end)
    assert found[c.SPAN_ENERGY.name] == pytest.approx(2 * WATTS, rel=0.02)
    assert found[c.SPAN_GPU_UTILIZATION.name] == pytest.approx(0.4, rel=0.02)


def test_host_without_accelerators_has_cpu_time_and_memory_of_the_tree(tracing: Tracing) -> None:
    ours = HardwareInstrumentor()
    ours.instrument(sources=["process"], sample_interval=0.1)
    try:
        with global_provider(tracing.provider):
            tracing.tracer.start_span("first").end()
            wait_for(lambda: any(each.rows and each.rows.count > 2 for each in ledgers()), PATIENCE, "readings")
            before = time.process_time()
            with tracing.tracer.start_as_current_span("busy"):
                while time.process_time() < before + 1.0:
                    sum(range(1000))
        found: dict[str, Any] = dict(tracing.ended().attributes or {})
    finally:
        ours.uninstrument()
    assert set(found) == TREE_ATTRIBUTES
    assert found[c.SPAN_TREE_CPU_TIME.name] == pytest.approx(1.0, rel=0.4)
    assert found[c.SPAN_TREE_MEMORY_PEAK.name] > 10 * MIB


def test_span_during_which_nothing_could_be_read_for_a_while_has_values(tracing: Tracing) -> None:
    """As while an extension in C keeps the GIL."""
    ours = HardwareInstrumentor()
    ours.instrument(sources=["process"], sample_interval=0.1)
    try:
        with global_provider(tracing.provider):
            tracing.tracer.start_span("first").end()
            wait_for(lambda: any(each.rows and each.rows.count > 2 for each in ledgers()), PATIENCE, "readings")
            begin = time.time()
            ctypes.PyDLL(None).usleep(1_500_000)
            wait_for(lambda: tracing.span_from(begin, time.time()), PATIENCE, "values")
    finally:
        ours.uninstrument()


# -- which spans


def test_short_and_unrecorded_spans_are_not_changed(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    machine(gpu())
    with global_provider(tracing.provider):
        tracing.tracer.start_span("first").end()
        begin, _ = wait_for_readings(1.0)
        assert tracing.span_from(begin + 0.5, begin + 0.501) == {}
    with global_provider(TracerProvider(ALWAYS_OFF, shutdown_on_exit=False)):
        span = trace.get_tracer("off").start_span("never")
        assert "end" not in vars(span)
        span.end()


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
        tracing.tracer.start_span("first").end()
        if settings.get("spans") == "off":
            begin = time.time()
            assert tracing.span_from(begin - 1.0, begin) == {}
            assert ledgers() == []
            return
        begin, end = wait_for_readings(1.0)
        assert bool(tracing.span_from(begin, end)) == measures


def test_shares_and_the_metric_of_the_rest_add_up_to_the_energy(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    machine(gpu(), spans_shares="equal")
    session = HardwareInstrumentor()._session
    assert session is not None
    assert session.shares is not None

    def unattributed() -> float:
        values = session.collect(Reader()).values.get(c.SPANS_ENERGY_UNATTRIBUTED, [(0.0, {})])
        return values[0][0]

    with global_provider(tracing.provider):
        tracing.tracer.start_span("first").end()
        wait_for_readings(0.5)
        before = unattributed()
        assert before > 0
        with tracing.tracer.start_as_current_span("parent"), tracing.tracer.start_as_current_span("child"):
            time.sleep(LONG)
        wait_for(lambda: unattributed() > before, PATIENCE, "energy of no span")
    child, parent = (dict(span.attributes or {}) for span in tracing.exporter.get_finished_spans()[-2:])
    assert set(child) == set(parent) == {*GPU_ATTRIBUTES, c.SPAN_SHARE_ENERGY.name, c.SPAN_SHARE_METHOD.name}
    assert child[c.SPAN_SHARE_ENERGY.name] == pytest.approx(child[c.SPAN_ENERGY.name], rel=0.25)
    total = child[c.SPAN_SHARE_ENERGY.name] + parent[c.SPAN_SHARE_ENERGY.name]  # type: ignore[operator]
    assert total == pytest.approx(parent[c.SPAN_ENERGY.name], rel=0.25)


# -- providers, sessions, processes


def test_provider_set_by_a_function_that_was_imported_before_is_noticed(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    imported = trace.set_tracer_provider
    machine(gpu())
    with (
        patch.object(trace, "_TRACER_PROVIDER", None),
        patch.object(trace, "_TRACER_PROVIDER_SET_ONCE", type(trace._TRACER_PROVIDER_SET_ONCE)()),
    ):
        imported(tracing.provider)

        def is_measured() -> bool:
            span = tracing.tracer.start_span("next")
            span.end()
            return HardwareInstrumentor()._spans._provider is tracing.provider

        wait_for(is_measured, PATIENCE, "processor")


@pytest.mark.parametrize(("way", "expected"), [("threads", "1 0\n"), ("close", "0 0\n")])
def test_provider_that_several_threads_notice_gets_one_processor(way: str, expected: str) -> None:
    outcome = run(command("late_tracer_provider", way))
    assert (outcome.stdout, outcome.stderr) == (expected, "")


def test_uninstrument_stops_and_instrument_continues_with_the_same_processor(
    machine: Callable[..., FakeNvml], tracing: Tracing
) -> None:
    original = trace.set_tracer_provider
    machine(gpu())
    with global_provider(tracing.provider):
        for _ in range(3):
            HardwareInstrumentor().uninstrument()
            span = tracing.tracer.start_span("without")
            assert "end" not in vars(span)
            span.end()
            machine(gpu())
            processors = tracing.provider._active_span_processor._span_processors
            assert [type(each).__name__ for each in processors].count("HardwareSpanProcessor") == 1
        tracing.tracer.start_span("first").end()
        begin, end = wait_for_readings(1.0)
        assert tracing.span_from(begin, end)[c.SPAN_ENERGY.name] == pytest.approx(WATTS, rel=0.02)
        HardwareInstrumentor().uninstrument()
    assert trace.set_tracer_provider is original


def test_processor_by_code_needs_no_metrics() -> None:
    """It also serves a child that is forked, which has no threads of ours."""
    program = """
import os, time
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.instrumentation.hardware import HardwareSpanProcessor
from tests.programs.traces import threads, until
memory = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(memory))
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
    answer = run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program])  # fork beside threads
    assert answer.returncode == 0, answer.stderr
    assert set(answer.stdout.split()) == TREE_ATTRIBUTES
    assert answer.stderr == ""


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads
def test_forked_child_ends_spans_of_its_parent(machine: Callable[..., FakeNvml], tracing: Tracing) -> None:
    machine(gpu())
    with global_provider(tracing.provider):
        tracing.tracer.start_span("first").end()
        wait_for_readings(0.5)
        span = tracing.tracer.start_span("before the fork")
        pid = os.fork()
        if not pid:
            status = 1
            try:
                span.end()
                with tracing.tracer.start_as_current_span("in the child"):
                    pass
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        span.end()


# -- faults


def test_provider_that_makes_its_resource_at_each_call_gets_one_processor() -> None:
    class Foreign(TracerProvider):
        @property
        def resource(self) -> Resource:
            return Resource({})

    provider = Foreign(shutdown_on_exit=False)
    ours = HardwareInstrumentor()
    try:
        with global_provider(provider):
            ours.instrument(sources=["process"])
            for _ in range(3):
                ours._spans.check()
            assert len(provider._active_span_processor._span_processors) == 1
    finally:
        ours.uninstrument()


def test_provider_that_accepts_no_processor_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    class Foreign(TracerProvider):
        def add_span_processor(self, span_processor: object) -> None:
            raise RuntimeError("it is shut down")

    ours = HardwareInstrumentor()
    try:
        with global_provider(Foreign(shutdown_on_exit=False)):
            ours.instrument(sources=["process"])
            assert ours._session is not None
            with global_provider(Foreign(shutdown_on_exit=False)):
                pass
    finally:
        ours.uninstrument()
    assert [each.message for each in caplog.records] == ["Spans are not measured: RuntimeError: it is shut down"]


def test_failure_is_logged_once_and_spans_end(tracing: Tracing, caplog: pytest.LogCaptureFixture) -> None:
    ours = HardwareInstrumentor()
    ours.instrument(sources=["process"])
    try:
        with (
            global_provider(tracing.provider),
            patch("opentelemetry.instrumentation.hardware.spans.measured", side_effect=AttributeError),
        ):
            for number in range(3):
                tracing.span_from(time.time() - 1.0, time.time(), name=f"span {number}")
    finally:
        ours.uninstrument()
    assert [span.name for span in tracing.exporter.get_finished_spans()] == ["span 0", "span 1", "span 2"]
    assert [each.message for each in caplog.records if each.levelno >= logging.ERROR] == [
        "A span could not be measured; further failures are not logged"
    ]


def test_processor_that_may_have_no_thread_leaves_the_spans_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def refuse(thread: threading.Thread) -> None:
        if started:
            raise RuntimeError("can't start new thread")
        start(thread)
        started.append(thread)

    provider = TracerProvider(shutdown_on_exit=False)
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        provider.add_span_processor(HardwareSpanProcessor(sources=["process", "host"]))
    span = provider.get_tracer("program").start_span("span")
    assert "end" not in vars(span)
    span.end()
    provider.shutdown()
    assert [each.message for each in caplog.records] == ["Spans are not measured: can't start new thread"]
    assert not started[0].is_alive()


def test_failure_at_the_start_of_a_span_does_not_reach_the_program(caplog: pytest.LogCaptureFixture) -> None:
    provider = TracerProvider()
    processor = HardwareSpanProcessor(sources=["process"])
    provider.add_span_processor(processor)
    try:
        with patch.object(processor.session, "note_span", side_effect=ValueError("closed")):
            for number in range(2):
                provider.get_tracer("program").start_span(f"span {number}").end()
    finally:
        provider.shutdown()
    assert len([each for each in caplog.records if each.levelno >= logging.ERROR]) == 1


def test_second_end_has_the_warning_of_the_sdk(tracing: Tracing, caplog: pytest.LogCaptureFixture) -> None:
    ours = HardwareInstrumentor()
    ours.instrument(sources=["process"])
    try:
        with global_provider(tracing.provider):
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
    finally:
        ours.uninstrument()
    assert len(tracing.exporter.get_finished_spans()) == 1
    assert [each.message for each in caplog.records] == ["Calling end() on an ended span."]


def test_span_that_another_thread_ends_meanwhile_is_not_changed_any_more(tracing: Tracing) -> None:
    """Its exporter reads the attributes, and fails if they change."""
    ours = HardwareInstrumentor()
    ours.instrument(sources=["process"])

    def end_elsewhere(*_: object) -> dict[str, float]:
        other = threading.Thread(target=type(span).end, args=(span,))
        other.start()
        other.join()
        return {c.SPAN_ENERGY.name: 1.0}

    try:
        with (
            global_provider(tracing.provider),
            patch("opentelemetry.instrumentation.hardware.spans.measured", side_effect=end_elsewhere),
        ):
            span = tracing.tracer.start_span("shared", start_time=time.time_ns() - 10**9)
            span.end()
    finally:
        ours.uninstrument()
    (found,) = tracing.exporter.get_finished_spans()
    assert dict(found.attributes or {}) == {}


def test_memory_of_open_spans_is_bounded_and_released(tracing: Tracing) -> None:
    ours = HardwareInstrumentor()
    ours.instrument(sources=["process"])
    try:
        with global_provider(tracing.provider):
            plain = _size_of_spans(TracerProvider(shutdown_on_exit=False).get_tracer("plain"), 8_000)
            with_ours = _size_of_spans(tracing.tracer, 8_000)
    finally:
        ours.uninstrument()
    assert with_ours - plain < 400, "bytes per open span"


def test_attributes_are_set_without_the_validation_of_the_sdk(tracing: Tracing) -> None:
    """Fails if the SDK changes what is used of it: then the public method is used, which takes several microseconds."""
    span: Any = tracing.tracer.start_span("span", attributes={"hw.energy": 0.0, "other": 1})
    with patch.object(type(span), "set_attributes", side_effect=AssertionError):
        _set_attributes(span, {"hw.energy": 2.5})
    span.end()
    assert dict(tracing.ended().attributes or {}) == {"hw.energy": 2.5, "other": 1}


@pytest.mark.parametrize("limit", [0, 1, 3, 7])
def test_limit_of_attributes_is_kept_and_those_of_the_program_stay(
    limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider(shutdown_on_exit=False, span_limits=SpanLimits(max_span_attributes=limit))
    span: Any = provider.get_tracer("limited").start_span("span", attributes={"own": 1})
    _set_attributes(span, {f"hw.{number}": number for number in range(7)})
    assert len(span.attributes) == limit
    assert ("own" in span.attributes) == (limit > 0)
    assert span.dropped_attributes == 8 - limit
    span.end()
    assert caplog.messages == []


def test_attributes_wait_for_those_that_another_thread_sets() -> None:
    """Else there could be more than the limit, or they could be lost."""
    provider = TracerProvider(shutdown_on_exit=False, span_limits=SpanLimits(max_span_attributes=3))
    span: Any = provider.get_tracer("limited").start_span("span")
    with span._lock:
        thread = threading.Thread(target=_set_attributes, args=(span, {"hw.energy": 1.0}))
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join()
    assert dict(span.attributes) == {"hw.energy": 1.0}
    span.end()


def _size_of_spans(tracer: trace.Tracer, count: int) -> float:
    tracemalloc.start()
    spans = [tracer.start_span("open") for _ in range(count)]
    size = tracemalloc.get_traced_memory()[0] / len(spans)
    tracemalloc.stop()
    return size


def test_unknown_of_one_device_is_absent() -> None:
    now = [0.0]
    ledger = Ledger(lambda: now[0], lambda: now[0])
    ledger.use(frozenset({"GPU-1", "GPU-2"}))
    points = [
        c.HW_ENERGY(1.0, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"}),
        *(c.HW_GPU_TIME(5.0, {c.HW_ID: each, c.HW_NAME: each, c.GPU_TASK: "general"}) for each in ("GPU-1", "GPU-2")),
    ]
    for second in range(10):
        now[0] = float(second)
        ledger.add(points)
    found = measured([ledger], 2.0, 7.0)
    assert c.SPAN_ENERGY.name not in found
    assert found[c.SPAN_GPU_TIME.name] == 0.0


def test_sum_without_a_source_that_was_not_read_is_absent() -> None:
    now = [0.0]
    both = [Ledger(lambda: now[0], lambda: now[0]) for _ in range(2)]
    for number, ledger in enumerate(both):
        ledger.use(frozenset({f"GPU-{number}"}))
    for second in range(20):
        now[0] = float(second)
        for number, ledger in enumerate(both[: 1 if second >= 10 else 2]):
            ledger.add([c.HW_ENERGY(5.0 * second, {c.HW_ID: f"GPU-{number}", c.HW_NAME: "GPU", c.HW_TYPE: "gpu"})])
    assert measured(both, 2.0, 7.0)[c.SPAN_ENERGY.name] == pytest.approx(50.0)
    assert measured(both, 2.0, 17.0) == {}


def test_interval_is_that_of_what_is_used() -> None:
    """A GPU that the program does not use is read less often."""
    now = [0.0]
    idle, process = (Ledger(lambda: now[0], lambda: now[0]) for _ in range(2))
    for tenth in range(100):
        now[0] = tenth / 10
        process.add([c.PROCESS_CPU_TIME(now[0]), c.PROCESS_MEMORY_USAGE(5)])
        if tenth % 20 == 0:
            idle.add([c.HW_ENERGY(1.0, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"})])
    found = measured([idle, process], 1.0, 9.0)
    assert set(found) == TREE_ATTRIBUTES
    assert found[c.SPAN_RESOLUTION.name] == pytest.approx(0.1)


def test_public_name_is_a_span_processor() -> None:
    from opentelemetry.sdk.trace import SpanProcessor

    assert issubclass(HardwareSpanProcessor, SpanProcessor)
