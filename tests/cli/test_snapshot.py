"""`otel-hardware snapshot`. Whole tables, JSON and CSV are in `cli/snapshot.txt`; see cli/test_transcripts.py."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.support.children import PATIENCE, environment, run, started
from tests.support.commands import otel_hardware, simulated
from tests.support.members import members

from opentelemetry.instrumentation.hardware.catalog import CATALOG, SCHEMA_URL
from opentelemetry.instrumentation.hardware.cli.text import duration, quantity
from opentelemetry.instrumentation.hardware.model import Kind

ROWS = {row.name: row for row in CATALOG}
SOURCES = ["--sources", "host,process,filesystem"]
EXPECTED = {"system.cpu.utilization", "system.memory.usage", "system.filesystem.usage", "process.cpu.time"}


def objects(*arguments: str, env: dict[str, str] | None = None) -> list[dict[str, Any]]:
    answer = otel_hardware("snapshot", "--format", "json", *arguments, env=env)
    assert (answer.status, answer.err) == (0, "")
    return [json.loads(line) for line in answer.out.splitlines()]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems are read by psutil")
def test_snapshot_needs_no_psutil_on_linux(tmp_path: Path) -> None:
    """As in a zip archive, from which its C library cannot be loaded."""
    (tmp_path / "psutil.py").write_text("raise ImportError('no C library')")
    line = [sys.executable, "-m", "opentelemetry.instrumentation.hardware", "snapshot", *SOURCES]
    answer = run(line, {"PYTHONPATH": str(tmp_path)})
    assert (answer.returncode, answer.stderr) == (0, "")
    assert {each.split(" ")[0] for each in answer.stdout.splitlines()} >= EXPECTED


# -- for people


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_snapshot_table_fits_the_terminal_and_shows_every_metric(columns: int) -> None:
    with simulated():
        answer = otel_hardware("snapshot", *SOURCES, env={"COLUMNS": str(columns)})
        (numbers,) = objects(*SOURCES)
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert max(map(len, lines)) <= columns
    assert "\x1b" not in answer.out
    shown = {line.split()[0] for line in lines if line.split(" ")[0] in ROWS}
    assert shown == {point["name"] for point in numbers["metrics"]} >= EXPECTED


@pytest.mark.parametrize("columns", [15, 20, 30, 40])
def test_rows_of_the_table_fit_a_narrow_terminal(columns: int) -> None:
    with simulated():
        answer = otel_hardware("snapshot", *SOURCES, env={"COLUMNS": str(columns)})
    rows = answer.out.partition("\nmissing\n")[0].splitlines()
    assert max(map(len, rows)) <= columns


@pytest.mark.parametrize(
    ("value", "unit", "text"),
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
        (0.0437, "s", "43.7 ms"),
        (0.00175, "s", "1.75 ms"),
        (0.000064, "s", "64 µs"),
        (0.1, "s", "0.1 s"),
        (0.0, "s", "0 s"),
    ],
)
def test_quantity_has_unit_and_three_digits(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (2.5, "2.5 s"), (59.99, "1 min 0 s"), (75, "1 min 15 s"), (3700, "1 h 1 min"), (90000, "1 d 1 h")],
)
def test_duration_has_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_snapshot_without_a_reading_names_no_window() -> None:
    with simulated():
        answer = otel_hardware("snapshot", "--sources", "graphcore")
    assert "missing\n  graphcore: " in answer.out
    assert "of the last" not in answer.out


def test_snapshot_watch_redraws_terminal_until_sigint() -> None:
    ours, theirs = pty.openpty()
    env = environment({"TERM": "xterm", "COLUMNS": "90", "LINES": "20"})
    line = ["otel-hardware", "snapshot", "--watch", "--every", "0.05", *SOURCES]
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


def test_snapshot_json_has_kind_and_unit_of_each_metric() -> None:
    (found,) = objects("--window", "0.05", *SOURCES)
    assert found["problems"] == []
    names = set()
    for point in found["metrics"]:
        row = ROWS[point["name"]]
        names.add(row.name)
        assert (point["kind"], point["unit"]) == (row.kind.value, row.unit)
        assert set(point["attributes"]) <= set(row.attributes)
    assert names >= EXPECTED


def test_snapshot_reads_both_ends_of_the_window_despite_a_long_sample_interval() -> None:
    (found,) = objects("--sample-interval", "3600", "--window", "0.1")
    assert found["window"] > 0.05
    shares = [point["value"] for point in found["metrics"] if point["name"] == "system.cpu.utilization"]
    assert 0 <= sum(shares) <= 1.0001
    totals = [point["value"] for point in found["metrics"] if point["name"] == "system.cpu.time"]
    assert sum(totals) > 1, "counters are totals"


def test_snapshot_otlp_json_parses_as_export_request() -> None:
    with simulated():
        answer = otel_hardware("snapshot", "--format", "otlp-json", "--every", "1", "--count", "2", *SOURCES)
    assert (answer.status, answer.err) == (0, "")
    lines = answer.out.splitlines()
    assert len(lines) == 2
    for line in lines:
        (batch,) = Parse(line, ExportMetricsServiceRequest()).resource_metrics
        resource = {pair.key: pair.value.string_value for pair in batch.resource.attributes}
        assert resource["host.name"] == "workstation"
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


def test_snapshot_wandb_rows_are_in_order_of_time() -> None:
    answer = otel_hardware("snapshot", "--format", "wandb", "--every", "0.02", "--count", "3")
    rows = [json.loads(line) for line in answer.out.splitlines()]
    assert len(rows) == 3
    assert [row["_timestamp"] for row in rows] == sorted(row["_timestamp"] for row in rows)
    assert [row["_runtime"] for row in rows] == sorted(row["_runtime"] for row in rows)
    assert all(row["network.sent"] >= 0 for row in rows)


# -- the process


def test_snapshot_has_its_own_process_only_on_request() -> None:
    with simulated():
        (found,) = objects("--window", "1")
        (requested,) = objects("--window", "1", "--sources", "process")
    assert "process.cpu.time" in {point["name"] for point in requested["metrics"]}
    assert "pid" not in found
    assert [name for point in found["metrics"] if (name := point["name"]).startswith(("process.", "cpython."))] == []


def test_snapshot_of_another_pid_has_its_tree_and_nothing_of_the_host() -> None:
    code = (
        "import subprocess, sys; held = bytearray(100_000_000); subprocess.run(['sh', '-c', 'echo ready; read line'])"
    )
    with started([sys.executable, "-c", code]) as child:
        child.stdout.readline()
        (found,) = objects("--pid", str(child.pid), "--sources", "process", "--window", "0.1")
        child.communicate("\n", timeout=PATIENCE)
    values = {point["name"]: point["value"] for point in found["metrics"]}
    assert values["process.memory.usage"] >= 100_000_000
    assert values["process.tree.count"] == 2
    assert "process.tree.cpu.utilization" in values, "the tree is read at both ends of the window"
    assert found["pid"] == child.pid
    assert not any(name.startswith("system.") for name in values)


@pytest.mark.parametrize("form", ["table", "json", "csv", "otlp-json", "wandb"])
def test_snapshot_says_that_the_process_has_ended(form: str) -> None:
    with started(["sleep", "3"]) as child:  # a busy machine takes a second to begin
        flags = ("--pid", str(child.pid), "--sources", "process", "--format", form, "--window", "1", "--every", "1")
        answer = otel_hardware("snapshot", *flags)
    assert (answer.status, answer.err.count("\n")) == (1, 1)
    assert f"process {child.pid} has ended" in answer.err


def test_snapshot_within_a_job_reads_the_host(job: dict[str, str]) -> None:
    with simulated(), members(job) as (reporter,):
        assert reporter.update()
        (found,) = objects("--sources", "host", env=job)
    assert "system.cpu.time" in {point["name"] for point in found["metrics"]}


def test_snapshot_every_ends_on_sigint_without_error() -> None:
    line = ["otel-hardware", "snapshot", "--format", "json", "--every", "0.05", *SOURCES]
    with started(line) as child:
        for _ in range(2):
            json.loads(child.stdout.readline())
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err) == (0, "")


def test_snapshot_every_ends_on_closed_pipe_without_error() -> None:
    line = "otel-hardware snapshot --format csv --every 0.05 --sources process | head -n 1"
    answer = run(["bash", "-o", "pipefail", "-c", line])
    assert (answer.returncode, answer.stdout) == (0, "time,host,name,kind,unit,attributes,value\n")
    assert answer.stderr == ""


def test_host_name_that_is_not_utf8_is_escaped() -> None:
    line = ["unshare", "--user", "--map-root-user", "--uts"]
    if not shutil.which("unshare") or subprocess.run([*line, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a namespace for a host name is not permitted")
    code = r"import os, socket, sys; socket.sethostname(b'caf\xe9'); os.execvp(sys.argv[1], sys.argv[1:])"
    line += [sys.executable, "-c", code, "otel-hardware", "snapshot", "--sources", "filesystem", "--format"]
    assert r'"host": "caf\\xe9"' in run([*line, "json"]).stdout
    (sent,) = json.loads(run([*line, "otlp-json"]).stdout)["resourceMetrics"]
    assert {"key": "host.name", "value": {"stringValue": "caf\\xe9"}} in sent["resource"]["attributes"]
