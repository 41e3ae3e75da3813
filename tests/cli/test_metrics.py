"""`otel-hardware metrics` and the help. Single metrics and mistakes are in `cli/metrics.txt` and `cli/help.txt`."""

from __future__ import annotations

import json
import re
import sys

import pytest
from tests.support.children import run
from tests.support.commands import otel_hardware

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.catalog.presets import presets_of
from opentelemetry.instrumentation.hardware.cli import main
from opentelemetry.instrumentation.hardware.version import __version__


def metrics(*arguments: str) -> str:
    answer = otel_hardware("metrics", *arguments)
    assert (answer.status, answer.err) == (0, "")
    return answer.out


def test_metrics_table_has_every_metric_once() -> None:
    lines = metrics().splitlines()
    assert lines[0].split() == ["NAME", "DESCRIPTION"]
    assert [line.split()[0] for line in lines[1 : 1 + len(CATALOG)]] == [row.name for row in CATALOG]
    assert max(map(len, lines)) <= 100
    opt_in = {line.split()[0] for line in lines[1 : 1 + len(CATALOG)] if line.split()[1] == "+"}
    assert opt_in == {row.name for row in CATALOG if row.opt_in}


def test_metrics_table_has_whole_descriptions_in_a_file() -> None:
    lines = [" ".join(line.split()) for line in run(["otel-hardware", "metrics"]).stdout.splitlines()]
    assert lines[0] == "NAME KIND UNIT DESCRIPTION"
    for row in CATALOG:
        mark = " +" if row.opt_in else ""
        assert f"{row.name}{mark} {row.kind.value} {row.unit} {' '.join(row.help.split())}" in lines


def test_metrics_json_has_all_of_a_catalog_row() -> None:
    found = {each["name"]: each for each in json.loads(metrics("--format", "json"))}
    assert len(found) == len(CATALOG)
    keys = {metric.name: names for metric, names in wandb.metrics().items()}
    for row in CATALOG:
        each = found[row.name]
        assert each["attributes"] == list(row.attributes)
        assert (each["kind"], each["unit"], each["default"]) == (
            row.kind.value,
            row.unit,
            "standard" in presets_of(row),
        )
        assert each["presets"] == presets_of(row)
        assert (each["source"], each["help"]) == (row.source, row.help)
        assert each["wandb"] == keys.get(row.name, [])
        assert row.opt_in in ("", "request") or f"DETAIL={row.opt_in}" in each["how"]


@pytest.mark.parametrize("prefix", ["", "system."], ids=["key", "in W&B's history"])
def test_every_key_of_wandb_leads_to_its_metrics(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    places = {"i": "0", "core": "0_tensorcore", "size": "8mbplus", "n": "3", "path": "/data", "device": "nvme0n1"}
    for key in {key for table in wandb.KEYS.values() for key in table}:
        name = re.sub(r"\{(\w+)\}", lambda match: places.get(match[1], "app"), key.name)
        assert main(["metrics", prefix + name, "--format", "json"]) == 0
        found = {each["name"] for each in json.loads(capsys.readouterr().out)}
        assert found >= {metric.name for metric in key.metrics}
        assert all(row.name not in found or key.name in wandb.metrics()[row] for row in CATALOG)


def test_closed_pipe_is_no_error() -> None:
    answer = run(["bash", "-o", "pipefail", "-c", "otel-hardware metrics --format json | head -n 1"])
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "[\n", "")


# -- the command itself


def test_version_is_that_of_the_package() -> None:
    assert run(["otel-hardware", "--version"]).stdout == f"otel-hardware {__version__}\n"


def test_metrics_imports_no_sdk_grpc_or_psutil() -> None:
    code = """
import sys
from opentelemetry.instrumentation.hardware.cli import main
main(["metrics", "system.uptime"])
heavy = ("opentelemetry.sdk", "grpc", "google.protobuf", "psutil", "requests", "urllib3")
print(sorted(name for name in heavy if name in sys.modules))
"""
    assert run([sys.executable, "-c", code]).stdout.splitlines()[-1] == "[]"
