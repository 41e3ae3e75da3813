"""`otel-hardware why`: its exit status, its text and its JSON. Mistakes are in `cli/mistakes.txt`."""

from __future__ import annotations

import json
import re

import pytest
from tests.support.children import run
from tests.support.commands import otel_hardware

from opentelemetry.instrumentation.hardware.bottlenecks.rules import RULES

FAST = ("--simulate-speed", "15")
LINE = ["otel-hardware", "why", *FAST, "--simulate"]


@pytest.mark.parametrize(
    ("scenario", "status", "text"),
    [
        ("1xH100:storage", 3, "GPU 0 simulated  storage: the host waits for disks"),
        ("1xH100:brake", 3, "GPU 0 simulated  throttled: its clocks are lowered"),
        ("1xH100:training", 0, "GPU 0 simulated  none: "),
        ("1xA100:training", 4, "GPU 0 simulated  unknown: busy 9"),
    ],
)
def test_exit_status_tells_whether_something_holds_a_gpu_back(scenario: str, status: int, text: str) -> None:
    answer = run([*LINE, scenario])
    assert answer.stdout.startswith(text)
    assert answer.returncode == status
    assert "Traceback" not in answer.stderr


def test_json_has_the_figures_with_their_thresholds() -> None:
    answer = run([*LINE, "1xH100:storage", "--format", "json"])
    (found,) = json.loads(answer.stdout)
    assert (found["device"], found["bottleneck"], answer.returncode) == ("GPU 0 simulated", "storage", 3)
    busy, stall = found["evidence"]
    assert busy["signal"] == "busy"
    assert 0.0 < busy["value"] < busy["threshold"] == 0.5
    assert stall["value"] >= stall["threshold"]
    assert found["advice"]


def test_readings_are_not_late_however_quickly_a_simulation_runs() -> None:
    answer = run(["otel-hardware", "why", "--simulate", "8xH100:storage", "--simulate-speed", "600"])
    assert answer.stdout.count("GPU ") == answer.stdout.count(" storage: the host waits for disks; ") == 8
    assert answer.stdout.count(" waiting for disks 55 %, at least 10 % ") == 8
    assert len(answer.stderr.splitlines()) == 1, answer.stderr  # the GPUs are simulated


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_number_is_cut(columns: int) -> None:
    answer = run([*LINE, "1xH100:quota"], {"COLUMNS": str(columns)})
    assert re.search(r"    busy \d\d %, below 50 %\s", answer.stdout), answer.stdout
    assert re.search(r"    periods in which the CPU limit acted 7\d %, above 25 %\s", answer.stdout), answer.stdout


def test_list_names_every_rule_with_the_source_of_its_thresholds() -> None:
    answer = otel_hardware("why", "--list")
    assert answer.status == 0
    for rule in RULES:
        assert f"{rule.name}: {rule.meaning}" in answer.out
        assert rule.source in answer.out


def test_host_without_a_gpu_gets_one_sentence() -> None:
    answer = otel_hardware("why", "--sources", "nvidia,host", env={"OTEL_PYTHON_HARDWARE_NVML": "/nowhere/libnvml.so"})
    assert answer.status == 1
    assert answer.out == ""
    assert answer.err.startswith("otel-hardware: no GPU is reported here (nvidia: ")
    assert answer.err.count("\n") == 1
