"""The queries of the pages for operators, in a Prometheus that scrapes a Collector with simulated hosts."""

from __future__ import annotations

import gzip
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import yaml
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.fleet.hosts import points_of
from tests.support.children import PATIENCE, ROOT, started
from tests.support.sink import Sink
from tests.tools.collector import Collector
from tests.tools.daemon import Prometheus, wait

from opentelemetry.instrumentation.hardware.catalog.presets import PRESETS

# The simulated GPUs of each host. A second is a minute.
HOSTS = {
    "straggler": "2xH100:straggler",
    "kernels": "1xH100:small-kernels",
    "hot": "1xH100:hot",
    "lost": "2xH100:lost",
    "leak": "1xH100:memory-leak",
}

# Parts of queries that find nothing here: no host has stopped, and every source can be read.
NOTHING = ("present_over_time", "otel_hardware_source_up == 0")


def blocks() -> list[str]:
    """The queries of the page about fleets, and of the one about DCGM."""
    pages = [(ROOT / "docs" / name).read_text() for name in ("fleet.md", "dcgm.md")]
    found = [block for page in pages for block in re.findall(r"```text\n(.+?)```", page, re.DOTALL)]
    return [*dict.fromkeys(line for block in found for line in block.splitlines())]


def fields() -> list[tuple[str, str]]:
    """Each field of DCGM and its query; "" if it is not reported."""
    page = (ROOT / "docs" / "dcgm.md").read_text()
    return re.findall(r"^\| `(DCGM_\w+)` \| (?:`([^`]+)`)? \|.*\|$", page, re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("fleet")
    with ExitStack() as stack:
        collector = stack.enter_context(Collector(folder))
        found = stack.enter_context(Prometheus(folder, {"agents": collector.prometheus.split("/")[2]}))
        for host, gpus in HOSTS.items():
            env = {
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc,
                "OTEL_RESOURCE_ATTRIBUTES": f"host.name={host},host.id={host}",
                "OTEL_PYTHON_HARDWARE_REPORTER": "always",
                "OTEL_PYTHON_HARDWARE_PRESET": "all",
                "OTEL_PYTHON_HARDWARE_SOURCES": "nvidia",
            }
            command = f"otel-hardware run --simulate {gpus} --simulate-speed 60 --interval 3"
            stack.enter_context(started(command.split(), env))
        yield found


@pytest.mark.parametrize("query", blocks())
def test_query_of_the_page_has_an_answer(server: Prometheus, query: str) -> None:
    if any(part in query for part in NOTHING):
        server.query(query)
    else:
        wait(lambda: server.query(query), PATIENCE, f"an answer to {query}")


@pytest.mark.parametrize(("field", "query"), fields())
def test_field_of_dcgm_has_a_query(server: Prometheus, field: str, query: str) -> None:
    if not query:
        assert field == "DCGM_FI_DEV_VGPU_LICENSE_STATUS", "the only one that is not reported"
        return
    found = wait(lambda: server.query(query), PATIENCE, f"an answer to {query}")
    assert {labels["hw_id"] for labels, _ in found}


def test_alerts_find_the_right_hosts(server: Prometheus) -> None:
    def hosts(part: str) -> set[str]:
        (query,) = [each for each in blocks() if part in each]
        return {labels["host_name"] for labels, _ in server.query(query)}

    expected = {
        "throttle_time": "hot",
        '"tensor"} < 0.1': "kernels",
        "memory_usage_bytes /": "leak",
        "== 1": "lost",
        "0.95 * max": "straggler",
    }
    for part, host in expected.items():
        wait(lambda: host in hosts(part), PATIENCE, f"{host} in {part}")  # noqa: B023 - called at once


def test_page_asks_for_hosts_that_have_stopped_as_the_alert_does() -> None:
    groups = yaml.safe_load((ROOT / "collector-config" / "alerts" / "alerts.yml").read_text())["groups"]
    (alert,) = (rule for group in groups for rule in group["rules"] if rule["alert"] == "HardwareTelemetryMissing")
    assert alert["expr"] in blocks()


def of_page(row: str) -> dict[str, list[float]]:
    """The numbers of a row of the table of presets, by preset."""
    page = (ROOT / "docs" / "fleet.md").read_text()
    (cells,) = re.findall(rf"^\| {re.escape(row)}[^|]*\|(.+)\|$", page, re.MULTILINE)
    numbers = [[float(number) for number in re.findall(r"[\d.]+", cell)] for cell in cells.split("|")]
    return dict(zip(PRESETS, numbers, strict=True))


@pytest.mark.parametrize("preset", PRESETS)
def test_page_has_the_size_of_an_export(preset: str) -> None:
    flags = "run --simulate 8xH100 --hosts 1 --backfill 90s --duration 0 --interval 15 --sample-interval 15"
    own = {"OTEL_PYTHON_HARDWARE_PRESET": preset}
    with Sink() as sink:
        command = [sys.executable, "-m", "opentelemetry.instrumentation.hardware", *flags.split()]
        subprocess.run(command, env=os.environ | sink.environment() | own, check=True, capture_output=True)
    body = sink.bodies[-1]
    points = points_of(ExportMetricsServiceRequest.FromString(body))
    events = {tuple(sorted((each.key, str(each.value)) for each in point.attributes)) for point in points}
    assert of_page("points, each of a series")[preset] == [len(points)]
    assert of_page("KB / compressed")[preset] == pytest.approx(
        [len(body) / 1e3, len(gzip.compress(body)) / 1e3], rel=0.02
    )
    assert of_page("Datadog: custom metrics")[preset] == [len(points)]
    assert of_page("Honeycomb: events of an export")[preset] == [len(events)]
    month = 30 * 24 * 60  # exports, one each minute
    assert of_page("Honeycomb: million events")[preset] == pytest.approx([len(events) * month / 1e6], rel=0.01)
    assert of_page("Honeycomb: million data points")[preset] == pytest.approx([len(points) * month / 1e6], rel=0.01)
