"""Alerts and dashboards on data that simulated hosts have stored, in a real Prometheus and a real VictoriaMetrics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.alerts.stored import DASHBOARDS, HEALTHY, MINUTES, SCENARIOS, STEP, Stored, alerts, host, stored
from tests.tools import program, victoria_metrics
from tests.tools.stores import Rows

# Scenarios in which an alert fires. The other alerts have no scenario, and are tested by promtool only.
FIRE: dict[str, set[str]] = {
    "AcceleratorFailed": {"lost"},
    "AcceleratorXid": {"lost", "xid"},
    "AcceleratorUncorrectedErrors": {"ecc"},
    "AcceleratorRecoveryNeeded": {"ecc"},
    "AcceleratorDegraded": {"ecc"},
    "AcceleratorThermalThrottling": {"hot"},
    "AcceleratorPowerBrake": {"brake"},
    "AcceleratorMemoryNearlyFull": {"memory-leak"},
    "AcceleratorHeldIdle": {"held", "stuck"},  # the GPU that stands still is held, too
    "AcceleratorStuck": {"stuck"},
    "AcceleratorLinkDegraded": {"link"},
    "HostPressure": {"storage"},
    "HostFileSystemNearlyFull": {"full-disk"},
}

# Else each worker would simulate and store the hosts again, in a minute of CPU time.
pytestmark = [pytest.mark.alone, pytest.mark.timeout(2400)]

SPANS = "the simulated hosts send no spans, see test_spans_stored.py"
EMPTY = {
    "Seconds of a step by rank": SPANS,
    "Step over the median": SPANS,
    "Watts of spans by route": SPANS,
    "Watts of spans by model": SPANS,
    "Joules by name of the span": SPANS,
    "Of all power, by span": SPANS,
}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Stored]]:
    victoria_metrics()
    program("prometheus")
    program("promtool")
    with stored(tmp_path_factory.mktemp("stored")) as found:
        yield found


@pytest.fixture(scope="module", params=["prometheus", "victoriametrics"])
def server(request: pytest.FixtureRequest, stores: dict[str, Stored]) -> Stored:
    return stores[request.param]


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alert_fires_in_its_scenarios_and_nowhere_else(server: Stored, alert: dict[str, Any]) -> None:
    found = {labels["host_name"] for labels in server.fired(alert)}
    assert found == {host(scenario) for scenario in FIRE.get(alert["alert"], ())}
    assert not found & {*HEALTHY}


def test_idle_gpu_is_held_by_its_job(server: Stored) -> None:
    (alert,) = (each for each in alerts() if each["alert"] == "AcceleratorHeldIdle")
    found = {
        (labels["hw_name"], labels["slurm_job_id"])
        for labels in server.fired(alert)
        if labels["host_name"] == host("held")
    }
    assert found == {("GPU 0 simulated", "1"), ("GPU 1 simulated", "1")}


def test_energy_of_the_job_is_that_of_its_devices(server: Stored) -> None:
    end = {"time": server.last}
    ((_, ((_, job),)),) = server.query(f"sum(sum_over_time(job:energy_joules[{MINUTES}m]))", **end)
    ((_, ((_, devices),)),) = server.query(f"sum(increase(hw_energy_joules_total[{MINUTES}m]))", **end)
    assert job == pytest.approx(devices, rel=0.12), "the first two minutes have no rate yet"


# -- dashboards


def panels() -> list[tuple[str, str, str]]:
    """Board, title and query of each panel in Grafana."""
    boards = {path.stem: json.loads(path.read_text()) for path in sorted(DASHBOARDS.glob("*.json"))}
    return [
        (name, panel["title"], target["expr"])
        for name, board in boards.items()
        for panel in board["panels"]
        for target in panel["targets"]
    ]


def panels_of_vmui() -> list[tuple[str, str, str]]:
    boards = {path.stem: json.loads(path.read_text()) for path in sorted((DASHBOARDS / "vmui").glob("*.json"))}
    return [
        (name, panel["title"], query)
        for name, board in boards.items()
        for row in board["rows"]
        for panel in row["panels"]
        for query in panel["expr"]
    ]


def asked(server: Stored, query: str, where: str = ".*") -> Rows:
    for name, value in {
        "$host": where,
        "$device": ".*",
        "$job": ".*",
        "$__rate_interval": "2m",
        "$__range": "30m",
    }.items():
        query = query.replace(name, value)
    return server.query(query)


@pytest.mark.parametrize(("board", "title", "query"), panels(), ids=lambda text: text[:40])
def test_query_of_a_panel_has_an_answer(server: Stored, board: str, title: str, query: str) -> None:
    found = asked(server, query)
    assert bool(found) != (title in EMPTY), EMPTY.get(title, "no answer")


@pytest.mark.parametrize(("board", "title", "query"), panels_of_vmui(), ids=lambda text: text[:40])
def test_query_of_a_panel_of_vmui_has_an_answer(stores: dict[str, Stored], board: str, title: str, query: str) -> None:
    found = stores["victoriametrics"].query(query)
    assert bool(found) != (title in EMPTY), EMPTY.get(title, "no answer")


def values(server: Stored, board: str, title: str, where: str) -> list[float]:
    """The values of a panel for a host, at the end."""
    (query,) = (query for name, text, query in panels() if (name, text) == (board, title))
    found = [(labels, *rows[-1]) for labels, rows in asked(server, query, where)]
    return [
        value
        for labels, time, value in found
        if labels.get("host_name", where) == where and time > server.last - 2 * STEP  # others have ended
    ]


@pytest.mark.parametrize(
    ("board", "title", "scenario", "holds"),
    [
        ("node", "Utilization", "held", lambda found: found == [0.0, 0.0]),
        ("node", "Utilization", "lost", lambda found: len(found) == 1),
        ("node", "Power", "held", lambda found: all(60 < each < 80 for each in found)),
        ("node", "Temperature", "hot", lambda found: all(each >= 87 for each in found)),
        ("node", "Pressure", "storage", lambda found: max(found) == pytest.approx(0.55, abs=0.05)),
        ("node", "File systems", "full-disk", lambda found: found == [pytest.approx(0.97)]),
        ("fleet", "Clocks lowered, share of the time", "hot", lambda found: len(found) == 2 and min(found) > 0.5),
        ("fleet", "Clocks lowered, share of the time", "brake", lambda found: len(found) == 2 and min(found) > 0.5),
        ("fleet", "Utilization by host", "stuck", lambda found: found == [pytest.approx(0.5)]),
        ("fleet", "Held without computing for 15 minutes", "held", lambda found: len(found) == 2),
    ],
)
def test_panel_shows_what_the_scenario_put_there(
    server: Stored, board: str, title: str, scenario: str, holds: Callable[[list[float]], bool]
) -> None:
    found = values(server, board, title, host(scenario))
    assert holds(found), found


def test_fleet_counts_what_is_there(server: Stored) -> None:
    hosts = len(SCENARIOS) + len(HEALTHY)
    counts = {title: asked(server, query)[0][1][-1][1] for board, title, query in panels() if board == "fleet"}
    assert counts["Accelerators"] == 2 * hosts - 1, "one is lost"
    assert counts["Failed"] == 1
