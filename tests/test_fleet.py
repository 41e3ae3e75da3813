"""The queries of the pages for operators, in a Prometheus that scrapes a Collector with simulated hosts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from tests.support.children import PATIENCE, ROOT, started
from tests.tools import need, otelcol, program
from tests.tools.collector import Collector
from tests.tools.daemon import Prometheus, wait

# The simulated GPUs of each host. A second is a minute.
HOSTS = {
    "straggler": "2xH100:straggler",
    "kernels": "1xH100:small-kernels",
    "hot": "1xH100:hot",
    "lost": "2xH100:lost",
    "leak": "1xH100:memory-leak",
}

# Parts of queries that find nothing here: no host has stopped, and every source can be read.
NOTHING = (" offset 15m", "otel_hardware_source_up == 0")


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
    need(otelcol)
    need(lambda: program("prometheus"))
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
