"""Spans that people open first: the first one, long ones, those after a pause, in forked workers, without a GPU."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from tests.support.children import AUTO_INSTRUMENTATION, command, in_pid_namespace, inherited, run, succeed
from tests.support.virtual import Program
from tests.tools import fake_nvml
from tests.tools.load import check_energy

from opentelemetry.instrumentation.hardware import agent
from opentelemetry.instrumentation.hardware import catalog as c

QUIET = {f"OTEL_{signal}_EXPORTER": "none" for signal in ("TRACES", "METRICS", "LOGS")}
CPU_TIME, ENERGY = c.SPAN_CPU_TIME.name, c.SPAN_ENERGY.name
SIMULATE = "OTEL_PYTHON_HARDWARE_SIMULATE"


def printed(*line: object, **env: str) -> list[Any]:
    outcome = succeed(command(*map(str, line)), {**QUIET, **env})
    return [json.loads(text) for text in outcome.stdout.splitlines()]


# -- the first span


@pytest.mark.parametrize("pause", [0.0, 3.0])
@pytest.mark.parametrize("way", ["auto", "code", "instrument", "late", "agent"])
def test_first_span_has_the_energy_of_the_gpu(way: str, pause: float, tmp_path: Path) -> None:
    fake_nvml()
    duration = 6.0 if pause == 0.0 else 1.5  # the driver is opened meanwhile, on a busy machine in seconds
    (found,) = printed("spans/first_span", way, pause, duration, tmp_path)
    check_energy(found, found["begin"], found["end"])
    assert CPU_TIME in found


@pytest.mark.parametrize("place", ["host", "container"])
@pytest.mark.parametrize("card", ["H100", "MI300X"])
def test_first_span_has_the_energy_of_a_simulated_gpu(card: str, place: str) -> None:
    """Nothing else is exported, which is usual where only traces are wanted."""
    before = in_pid_namespace("--mount", "--mount-proc", "--kill-child") if place == "container" else []
    outcome = run([*before, *command("spans/first_span", "auto", 0, 6.0)], {**QUIET, SIMULATE: f"1x{card}"})
    found = json.loads(outcome.stdout)
    assert 1500.0 < found[ENERGY] < 750.0 * 6.0
    assert found[c.SPAN_GPU_MEMORY_PEAK.name] > 10**9


@pytest.mark.parametrize("pause", [0.0, 3.0])
@pytest.mark.parametrize("way", ["auto", "code", "instrument", "late", "agent"])
def test_first_span_has_cpu_time_without_a_gpu(way: str, pause: float) -> None:
    (found,) = printed("spans/first_span", way, pause, 1.2)
    assert 0.0 < found[CPU_TIME] < 10.0
    assert ENERGY not in found


@pytest.mark.parametrize("source", ["nvidia", "filesystem"])
def test_span_has_cpu_time_without_the_source_process(source: str) -> None:
    (found,) = printed("spans/first_span", "instrument", 0, 0.2, OTEL_PYTHON_HARDWARE_SOURCES=source)
    assert set(found) == {CPU_TIME, "begin", "end"}


@pytest.mark.parametrize("mode", ["process", "agent"])
@pytest.mark.parametrize("way", ["fork", "multiprocessing"])
def test_spans_of_forked_children_have_values(way: str, mode: str) -> None:
    if mode == "agent" and not agent.is_supported():
        pytest.skip("an agent needs pidfd_open(2) of Linux 5.3")
    parent, *children = printed("spans/forked_spans", way, mode)
    assert len(children) == 2
    for found in (parent, *children):
        for name in ("first", "second"):
            assert 0.29 < found[name][CPU_TIME] < 3.0, (way, mode, name)  # the start of our threads is in the first one
    if mode == "process":
        assert all(c.SPAN_TREE_MEMORY_PEAK.name in found["second"] for found in children), "a session was started"


def test_children_do_not_log_again_which_devices_the_host_lacks() -> None:
    """A forked task of Airflow has a log of its own, which is a page that people read."""
    outcome = succeed(command("spans/forked_spans", "fork", "process"), QUIET)
    loggers = {line.split()[0] for line in outcome.stderr.splitlines() if " INFO Source " in line}
    assert len(loggers) == 1, outcome.stderr


@pytest.mark.parametrize("mode", ["process", "agent"])
def test_spans_of_a_daemon_have_values(mode: str) -> None:
    """The agent of the program has ended with it."""
    if mode == "agent" and not agent.is_supported():
        pytest.skip("an agent needs pidfd_open(2) of Linux 5.3")
    _, daemon = printed("spans/forked_spans", "daemon", mode)
    assert 0.29 < daemon["second"][CPU_TIME] < 3.0
    assert c.SPAN_TREE_MEMORY_PEAK.name in daemon["second"]


@inherited
@pytest.mark.parametrize("mode", ["process", "agent"])
def test_span_of_a_child_of_a_fork_server_has_values(mode: str) -> None:
    if mode == "agent" and not agent.is_supported():
        pytest.skip("an agent needs pidfd_open(2) of Linux 5.3")
    exports = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_PYTHON_HARDWARE_MODE": mode,
    }
    ((found, threads),) = printed("spans/fork_server", **AUTO_INSTRUMENTATION, **exports)
    assert 0.29 < found[CPU_TIME] < 3.0
    off = {**exports, "OTEL_PYTHON_HARDWARE_SPANS": "off"}
    ((_, without),) = printed("spans/fork_server", **AUTO_INSTRUMENTATION, **off)
    assert threads == without, "threads of ours in the fork server"


@pytest.mark.parametrize("way", ["instrument", "processor"])
def test_fork_server_that_imports_the_program_has_no_threads_of_ours(way: str) -> None:
    """It would fork beside them. Since Python 3.14, multiprocessing starts it by default."""
    ((found, threads),) = printed("spans/fork_server", WAY=way)
    assert 0.29 < found[CPU_TIME] < 3.0
    assert threads == 1


def test_first_spans_of_several_threads_of_a_forked_child_have_values() -> None:
    for found in printed("spans/forked_spans", "threads", "process"):
        assert all(CPU_TIME in each for each in found), found


# -- long spans and pauses, with a clock that is set by hand


@pytest.mark.parametrize("duration", [0.2, 1.0, 75.0, 130.0, 700.0, 3600.0])
def test_span_without_others_has_its_energy(duration: float) -> None:
    program = Program()
    found = program.span(1005.0, 1005.0 + duration)
    assert found[ENERGY] == pytest.approx(300.0 * duration, rel=0.001)
    again = program.span(program.clock.now + 600.0, program.clock.now + 600.0 + duration)
    assert again[ENERGY] == pytest.approx(300.0 * duration, rel=0.001)


def test_root_of_a_day_with_children_has_its_energy() -> None:
    program = Program(lambda now: 300.0 * now - 60_000.0 * math.cos(now / 600.0))
    begin = program.clock.now + 5.0
    program.go_to(begin)
    program.demand.begin(1, begin)
    for hour in range(24):
        program.demand.end(1)  # ten readings per second for the whole day would take a minute
        found = program.span(begin + 3600.0 * hour + 100.0, begin + 3600.0 * hour + 102.0)
        assert found[ENERGY] > 0
    program.demand.begin(1, program.clock.now)
    program.go_to(begin + 86400.0)
    assert program.past(begin, begin + 86400.0)[c.SPAN_UNCERTAINTY.name] < 0.02 * 300.0 * 86400.0


def test_spans_after_the_fact_have_their_energy_after_a_pause_and_in_a_first_burst() -> None:
    program = Program(lambda now: 300.0 * now + 30.0 * math.sin(5.0 * now), period=0.1)
    for number in range(1, 40):
        program.go_to(1000.0 + number / 4)
        program.past(program.clock.now - 0.25, program.clock.now)
    program = Program()
    program.go_to(1010.0)
    for length in range(1, 9):
        program.past(1010.0 - length, 1010.0)
    program.go_to(1085.0)
    assert program.past(1083.0, 1085.0)[ENERGY] == pytest.approx(600.0, rel=0.01)
    assert program.past(1077.0, 1085.0)[ENERGY] == pytest.approx(2400.0, rel=0.01)


def test_span_every_90_seconds_has_its_energy() -> None:
    program = Program()
    for number in range(1, 6):
        found = program.span(1000.0 + 90.0 * number, 1002.0 + 90.0 * number)
        assert found[ENERGY] == pytest.approx(600.0, rel=0.01)


def test_readings_are_one_per_second_without_spans_and_ten_with_one() -> None:
    program = Program()
    program.go_to(1010.0)
    assert program.readings == pytest.approx(100, abs=5), "at the start, as if a span was open"
    program.readings = 0
    program.go_to(1100.0)
    assert program.readings == pytest.approx(90, abs=9), "and those of what is slow"
    program.readings = 0
    program.span(1100.5, 1120.5)
    assert program.readings == pytest.approx(230, abs=25), "more in the first two seconds"
