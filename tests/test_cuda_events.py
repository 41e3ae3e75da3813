"""Time in the CUDA stream: a stand-in for the documented interface of ``torch.cuda``, and PyTorch without a GPU.

A test on a GPU is in tests/gpu.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests import children

from opentelemetry.instrumentation.hardware import Config, HardwareSpanProcessor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.pipeline.session import Session

STREAM_TIME = c.SPAN_GPU_STREAM_TIME.name

LONG = 600.0
"""Seconds after which the program counts as hung. On a busy machine, importing torch takes a minute."""

AT_BEGIN = ("is_initialized", "is_current_stream_capturing", "Event", "current_stream", "record")
AT_END = ("is_initialized", "is_current_stream_capturing", "Event", "record", "synchronize", "elapsed_time")


class StandIn:
    """A stand-in for ``torch.cuda``: what its documentation says of these functions, without a GPU.

    Attributes:
        initialized, capturing: What the functions answer.
        stream: The current stream.
        work: Seconds until each stream has done its work.
        failing: The function that raises this error.
        called: The functions that were called.
        waited: When the last event was waited for, in nanoseconds since the epoch.
    """

    def __init__(self) -> None:
        self.initialized = True
        self.capturing = False
        self.stream = "stream 7"
        self.work = {"stream 7": 1.0}
        self.failing: tuple[str, BaseException] | None = None
        self.called: list[str] = []
        self.waited = 0

    def _call(self, name: str) -> None:
        self.called.append(name)
        if self.failing is not None and self.failing[0] == name:
            raise self.failing[1]

    def is_initialized(self) -> bool:
        self._call("is_initialized")
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        self._call("is_current_stream_capturing")
        return self.capturing

    def current_stream(self) -> str:
        self._call("current_stream")
        return self.stream

    def Event(self, enable_timing: bool = False, blocking: bool = False) -> StandInEvent:  # noqa: N802
        self._call("Event")
        return StandInEvent(self, enable_timing)


class StandInEvent:
    """A stand-in for ``torch.cuda.Event``."""

    def __init__(self, cuda: StandIn, enable_timing: bool) -> None:
        self._cuda = cuda
        self._timing = enable_timing
        self._at: float | None = None
        self._completed = False

    def record(self, stream: str) -> None:
        self._cuda._call("record")
        self._at = self._cuda.work[stream]

    def synchronize(self) -> None:
        self._cuda._call("synchronize")
        self._cuda.waited = time.time_ns()
        self._completed = True

    def elapsed_time(self, end_event: StandInEvent) -> float:
        self._cuda._call("elapsed_time")
        if self._at is None or end_event._at is None or not end_event._completed or not self._timing:
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return 1000.0 * (end_event._at - self._at)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """The stand-in, as the module that the program has imported."""
    found, torch = StandIn(), ModuleType("torch")
    torch.cuda = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    return found


class Tracing:
    """A TracerProvider with our processor, which exports to memory."""

    def __init__(self, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        config = Config(sources=["process"], **{"spans_cuda_events": "on", **settings})
        self.provider.add_span_processor(HardwareSpanProcessor(Session(config, spans=True)))  # it is not started
        self.tracer = self.provider.get_tracer("tests")

    def span(self, during: Callable[[], object] = lambda: None, **options: Any) -> ReadableSpan:
        """Make a span, and return what was exported."""
        span = self.tracer.start_span("step", **options)
        during()
        span.end()
        return self.ended()

    def ended(self) -> ReadableSpan:
        return self.exporter.get_finished_spans()[-1]


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    found = Tracing()
    yield found
    found.provider.shutdown()


def queue(cuda: StandIn, seconds: float) -> Callable[[], None]:
    """Give the current stream work."""

    def work() -> None:
        cuda.work[cuda.stream] += seconds

    return work


def test_span_has_the_time_in_its_stream(cuda: StandIn, tracing: Tracing) -> None:
    """Also one that is shorter than the time between two readings."""
    assert tracing.span(queue(cuda, 0.25)).attributes == {STREAM_TIME: 0.25}
    assert tracing.span(queue(cuda, 0.5)).attributes == {STREAM_TIME: 0.5}


def test_span_ends_after_the_wait(cuda: StandIn, tracing: Tracing) -> None:
    """So that its energy includes that of its kernels."""
    span = tracing.span(queue(cuda, 0.25))
    assert cuda.waited
    assert span.end_time is not None
    assert span.end_time >= cuda.waited


def test_span_that_another_thread_ends_has_the_time_of_the_stream_it_began_in(cuda: StandIn, tracing: Tracing) -> None:
    span = tracing.tracer.start_span("step")
    queue(cuda, 0.25)()
    cuda.stream = "stream of another thread"
    cuda.work[cuda.stream] = 50.0
    other = threading.Thread(target=span.end)
    other.start()
    other.join()
    assert tracing.ended().attributes == {STREAM_TIME: 0.25}


def test_it_is_off_by_default(cuda: StandIn) -> None:
    assert not Tracing(spans_cuda_events=None).span(queue(cuda, 0.25)).attributes
    assert cuda.called == []


def test_program_without_torch_does_not_get_it(tracing: Tracing) -> None:
    before = "torch" in sys.modules
    assert not tracing.span().attributes
    assert ("torch" in sys.modules) == before


@pytest.mark.parametrize(
    ("call", "at_end"), [*((call, False) for call in AT_BEGIN), *((call, True) for call in AT_END)]
)
def test_errors_leave_the_attribute_out(
    cuda: StandIn, tracing: Tracing, call: str, at_end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    failing = call, RuntimeError("CUDA error: device-side assert triggered")
    cuda.failing = None if at_end else failing

    def fail() -> None:
        cuda.failing = failing

    for _ in range(2):
        span = tracing.span(fail)
        assert not span.attributes
        assert span.end_time is not None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "device-side assert triggered" in record.getMessage()


@pytest.mark.parametrize("answer", [{"capturing": True}, {"initialized": False}])
@pytest.mark.parametrize("at_end", [False, True])
def test_nothing_is_recorded_while_a_graph_is_captured_or_after_a_fork(
    cuda: StandIn, tracing: Tracing, answer: dict[str, bool], at_end: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """PyTorch is not initialized in a forked child, even if it is in the parent."""

    def change() -> None:
        vars(cuda).update(answer)
        cuda.called.clear()

    if not at_end:
        change()
    assert not tracing.span(change).attributes
    assert set(cuda.called) <= {"is_initialized", "is_current_stream_capturing"}
    assert caplog.records == []


def test_interrupted_wait_ends_the_span(cuda: StandIn, tracing: Tracing) -> None:
    cuda.failing = "synchronize", KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        tracing.span()
    assert tracing.ended().end_time is not None


def test_spans_that_are_filtered_or_made_later_do_not_wait(cuda: StandIn, tracing: Tracing) -> None:
    assert not tracing.span(start_time=time.time_ns() - 10**9).attributes
    assert not Tracing(spans_filter=["-name:step"]).span().attributes
    assert cuda.called == []
    assert not Tracing(spans_min_duration=3600.0).span().attributes


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is None,
    reason="torch is not installed, and not in the extra `test`: pip install torch",
)
def test_real_torch_without_a_gpu_leaves_it_out() -> None:
    """Also when it says that CUDA is initialized: then each call fails."""
    with children.started([sys.executable, "-c", WITHOUT_GPU], {"CUDA_VISIBLE_DEVICES": ""}) as child:
        out, err = child.communicate(timeout=LONG)
    assert child.returncode == 0, err
    assert out.split() == ["False", "False"]
    assert err.count("The GPU time of a span is unknown") == 1


WITHOUT_GPU = """
import torch
from tests.test_cuda_events import STREAM_TIME, Tracing
assert not torch.cuda.is_available()
tracing = Tracing()
print(STREAM_TIME in tracing.span().attributes)
torch.cuda.is_initialized = lambda: True
print(STREAM_TIME in tracing.span().attributes)
"""
