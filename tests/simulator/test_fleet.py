"""Many simulated hosts, as a store gets them: each with its own identity, in the order of time, also in the past.

Mistakes in the arguments are in `cli/mistakes.txt`.
"""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from typing import Any

import pytest
from tests.support.children import run
from tests.support.journal import Arrived
from tests.support.sink import Sink

CONSOLE = [sys.executable, "-m", "opentelemetry.instrumentation.hardware", "run"]
HOSTS = ("sim-5", "sim-6", "sim-7")


def rows(store: Sink, host: str) -> list[Arrived]:
    """The points of a host in the order in which they arrived."""
    return [point for export in store.exports if export.host == host for point in export.points]


def values(store: Sink, host: str, name: str, **wanted: object) -> list[Any]:
    return [value for export in store.exports if export.host == host for value in export.values(name, **wanted)]


@pytest.fixture(scope="module")
def store() -> Sink:
    """Five minutes of three hosts: one loses a GPU, one is held, one trains."""
    flags = ["--hosts", "3", "--scenarios", "lost,held", "--interval", "30", "--backfill", "5m", "--duration", "0"]
    with Sink() as store:
        answer = run([*CONSOLE, "--simulate", "2xH100@5", *flags], store.environment())
    assert answer.returncode == 0, answer.stderr
    assert "exporting 3 simulated hosts, sim-5 to sim-7" in answer.stderr
    return store


def test_each_host_has_an_identity_of_its_own(store: Sink) -> None:
    assert {export.host for export in store.exports} == {*HOSTS}
    assert len(store.resources) == 3, "none changes"
    for name in ("host.id", "service.instance.id", "dl.rank"):
        assert len({each[name] for each in store.resources}) == 3, name
    assert {each["otel_hardware.simulated"] for each in store.resources} == {True}
    assert {each["service.name"] for each in store.resources} == {"otel-hardware"}
    assert not [key for each in store.resources for key in each if key.startswith("process.")], "they are not this one"
    gpus = [point.attributes["hw.id"] for host in HOSTS for point in rows(store, host) if point.name == "hw.gpu.info"]
    assert len({*gpus}) == 6


def test_past_has_its_times_in_order(store: Sink) -> None:
    now = time.time()
    for found in (rows(store, host) for host in HOSTS):
        times = sorted({point.time for point in found})
        assert [point.time for point in found] == sorted(point.time for point in found)
        assert len(times) >= 9
        assert all(after - before == pytest.approx(30.0) for before, after in pairwise(times))
        assert now - 600.0 < times[0] - 30.0 <= times[-1] <= now
        (start,) = {point.start for point in found if point.is_counter}
        assert start / 1e9 <= times[0] - 30.0


def test_counters_never_fall(store: Sink) -> None:
    for host in HOSTS:
        last: dict[Any, Any] = {}
        for point in rows(store, host):
            if point.is_counter:
                assert point.value >= last.get(point.series, 0), point
                last[point.series] = point.value
        assert {name for _, name, _ in last} >= {"hw.energy", "hw.gpu.throttle.time", "system.cpu.time", "hw.errors"}


def test_energy_is_that_of_the_power(store: Sink) -> None:
    energy = values(store, "sim-7", "hw.energy", hw_name="GPU 0 simulated")
    power = values(store, "sim-7", "hw.power", hw_name="GPU 0 simulated")
    assert (energy[-1] - energy[0]) / (30.0 * (len(energy) - 1)) == pytest.approx(sum(power) / len(power), rel=0.1)


def test_scenarios_are_those_of_the_first_hosts(store: Sink) -> None:
    failed = {host: sum(values(store, host, "hw.status", hw_state="failed")) for host in HOSTS}
    assert failed["sim-5"] > 0
    assert failed["sim-6"] == failed["sim-7"] == 0
    busy = {host: values(store, host, "hw.gpu.utilization", hw_gpu_task="general")[-1] for host in HOSTS}
    assert busy["sim-6"] == 0.0
    assert busy["sim-7"] > 0.5
    holders = [point.attributes for point in rows(store, "sim-6") if point.name == "hw.holder.info"]
    assert {each["slurm.job.id"] for each in holders} == {"6"}, "one job has all hosts"
    assert values(store, "sim-7", "system.cpu.logical.count")[-1] == 16


def test_present_follows_the_past() -> None:
    with Sink() as store:
        began = time.time()
        flags = ["--simulate", "T4", "--hosts", "2", "--interval", "1", "--backfill", "3", "--duration", "2"]
        answer = run([*CONSOLE, *flags], store.environment())
        ended = time.time()
    assert answer.returncode == 0, answer.stderr
    assert len({export.host for export in store.exports}) == 2
    for host in {export.host for export in store.exports}:
        times = sorted({point.time for point in rows(store, host)})
        assert times[0] < times[-1] <= ended
        assert all(after - before == pytest.approx(1.0) for before, after in pairwise(times))
        assert times[-1] > began + 1.0


def test_past_waits_for_a_collector() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    flags = ["--simulate", "T4", "--backfill", "1m", "--interval", "15", "--duration", "0"]
    answer = run([*CONSOLE, *flags], {**endpoint, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"})
    assert answer.returncode == 1
    assert "no metrics were delivered to http://127.0.0.1:9/v1/metrics: 1 export failed" in answer.stderr
