"""measure(): a block of code beside a simulated GPU, nested, in threads and in a forked child."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import command, run, succeed
from tests.support.virtual import Program
from tests.tools import fake_nvml
from tests.tools.load import check_energy

from opentelemetry.instrumentation.hardware import Measurement, measure
from opentelemetry.instrumentation.hardware.spans.measure import _Shared


def printed(*line: object) -> dict[str, Any]:
    outcome = succeed(command("spans/measured", *map(str, line)))
    assert outcome.stderr == ""
    found: dict[str, Any] = json.loads(outcome.stdout)
    return found


def test_block_has_energy_gpu_time_and_cpu_time_of_its_time(tmp_path: Path) -> None:
    fake_nvml()
    found = printed(tmp_path)
    for name in ("first", "outer", "inner", "thread 0", "thread 1", "failed", "child"):
        block = found[name]
        values = {"hw.energy": block["energy"], "hw.uncertainty.energy": block["uncertainty"]}
        check_energy(values, block["end"] - block["seconds"], block["end"])
        assert 0.0 <= block["gpu_time"] <= block["seconds"], name
        assert block["gpu_memory_peak"] > 2**30
    assert found["outer"]["energy"] > found["inner"]["energy"]
    assert found["first"]["cpu_time"] == pytest.approx(0.3, abs=0.1)


def test_ends_are_read_although_a_reading_takes_long() -> None:
    """As with eight GPUs on a busy machine, where the next reading would come a second later."""
    program = Program(only_spans=True)
    program.go_to(1010.0)
    program.runner.pace.span_duration = 0.05
    for seconds in (0.0, 0.3):
        program.clock.now += seconds
        program.runner.read(everything=True)
        assert program.ledger.rows[0].newest == program.clock.now


def test_text_of_a_block_has_microseconds_at_most() -> None:
    block = Measurement()
    block.seconds, block.energy, block.gpu_memory_peak = 0.7239487171173096, 694.3, 69_580_000_000
    assert repr(block) == "Measurement(seconds=0.723949, energy=694.3, gpu_memory_peak=69580000000)"


def test_block_without_a_gpu_has_cpu_time() -> None:
    found = printed()
    assert found["first"]["cpu_time"] == pytest.approx(0.3, abs=0.1)
    assert found["first"]["energy"] is None
    assert found["first"]["gpu_time"] is None


def test_nothing_is_read_between_blocks(tmp_path: Path) -> None:
    fake_nvml()
    assert printed(tmp_path)["calls between blocks"] == 0


def test_import_needs_no_sdk() -> None:
    program = "import sys; from opentelemetry.instrumentation.hardware import measure; print('grpc' in sys.modules)"
    assert run([sys.executable, "-c", program]).stdout == "False\n"


def test_block_in_a_program_without_threads_has_cpu_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_Shared, "readings", None)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with measure() as block:
        sum(range(100_000))
    assert block.cpu_time is not None
    assert block.energy is None
    assert caplog.messages == ["measure() reads no devices: can't start new thread"]
