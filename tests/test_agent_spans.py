"""Spans beside an agent: a real agent, which reads a simulated GPU, and shares its ledgers with a program."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import PATIENCE, Piped, command, end_of, started
from tests.support.sink import Sink
from tests.support.waiting import wait_for
from tests.tools import fake_nvml

from opentelemetry.instrumentation.hardware import agent
from opentelemetry.instrumentation.hardware import catalog as c

pytestmark = pytest.mark.skipif(not agent.is_supported(), reason="an agent needs pidfd_open(2) of Linux 5.3")

SECONDS = 2.0


class Program:
    """A running ``programs/spans/agent_spans.py``."""

    def __init__(self, process: Piped) -> None:
        self.process = process

    def ask(self, what: object) -> Any:
        print(what, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def wait_for_values(self) -> None:
        """Wait until a span that ends now has values of the GPU."""
        wait_for(lambda: c.SPAN_ENERGY.name in self.ask(SECONDS), PATIENCE, "span with energy")

    def end(self) -> list[str]:
        """End it, and return its warnings and errors."""
        log = end_of(self.process)[1]
        assert self.process.returncode == 0
        return [line for line in log.splitlines() if not line.startswith("INFO ")]


@contextmanager
def program(tmp_path: Path, *settings: str, **env: str) -> Iterator[Program]:
    fake_nvml()
    with Sink() as sink:
        variables = {**sink.environment(0.3), "OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "0.2", **env}
        line = command("spans/agent_spans", str(tmp_path), "nvidia_smi=off", *settings)
        with started(line, variables) as process:
            yield Program(process)


def test_values_are_those_of_a_program_without_an_agent(tmp_path: Path) -> None:
    found = {}
    for mode in ("process", "agent"):
        (tmp_path / mode).mkdir()
        with program(tmp_path / mode, f"mode={mode}", "spans_shares=equal") as app:
            app.wait_for_values()
            found[mode] = app.ask(SECONDS)
            assert len(app.ask("agents")) == (mode == "agent")
            assert app.end() == []
    of_gpu = {mode: {name for name in values if name.startswith("hw.")} for mode, values in found.items()}
    assert of_gpu["agent"] == of_gpu["process"] >= {c.SPAN_ENERGY.name, c.SPAN_UNCERTAINTY.name}
    for values in found.values():
        assert values[c.SPAN_ENERGY.name] == pytest.approx(250.0 * SECONDS, rel=0.1)
        assert values[c.SPAN_GPU_TIME.name] == pytest.approx(0.25 * SECONDS, rel=0.1)
    peak = c.SPAN_GPU_MEMORY_PEAK.name
    assert found["agent"][peak] == found["process"][peak]


def test_spans_have_no_values_while_no_agent_runs(tmp_path: Path) -> None:
    """The program starts the next agent after some seconds, and has no error."""
    with program(tmp_path, "mode=agent") as app:
        app.wait_for_values()
        (pid,) = app.ask("agents")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: app.ask(SECONDS) == {}, PATIENCE, "span without values")
        app.wait_for_values()
        assert pid not in app.ask("agents")
        assert app.end() == []


def test_forked_child_has_the_values_of_the_agent_and_uninstrument_closes_all(tmp_path: Path) -> None:
    with program(tmp_path, "mode=agent") as app:
        app.wait_for_values()
        assert app.ask("descriptors") > 0
        assert "otel-hardware" in Path(f"/proc/{app.process.pid}/maps").read_text()
        assert app.ask("fork")[c.SPAN_ENERGY.name] == pytest.approx(250.0, rel=0.1)
        app.wait_for_values()
        app.ask("uninstrument")
        assert app.ask("descriptors") == 0
        assert app.ask(SECONDS) == {}
        assert app.end() == []


def test_spans_need_no_export_of_metrics(tmp_path: Path) -> None:
    with program(tmp_path, "mode=agent", OTEL_METRICS_EXPORTER="none") as app:
        app.wait_for_values()
        assert len(app.ask("agents")) == 1
        assert app.end() == []


def test_system_without_shared_memory_has_an_agent_and_no_values(tmp_path: Path) -> None:
    with program(tmp_path, "mode=agent", WITHOUT_MEMFD="1") as app:
        wait_for(lambda: app.ask("agents"), PATIENCE, "agent")
        assert app.ask(SECONDS) == {}
        assert app.end() == []


def test_spans_that_are_switched_off_share_no_memory(tmp_path: Path) -> None:
    with program(tmp_path, "mode=agent", OTEL_PYTHON_HARDWARE_SPANS="off") as app:
        wait_for(lambda: app.ask("agents"), PATIENCE, "agent")
        maps = Path(f"/proc/{app.process.pid}/maps").read_text()
        assert "otel-hardware" not in maps
        assert app.ask(SECONDS) == {}
