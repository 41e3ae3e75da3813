"""Time in the CUDA stream on a real GPU, with PyTorch: beside the time until torch.cuda.synchronize() returns."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import pytest
from tests.test_cuda_events import STREAM_TIME, Tracing

_SIZE = 4096
_STEPS = 200


@pytest.fixture
def torch() -> Any:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed, and not in the extra `test`: pip install torch")
    import torch

    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA GPU on this machine")
    return torch


def test_time_in_the_stream_is_that_of_its_kernels(torch: Any) -> None:
    matrix = torch.rand(_SIZE, _SIZE, device="cuda")

    def multiply() -> None:
        for _ in range(_STEPS):
            torch.mm(matrix, matrix)

    multiply()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    multiply()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin

    tracing = Tracing()
    multiply()  # before the span: its time is not the span's
    span = tracing.span(multiply)
    found: Any = dict(span.attributes or {})[STREAM_TIME]
    assert found == pytest.approx(seconds, rel=0.05)
    assert tracing.span(lambda: time.sleep(0.2)).attributes[STREAM_TIME] == pytest.approx(0.2, rel=0.1)  # type: ignore[index]


def test_capture_of_a_graph_is_left_alone(torch: Any) -> None:
    matrix = torch.rand(64, 64, device="cuda")
    torch.mm(matrix, matrix)
    tracing = Tracing()
    graph = torch.cuda.CUDAGraph()
    outer = tracing.tracer.start_span("outer")
    with torch.cuda.graph(graph):
        assert not tracing.span(lambda: torch.mm(matrix, matrix)).attributes
    graph.replay()
    outer.end()
    assert STREAM_TIME in (tracing.ended().attributes or {})
