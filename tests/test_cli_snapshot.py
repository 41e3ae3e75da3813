"""``otel-hardware snapshot``: what people and programs read from it."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.children import PATIENCE, environment, run, started

from opentelemetry.instrumentation.hardware.cli.table import duration, quantity
from opentelemetry.instrumentation.hardware.model import Kind
from opentelemetry.instrumentation.hardware.vocabulary import CATALOG, SCHEMA_URL

ROWS = {row.name: row for row in CATALOG}
EXPECTED = {"system.cpu.utilization", "system.memory.usage", "system.filesystem.usage", "process.cpu.time"}


def snapshot(
    *arguments: str, window: str = "0.1", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    answer = run(["otel-hardware", "snapshot", "--window", window, *arguments], env)
    assert "Traceback" not in answer.stderr
    return answer


def objects(*arguments: str, window: str = "0.1") -> list[dict[str, Any]]:
    answer = snapshot("--format", "json", *arguments, window=window)
    assert (answer.returncode, answer.stderr) == (0, "")
    return [json.loads(line) for line in answer.stdout.splitlines()]


# -- for people


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_table_fits_and_shows_every_metric(columns: int) -> None:
    answer = snapshot(env={"COLUMNS": str(columns)})
    assert answer.returncode == 0
    lines = answer.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert "\x1b" not in answer.stdout
    shown = {
        f"{family}.{line.split()[0]}"
        for family, line in _under_headings(lines)
        if line.startswith("  ") and not line.startswith("   ")
    }
    (numbers,) = objects()
    assert shown == {point["name"] for point in numbers["metrics"]} >= EXPECTED


def _under_headings(lines: list[str]) -> list[tuple[str, str]]:
    found, family = [], ""
    for line in lines:
        if line == "not here":
            break
        if line and not line.startswith(" "):
            family = line.split()[0]
        elif family:
            found.append((family, line))
    return found


def test_what_is_missing_stands_below_with_its_reason() -> None:
    answer = snapshot("--disk-paths", "/,/no/such/path", env={"COLUMNS": "200"})
    below = answer.stdout.partition("\nnot here\n")[2]
    assert "/no/such/path: No such file or directory" in below
    assert all(line.startswith("  ") for line in below.splitlines())


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.0312, "%", "3.12 %"),
        (1.0, "%", "100 %"),
        (0.00001, "%", "<0.01 %"),
        (0, "By", "0 B"),
        (1023, "By", "1,023 B"),
        (1536, "By", "1.5 KiB"),
        (1024**2 - 1, "By", "1 MiB"),
        (3 * 1024**4, "By", "3 TiB"),
        (2_400_000_000.0, "Hz", "2.4 GHz"),
        (215.44, "W", "215 W"),
        (61.5, "Cel", "61.5 °C"),
        (1234567, "{operation}", "1,234,567"),
        (0.4375, "{thread}", "0.44"),
    ],
)
def test_quantities_read_well(value: float, unit: str, said: str) -> None:
    assert quantity(value, unit) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (2.5, "2.5 s"), (59.99, "1 min 0 s"), (75, "1 min 15 s"), (3700, "1 h 1 min"), (90000, "1 d 1 h")],
)
def test_durations_read_well(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_watching_redraws_in_place_until_ctrl_c() -> None:
    ours, theirs = pty.openpty()
    env = environment({"TERM": "xterm", "COLUMNS": "90", "LINES": "20"})
    line = ["otel-hardware", "snapshot", "--watch", "--every", "0.2", "--window", "0.1"]
    with subprocess.Popen(line, env=env, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, text=True) as child:
        os.close(theirs)
        shown = b""
        while shown.count(b"\x1b[H") < 3:
            shown += os.read(ours, 65536)
        child.send_signal(signal.SIGINT)
        while b"\x1b[?1049l" not in shown:
            shown += os.read(ours, 65536)
        os.close(ours)
        _, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (0, "")
    assert shown.startswith(b"\x1b[?1049h")


# -- for programs


def test_json_says_each_number_with_its_kind_and_unit() -> None:
    (found,) = objects()
    assert found["host"] == socket.gethostname()
    assert found["problems"] == []
    assert 0.05 < found["window"] < 10
    names = set()
    for point in found["metrics"]:
        row = ROWS[point["name"]]
        names.add(row.name)
        assert (point["kind"], point["unit"]) == (row.kind.value, row.unit)
        assert set(point["attributes"]) <= set(row.attributes)
    assert names >= EXPECTED


def test_shares_are_those_of_the_window() -> None:
    (found,) = objects("--sample-interval", "3600", window="0.5")
    assert 0.4 < found["window"] < 30, "both ends of the window are read, whenever the next sample is due"
    shares = [point["value"] for point in found["metrics"] if point["name"] == "system.cpu.utilization"]
    assert 0 <= sum(shares) <= 1.0001
    totals = [point["value"] for point in found["metrics"] if point["name"] == "system.cpu.time"]
    assert sum(totals) > 1, "counters are totals"


def test_csv_is_long_and_says_its_columns_once() -> None:
    answer = snapshot("--format", "csv", "--every", "0.1", "--count", "2")
    assert answer.returncode == 0
    rows = list(csv.DictReader(io.StringIO(answer.stdout)))
    assert set(rows[0]) == {"time", "host", "name", "kind", "unit", "attributes", "value"}
    assert sum(line.startswith("time,host") for line in answer.stdout.splitlines()) == 1
    assert len({row["time"] for row in rows}) == 2
    assert {row["name"] for row in rows} >= EXPECTED
    used = [row for row in rows if row["name"] == "system.filesystem.usage" and "mountpoint=/;" in row["attributes"]]
    assert float(used[0]["value"]) >= 0
    assert all(sentence.startswith("otel-hardware: ") for sentence in answer.stderr.splitlines())


def test_otlp_json_is_what_a_collector_takes() -> None:
    answer = snapshot("--format", "otlp-json", "--every", "0.1", "--count", "2")
    assert (answer.returncode, answer.stderr) == (0, "")
    lines = answer.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        (batch,) = Parse(line, ExportMetricsServiceRequest()).resource_metrics
        resource = {pair.key: pair.value.string_value for pair in batch.resource.attributes}
        assert resource["host.name"] == socket.gethostname()
        (scope,) = batch.scope_metrics
        assert scope.schema_url == SCHEMA_URL
        assert {metric.name for metric in scope.metrics} >= EXPECTED
        for metric in scope.metrics:
            row = ROWS[metric.name]
            assert metric.unit == row.unit
            assert metric.WhichOneof("data") == ("gauge" if row.kind is Kind.GAUGE else "sum")
            if row.kind is not Kind.GAUGE:
                assert metric.sum.is_monotonic == (row.kind is Kind.COUNTER)
        _as_the_specification_has_it(json.loads(line))


def _as_the_specification_has_it(message: Any) -> None:
    """64-bit integers are text, enumerations numbers, names in lowerCamelCase."""
    if isinstance(message, list):
        for each in message:
            _as_the_specification_has_it(each)
    elif isinstance(message, dict):
        for name, value in message.items():
            assert "_" not in name
            if name in ("asInt", "timeUnixNano", "startTimeUnixNano", "intValue"):
                assert isinstance(value, str), f"{name} is {value!r}"
            if name == "aggregationTemporality":
                assert value == 2
            _as_the_specification_has_it(value)


def test_wandb_rows_count_from_the_first() -> None:
    answer = snapshot("--format", "wandb", "--every", "0.2", "--count", "3")
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [row["_timestamp"] for row in rows] == sorted(row["_timestamp"] for row in rows)
    assert [row["_runtime"] for row in rows] == sorted(row["_runtime"] for row in rows)
    assert all(row["network.sent"] >= 0 for row in rows)


# -- what may be chosen


def test_another_process_can_be_looked_at() -> None:
    code = "import sys; held = bytearray(100_000_000); print('ready', flush=True); sys.stdin.read()"
    with started([sys.executable, "-c", code]) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (found,) = objects("--pid", str(child.pid), "--sources", "process")
        child.communicate(timeout=PATIENCE)
    values = {point["name"]: point["value"] for point in found["metrics"]}
    assert values["process.memory.usage"] >= 100_000_000
    assert found["pid"] == child.pid
    assert not any(name.startswith("system.") for name in values)


def test_the_tree_of_another_process_is_read_at_both_ends_of_the_window() -> None:
    burn = "import time; print('ready', flush=True)\nwhile True: time.process_time()"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    with started([sys.executable, "-c", code]) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (found,) = objects("--pid", str(child.pid), "--sources", "process", window="0.5")
    values = {point["name"]: point["value"] for point in found["metrics"]}
    assert values["process.tree.count"] == 2
    assert values["process.tree.cpu.utilization"] > 0.01


def test_flags_win_over_the_environment() -> None:
    env = {"OTEL_PYTHON_HARDWARE_SOURCES": "process", "OTEL_PYTHON_HARDWARE_DETAIL": "processes"}
    answer = snapshot("--format", "json", "--sources", "host", "--detail", "cpu", env=env)
    names = {point["name"] for point in json.loads(answer.stdout)["metrics"]}
    assert "system.cpu.time" in names
    assert "process.cpu.time" not in names
    assert "system.process.count" not in names


def test_rows_on_request_can_be_asked_for() -> None:
    (found,) = objects("--include", "system.cpu.load_average.*", "--sources", "host")
    assert {"system.cpu.load_average.5m", "system.cpu.load_average.15m"} <= {each["name"] for each in found["metrics"]}


def test_within_another_programs_job_it_still_looks_at_the_host() -> None:
    from opentelemetry.instrumentation.hardware.identity import JOB, key

    answer = snapshot("--format", "json", env={JOB: key(os.getpid())})
    assert "system.cpu.time" in {point["name"] for point in json.loads(answer.stdout)["metrics"]}


def test_ctrl_c_ends_a_series_quietly() -> None:
    line = ["otel-hardware", "snapshot", "--format", "json", "--every", "0.1", "--window", "0.1"]
    with started(line) as child:
        assert child.stdout is not None
        for _ in range(2):
            json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (0, "")


def test_a_reader_that_has_enough_ends_it_quietly() -> None:
    line = "otel-hardware snapshot --format csv --every 0.1 --window 0.1 --sources process | head -n 1"
    answer = run(["bash", "-o", "pipefail", "-c", line])
    assert (answer.returncode, answer.stdout) == (0, "time,host,name,kind,unit,attributes,value\n")
    assert answer.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--pid", "999999999"], "there is no process 999999999"),
        (["--pid", "me"], "there is no process me"),
        (["--pid", "²"], "there is no process ²"),
        (["--watch", "--format", "json"], "take --every"),
        (["--count", "3"], "--every"),
        (["--every", "often"], "takes seconds"),
        (["--disk-paths", "relative"], "absolute paths"),
        (["--include", "no.such.*"], "matches no metric"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], sentence: str) -> None:
    answer = snapshot(*arguments)
    assert answer.returncode == 2
    assert sentence in answer.stderr.splitlines()[-1]
    assert answer.stdout == ""
