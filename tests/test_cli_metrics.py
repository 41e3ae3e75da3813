"""``otel-hardware metrics`` and the command itself: the catalogue, the help, and how quickly they come."""

from __future__ import annotations

import json
import sys

import pytest
from tests.children import run

from opentelemetry.instrumentation.hardware.cli.command_line import commands
from opentelemetry.instrumentation.hardware.version import __version__
from opentelemetry.instrumentation.hardware.vocabulary import CATALOG, SYSTEM_CPU_UTILIZATION


def metrics(*arguments: str) -> str:
    answer = run(["otel-hardware", "metrics", *arguments], {"COLUMNS": "100"})
    assert (answer.returncode, answer.stderr) == (0, "")
    return answer.stdout


def test_the_table_has_every_metric_once() -> None:
    lines = metrics().splitlines()
    assert lines[0].split()[:4] == ["NAME", "KIND", "UNIT", "REPORTED"]
    assert [line.split()[0] for line in lines[1 : 1 + len(CATALOG)]] == [row.name for row in CATALOG]
    assert max(map(len, lines)) <= 100


def test_json_says_all_that_a_row_says() -> None:
    found = {each["name"]: each for each in json.loads(metrics("--format", "json"))}
    assert len(found) == len(CATALOG)
    for row in CATALOG:
        each = found[row.name]
        assert each["attributes"] == list(row.attributes)
        assert (each["kind"], each["unit"], each["default"]) == (row.kind.value, row.unit, not row.detail)
        assert (each["source"], each["help"]) == (row.source, row.help)
        assert ", ".join(each["wandb"]) == row.wandb
        assert row.detail in ("", "request") or f"DETAIL={row.detail}" in each["how"]


def test_one_metric_is_told_in_full() -> None:
    told = " ".join(metrics("SYSTEM.cpu.utilization").split())
    row = SYSTEM_CPU_UTILIZATION
    for fact in (row.name, row.help, row.source, row.wandb, "gauge", "cpu.logical_number", "by default"):
        assert fact in told


def test_a_glob_and_the_default_set_narrow_it() -> None:
    names = [each["name"] for each in json.loads(metrics("system.cpu.load*", "--default", "--format", "json"))]
    assert names == ["system.cpu.load_average.1m"]


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("xyzzy", "'otel-hardware metrics' lists them all"),
        ("system.cpu.utilisation", "did you mean system.cpu.utilization or "),
        ("Throttle", "'*throttle*' finds those"),
        ("*utilizatoin", "did you mean "),
    ],
)
def test_an_unknown_metric_is_a_mistake(word: str, instead: str) -> None:
    answer = run(["otel-hardware", "metrics", word])
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"otel-hardware: no metric is called {word}; {instead}")
    assert len(answer.stderr.splitlines()) == 1


def test_a_reader_that_has_enough_is_no_error() -> None:
    answer = run(["bash", "-o", "pipefail", "-c", "otel-hardware metrics --format json | head -n 1"])
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "[\n", "")


# -- the command itself


def test_the_help_names_every_command() -> None:
    answer = run(["otel-hardware", "--help"])
    assert answer.returncode == 0
    for command in commands():
        assert command.name in answer.stdout
        assert command.help.split(":")[0] in " ".join(answer.stdout.split())


@pytest.mark.parametrize("name", [command.name for command in commands()])
def test_each_help_has_examples_and_fits(name: str) -> None:
    answer = run(["otel-hardware", name, "--help"], {"COLUMNS": "100"})
    assert answer.returncode == 0
    assert f"otel-hardware {name}" in answer.stdout.partition("\n\n")[2]
    assert "example" in answer.stdout
    assert max(map(len, answer.stdout.splitlines())) <= 100


@pytest.mark.parametrize("arguments", [[], ["dance"]])
def test_no_command_is_a_mistake(arguments: list[str]) -> None:
    answer = run(["otel-hardware", *arguments])
    assert answer.returncode == 2
    assert "Traceback" not in answer.stderr


def test_the_version_is_the_packages() -> None:
    assert run(["otel-hardware", "--version"]).stdout == f"otel-hardware {__version__}\n"


def test_what_is_heavy_is_loaded_by_what_needs_it() -> None:
    code = """
import sys
from opentelemetry.instrumentation.hardware.cli import main
main(["metrics", "system.uptime"])
heavy = ("opentelemetry.sdk", "grpc", "google.protobuf", "psutil", "requests", "urllib3")
print(sorted(name for name in heavy if name in sys.modules))
"""
    assert run([sys.executable, "-c", code]).stdout.splitlines()[-1] == "[]"
