"""A recording in place of this machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.support.children import run, succeed

CONSOLE = [sys.executable, "-m", "opentelemetry.instrumentation.hardware"]
B200 = str(Path(__file__).parents[1] / "sources" / "nvidia" / "b200.jsonl")


def test_snapshot_has_the_values_of_the_recording() -> None:
    answer = succeed([*CONSOLE, "snapshot", "--replay", B200, "--format", "json"])
    assert "is replayed: source nvidia, a simulated driver: a B200" in answer.stderr
    values = {each["name"]: each["value"] for each in json.loads(answer.stdout)["metrics"]}
    assert values["hw.power"] == 812.3
    assert not [name for name in values if name.startswith("system.")], "they would be this machine's"


def test_snapshot_has_the_keys_of_wandb_of_the_recording() -> None:
    row = json.loads(succeed([*CONSOLE, "snapshot", "--replay", B200, "--format", "wandb"]).stdout)
    assert row["gpu.0.powerWatts"] == 812.3
    assert {name.partition(".")[0] for name in row} == {"_timestamp", "_runtime", "gpu"}, (
        "others would be this machine's"
    )


def test_every_format_has_all_metrics_of_the_recording() -> None:
    line = [*CONSOLE, "snapshot", "--replay", B200, "--format"]
    shown = {each["name"] for each in json.loads(succeed([*line, "json"]).stdout)["metrics"]}
    (sent,) = json.loads(succeed([*line, "otlp-json"]).stdout)["resourceMetrics"]
    (scope,) = sent["scopeMetrics"]
    assert {metric["name"] for metric in scope["metrics"]} == shown


def test_doctor_is_about_the_recorded_source_only() -> None:
    answer = succeed([*CONSOLE, "doctor", "--replay", B200])
    assert "NVIDIA B200; driver 570.86.15" in answer.stdout
    assert "settings" not in answer.stdout
    assert "export" not in answer.stdout


def test_why_ends_with_the_recording() -> None:
    answer = run([*CONSOLE, "why", "--replay", B200])
    assert "GPU 0  unknown: " in answer.stdout, answer.stderr
    assert answer.returncode == 4


def test_record_of_a_simulated_machine_replays(tmp_path: Path) -> None:
    path = str(tmp_path / "gpu.jsonl")
    flags = ["--simulate", "2xH100", "--ticks", "3", "--interval", "0.2", "--output", path]
    answer = succeed([*CONSOLE, "record", "nvidia", *flags])
    assert "replaced: UUIDs 2, serial numbers 1" in answer.stderr
    assert json.loads(Path(path).read_text().splitlines()[0])["nature"] == "simulated"
    answer = run([*CONSOLE, "snapshot", "--replay", path])
    assert "GPU 1 simulated" in answer.stdout, answer.stderr


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "cannot read"),
        ("metrics", "is not a file of 'otel-hardware record'"),
        ('{"capture": "nothing"}\n{"tick": 0}', "nothing"),
        ("", "is not a file of 'otel-hardware record'"),
    ],
)
@pytest.mark.parametrize("command", ["snapshot", "doctor"])
def test_other_files_are_refused(command: str, content: str | None, text: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    answer = run([*CONSOLE, command, "--replay", str(path)])
    assert answer.returncode == 2
    assert text in answer.stderr
    assert "Traceback" not in answer.stderr
