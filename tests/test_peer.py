"""Beside opentelemetry-instrumentation-system-metrics, which reports some of the same metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import children
from tests.programs.journal import OURS, exports, repeated
from tests.sink import Sink

THEIRS = "opentelemetry.instrumentation.system_metrics"
SWITCH = "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics"


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_system_metrics_beside_hardware_reports_both_and_warns_once(tmp_path: Path, first: str) -> None:
    outcome = children.run(children.command("peer", tmp_path / "journal", first))
    assert outcome.returncode == 0, outcome.stderr
    said = [line for line in outcome.stderr.splitlines() if "system_metrics" in line or "system-metrics" in line]
    assert len(said) == 1, outcome.stderr
    assert SWITCH in said[0]
    # The same names in two scopes: a backend that drops the scope shows one series over the other.
    both = {"system.cpu.time", "system.memory.usage", "process.cpu.time"}
    *_, last = (each for each in exports(tmp_path / "journal") if both <= each.names(OURS) & each.names(THEIRS))
    assert repeated(last.points) == []
    assert last.values("application.steps") == [1]
    ours, theirs = (
        sum(point.value for point in last.points if point.name == "process.cpu.time" and point.scope == scope)
        for scope in (OURS, THEIRS)
    )
    assert 0 < theirs <= ours + 0.5, "the CPU times do not agree"


@pytest.mark.parametrize("disabled", [False, True])
def test_variable_named_in_warning_switches_system_metrics_off(disabled: bool) -> None:
    with Sink() as sink:
        env = sink.environment()
        if not disabled:
            del env["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"]
        outcome = children.run(children.instrumented("configured"), env)
    assert outcome.returncode == 0
    assert outcome.stderr.count(SWITCH) == (not disabled), outcome.stderr
    scopes = {scope.name for scope in sink.scopes}
    assert scopes == {OURS} | (set() if disabled else {THEIRS})
