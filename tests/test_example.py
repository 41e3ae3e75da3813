"""The commands of the examples' READMEs run unchanged against a real Collector."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.support import children, marker, sdk
from tests.support.blocks import commands
from tests.tools import ROOT
from tests.tools.collector import LOCAL, Collector, Point
from tests.tools.daemon import wait

FOLDER = ROOT / "examples" / "zero_code"
README = FOLDER / "README.md"


def promised() -> set[str]:
    """The names in the README's excerpt of the page for Prometheus."""
    return set(re.findall(r"^(\w+)(?:\{.*\})? [\d.e+]+$", README.read_text(), re.MULTILINE))


@dataclass(frozen=True)
class Outcome:
    """The result of the README's command: messages, points, and the other output that the README shows."""

    steps: int
    spans: list[dict[str, Any]]
    points: list[Point]
    messages: list[dict[str, Any]]
    page: str
    console: str


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder: Path = tmp_path_factory.mktemp("example")
    with Collector(folder) as collector:
        # Only the differences from a user's machine: ports, duration, and other installed instrumentations.
        here = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc,
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": children.PEERS,
            "SECONDS_TO_RUN": "0.5",
            "NO_PROXY": "*",
        }
        done = children.run(["sh", "-c", commands(README, "opentelemetry-instrument")], here, cwd=ROOT)
        assert (done.returncode, done.stderr) == (0, "")
        steps = int(re.findall(r"\A(\d+) steps done\n\Z", done.stdout)[0])
        marker.settle(collector)
        wait(lambda: len(spans(collector.lines())) >= steps, children.PATIENCE, "a span for each step")
        wait(
            lambda: "system_uptime_seconds" in collector.exposition(),
            children.PATIENCE,
            "metrics on the page for Prometheus",
        )
        messages = without_marker(collector.lines())
        return Outcome(
            steps,
            spans(messages),
            [point for point in collector.metrics() if point.name != marker.NAME],
            messages,
            collector.exposition(),
            collector.log.read_text(),
        )


def without_marker(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages without the marker, which may be in one message with other metrics."""
    return [
        {
            key: [each for each in resources if marker.NAME not in json.dumps(each["resource"])]
            for key, resources in message.items()
        }
        for message in messages
    ]


def spans(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        span
        for message in messages
        for resource in message.get("resourceSpans", [])
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def test_each_step_of_the_example_is_a_span(outcome: Outcome) -> None:
    assert len(outcome.spans) == outcome.steps > 0
    assert {span["name"] for span in outcome.spans} == {"train.step"}


def test_host_and_process_metrics_arrive(outcome: Outcome) -> None:
    assert {point.name.partition(".")[0] for point in outcome.points} >= {"system", "process", "otel_hardware"}


def test_spans_and_metrics_have_the_same_resource(outcome: Outcome) -> None:
    resources = {
        kind: {
            json.dumps(sorted(each["resource"]["attributes"], key=lambda pair: pair["key"]))
            for message in outcome.messages
            for each in message.get(kind, [])
        }
        for kind in ("resourceSpans", "resourceMetrics")
    }
    assert len(resources["resourceSpans"]) == 1
    assert resources["resourceSpans"] == resources["resourceMetrics"]
    resource = outcome.points[0].resource
    assert resource["service.name"] == "zero-code"
    assert resource["host.name"] == os.uname().nodename
    assert "process.pid" in resource
    assert "service.instance.id" in resource or not sdk.INSTANCES
    assert "host.id" in resource or not sdk.HOST_ID


def test_metrics_page_and_console_show_what_the_readme_shows(outcome: Outcome) -> None:
    assert len(promised()) >= 5
    optional = set() if "system_disk_" in outcome.page else {"system_disk_io_bytes_total"}
    assert promised() - optional <= set(re.findall(r"^\w+", outcome.page, re.MULTILINE))
    for signal in ("traces", "metrics"):
        assert f'"otelcol.signal": "{signal}"' in outcome.console


def test_install_and_collector_commands_of_the_readme_are_valid() -> None:
    install = shlex.split(commands(README, "pip install"))
    assert install[:2] == ["pip", "install"]
    assert set(install[2:]) == {".", "opentelemetry-distro"}
    assert version("opentelemetry-distro")
    collector = shlex.split(commands(README, "otelcol-contrib"))
    assert collector[1] == "--config"
    assert ROOT / collector[2] == LOCAL


def test_jq_query_of_the_readme_finds_one_instance(outcome: Outcome, tmp_path: Path) -> None:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    if not sdk.INSTANCES:
        pytest.skip("this SDK sets no service.instance.id")
    for name, key in (("metrics.jsonl", "resourceMetrics"), ("traces.jsonl", "resourceSpans")):
        lines = [json.dumps(message) for message in outcome.messages if key in message]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    done = children.run(["sh", "-c", commands(README, "jq")], cwd=tmp_path)
    count, instance = done.stdout.split()
    assert instance == outcome.points[0].resource["service.instance.id"]
    assert int(count) >= 2
