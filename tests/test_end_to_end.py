"""From an unchanged Python program to a real Collector and a real Prometheus: values arrive as they were read."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support import children, marker, sdk
from tests.tools import Missing, program
from tests.tools.collector import Collector, Point
from tests.tools.daemon import Prometheus, wait
from tests.tools.nvml import FakeNvml, geforce, h100

from opentelemetry.instrumentation.hardware import Config, __version__
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.catalog import CATALOG, SCHEMA_URL
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Number, Scope

OURS = "opentelemetry.instrumentation.hardware"
ROWS = {row.name: row for row in CATALOG}

WORK = "20000\n"  # a line for the programs: a millisecond or two of work

Series = tuple[str, frozenset[tuple[str, Any]]]


def series(point: Point) -> Series:
    return point.name, frozenset(point.attributes.items())


def by_series(points: Sequence[Point]) -> dict[Series, list[Point]]:
    """The points of each series, oldest first."""
    found: dict[Series, list[Point]] = {}
    for point in sorted(points, key=lambda point: point.time):
        found.setdefault(series(point), []).append(point)
    return found


# -- an unchanged program, in four ways


@dataclass(frozen=True)
class Way:
    """A protocol and temporality for the export of a program."""

    protocol: str
    temporality: str

    @property
    def name(self) -> str:
        return f"{self.protocol}-{self.temporality}"

    def environment(self, collector: Collector, driver: FakeNvml | None, service: str = "") -> dict[str, str]:
        return {
            **(driver.environment if driver else {}),
            "OTEL_SERVICE_NAME": service or self.name,
            "OTEL_EXPORTER_OTLP_PROTOCOL": {"grpc": "grpc", "http": "http/protobuf"}[self.protocol],
            "OTEL_EXPORTER_OTLP_ENDPOINT": {"grpc": collector.grpc, "http": collector.http}[self.protocol],
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": self.temporality,
            "OTEL_METRIC_EXPORT_INTERVAL": "500",
            "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "host,process",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": children.PEERS,
            "OTEL_PYTHON_HARDWARE_PRESET": "all",
            "OTEL_PYTHON_HARDWARE_EXIT_TIMEOUT": "60",  # a slow machine
            "NO_PROXY": "*",
        }


WAYS = [Way(protocol, temporality) for protocol in ("grpc", "http") for temporality in ("cumulative", "delta")]


@dataclass(frozen=True)
class Run:
    """The points that one program exported."""

    way: Way
    pid: int
    points: list[Point]


@dataclass(frozen=True)
class Programs:
    """The results of all programs.

    Attributes:
        runs: The results of each way.
        grown: The increase of the host's counters, read with psutil before the programs started and after they ended.
        collector: The Collector that they reported to, still running.
    """

    runs: Mapping[str, Run]
    grown: Mapping[Series, float]
    collector: Collector


def gpus(folder: Path) -> FakeNvml:
    """A simulated driver with a GPU that has all counters, and one with fans."""
    return FakeNvml(folder, h100(0), geforce(1))


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory, collector: Collector, server: Prometheus | None) -> Programs:
    """The four programs run at the same time, each as the reporter of its own job."""
    before = host_counters()
    pids = run_all(collector, gpus(tmp_path_factory.mktemp("driver")))
    after = host_counters()
    runs = {way.name: Run(way, pid, of_service(way.name, collector)) for way, pid in zip(WAYS, pids)}
    return Programs(runs, {key: after[key] - before[key] for key in before.keys() & after.keys()}, collector)


def of_service(name: str, collector: Collector) -> list[Point]:
    """The points that a service has exported so far."""
    return [point for point in collector.metrics() if point.resource["service.name"] == name]


def run_all(collector: Collector, driver: FakeNvml) -> list[int]:
    """Let the four programs work until each has exported several times, end them, and wait for their last exports."""
    with ExitStack() as stack:
        line = children.instrumented("applications/e2e_plain")
        processes = [stack.enter_context(children.started(line, way.environment(collector, driver))) for way in WAYS]

        def exported_some(points: Sequence[Point]) -> bool:
            exports = {(point.resource["service.name"], point.time) for point in points}
            counts = Counter(name for name, _ in exports)
            return all(counts[way.name] >= 4 for way in WAYS)

        work_until(exported_some, collector, processes)
        for each in processes:
            assert (*children.end_of(each), each.returncode) == ("", "", 0)
        marker.settle(collector)
        return [each.pid for each in processes]


def work_until(
    predicate: Callable[[Sequence[Point]], bool], collector: Collector, processes: Sequence[children.Piped]
) -> None:
    """Give the programs work until the predicate holds."""

    def enough() -> bool:
        for each in processes:
            each.stdin.write(WORK)
            each.stdin.flush()
        return predicate(collector.metrics())

    wait(enough, children.PATIENCE, "enough exports")


def host_counters() -> dict[Series, float]:
    """Some of the host's counters, as psutil reads them, under our names."""
    found: dict[Series, float] = {}

    def put(row: Metric, value: float, **attributes: str) -> None:
        words = {"mode": c.CPU_MODE, "device": c.DEVICE, "interface": c.INTERFACE}
        way = c.DISK_DIRECTION if "device" in attributes else c.NETWORK_DIRECTION
        found[row.name, frozenset((words.get(word, way), text) for word, text in attributes.items())] = value

    cpu = psutil.cpu_times()
    for mode in ("user", "nice", "system", "steal"):
        put(c.SYSTEM_CPU_TIME, getattr(cpu, mode), mode=mode)
    for name, disk in psutil.disk_io_counters(perdisk=True).items():
        for way in ("read", "write"):
            put(c.SYSTEM_DISK_IO, getattr(disk, f"{way}_bytes"), device=name, direction=way)
            put(c.SYSTEM_DISK_OPERATIONS, getattr(disk, f"{way}_count"), device=name, direction=way)
    for name, interface in psutil.net_io_counters(pernic=True).items():
        put(c.SYSTEM_NETWORK_IO, interface.bytes_sent, interface=name, direction="transmit")
        put(c.SYSTEM_NETWORK_IO, interface.bytes_recv, interface=name, direction="receive")
    return found


@pytest.fixture
def run(request: pytest.FixtureRequest, programs: Programs) -> Run:
    way: Way = request.param
    return programs.runs[way.name]


def ways(*temporalities: str) -> pytest.MarkDecorator:
    """Parametrize a test with the programs of these temporalities."""
    chosen = [way for way in WAYS if way.temporality in temporalities]
    return pytest.mark.parametrize("run", chosen, ids=lambda way: way.name, indirect=True)


KINDS = {Kind.COUNTER: ("sum", True), Kind.UPDOWN: ("sum", False), Kind.GAUGE: ("gauge", False)}


def check_words(points: Sequence[Point], temporality: str) -> None:
    """Check that kind, unit, description, attributes and scope of every point match the catalog."""
    assert {point.name for point in points} <= ROWS.keys()
    for point in points:
        row = ROWS[point.name]
        counted = temporality if row.kind is Kind.COUNTER else "cumulative"
        assert (point.kind, point.monotonic) == KINDS[row.kind], point.name
        assert point.temporality == (None if row.kind is Kind.GAUGE else counted), point.name
        assert (point.unit, point.description) == (row.unit, row.help), point.name
        sometimes = {c.HW_PARENT} | SOMETIMES.get(row, set())  # only parts have a parent
        always = set(row.attributes) - {c.CPU_NUMBER}  # on request only
        assert point.attributes.keys() | sometimes == always | sometimes, point.name
        assert all(text != "" for text in point.attributes.values()), point
    assert {(point.scope, point.version, point.schema_url) for point in points} == {(OURS, __version__, SCHEMA_URL)}


@ways("cumulative", "delta")
def test_arrived_metrics_match_the_vocabulary(run: Run) -> None:
    check_words(run.points, run.way.temporality)


# Attributes that not every point of a metric has.
SOMETIMES = {
    c.HW_GPU_INFO: {c.HW_SERIAL_NUMBER, c.GPU_ECC_MODE},  # a GeForce has neither
    c.HW_ERRORS: {c.GPU_XID},  # only errors of that type
    c.HW_GPU_NVLINK_UP: {c.GPU_LINK_NUMBER},  # on request
    c.HW_HOLDER_INFO: {*c.HW_HOLDER},  # those that are known
    c.HW_HOLDER_MEMORY: {*c.HW_HOLDER},
    c.HW_HOLDER_UTILIZATION: {*c.HW_HOLDER},
}

# Default metrics that not every Linux machine has, with the reason; all others have to arrive.
OPTIONAL = {
    c.SYSTEM_CPU_PHYSICAL_COUNT: "some virtual machines report no topology",
    c.SYSTEM_PAGING_UTILIZATION: "no swap space",
    c.SYSTEM_DISK_IO: "no whole disk with a device",
    c.SYSTEM_DISK_OPERATIONS: "no whole disk with a device",
    c.SYSTEM_DISK_IO_TIME: "no whole disk with a device",
    c.SYSTEM_NETWORK_IO: "a network namespace without a route",
    c.SYSTEM_NETWORK_PACKET_DROPPED: "a network namespace without a route",
    c.SYSTEM_NETWORK_ERRORS: "a network namespace without a route",
    c.SYSTEM_PRESSURE_TIME: "a kernel without CONFIG_PSI",
    c.HW_HOST_ENERGY: "no readable powercap",
    c.SPAN_ENERGY_BY_OPERATION: "the program has no spans",
    c.HW_NETWORK_IO: "no InfiniBand",
    c.HW_NETWORK_UP: "no InfiniBand",
    c.CONTAINER_CPU_TIME: "not in a container",
    c.CONTAINER_MEMORY_USAGE: "not in a container",
    c.CONTAINER_MEMORY_WORKING_SET: "not in a container",
    c.CONTAINER_MEMORY_LIMIT: "no such limit",
    c.CONTAINER_MEMORY_AVAILABLE: "no such limit",
    c.CONTAINER_CPU_LIMIT: "no such limit",
    c.CONTAINER_CPU_THROTTLED_TIME: "no such limit",
    c.CONTAINER_CPU_PERIODS: "no such limit",
    c.CONTAINER_CPU_THROTTLED_PERIODS: "no such limit",
    c.CONTAINER_MEMORY_OOM_KILLS: "not in a container",
    c.CONTAINER_PRESSURE_TIME: "not in a container, or cgroup version 1",
    c.HW_VOLTAGE: "not of these GPUs",
    c.HW_HOST_POWER: "reported on Macs",
    c.HW_CPU_SPEED: "reported on Macs",
    c.PROCESS_GPU_MEMORY_USAGE: "the program uses no GPU",
    c.PROCESS_GPU_UTILIZATION: "the program uses no GPU",
    c.PROCESS_DISK_IO: "some sandboxes have no /proc/self/io",
    c.PROCESS_HANDLE_COUNT: "Windows has it",
    c.PROCESS_TREE_MEMORY_USAGE: "a program without children",
    c.PROCESS_TREE_CPU_UTILIZATION: "a program without children",
    c.PROCESS_TREE_THREAD_COUNT: "a program without children",
    c.SPANS_ENERGY_UNATTRIBUTED: "SPANS_SHARES is off",
}


# Prefixes of metrics of devices that are not simulated here, and of scraped endpoints.
OTHERS = ("hw.npu.", "process.npu.", "google.", "aws.", "openmetrics.", "hw.holder.")


@ways("cumulative", "delta")
def test_every_default_metric_arrives(run: Run) -> None:
    wanted = {row.name for row in CATALOG if Config().wants(row) and not row.name.startswith(OTHERS)}
    arrived = {point.name for point in run.points}
    assert wanted - {row.name for row in OPTIONAL} - arrived == set()
    assert arrived - wanted == set()


@ways("cumulative", "delta")
def test_each_series_arrives_once_per_export(run: Run) -> None:
    counts = Counter((series(point), point.time) for point in run.points)
    assert [key for key, count in counts.items() if count != 1] == []
    exports = sorted({point.time for point in run.points})
    for key, points in by_series(run.points).items():
        if key[0] == c.SYSTEM_CPU_TIME.name:
            lacking = [number for number, time in enumerate(exports) if time not in {point.time for point in points}]
            # On a very busy machine, the first exports may precede the first reading.
            first = [*range(len(lacking))]
            assert lacking == first, f"metrics that every host has are missing from these of {len(exports)} exports"


@ways("cumulative", "delta")
def test_resource_names_service_host_and_process(run: Run, programs: Programs) -> None:
    resources = {json.dumps(point.resource, sort_keys=True) for point in run.points}
    assert len(resources) == 1
    resource = run.points[0].resource
    assert resource["service.name"] == run.way.name
    assert resource["host.name"] == os.uname().nodename
    assert resource["process.pid"] == run.pid
    assert resource["telemetry.sdk.language"] == "python"
    if sdk.INSTANCES:
        instances = {each.points[0].resource["service.instance.id"] for each in programs.runs.values()}
        assert len(instances) == len(WAYS)


@ways("cumulative")
def test_cumulative_counters_are_monotonic_with_one_start_time(run: Run) -> None:
    for key, points in by_series([point for point in run.points if point.monotonic]).items():
        values = [point.value for point in points]
        assert values == sorted(values), key
        assert len({point.start for point in points}) == 1, key


@ways("delta")
def test_deltas_are_not_negative_and_no_more_than_the_host_counted(run: Run, programs: Programs) -> None:
    """The first delta is not the total since boot."""
    found = by_series([point for point in run.points if point.monotonic])
    assert [key for key, points in found.items() if min(point.value for point in points) < 0] == []
    compared = found.keys() & programs.grown.keys()
    assert {name for name, _ in compared} >= {c.SYSTEM_CPU_TIME.name}
    for key in compared:
        # psutil reads the same files before and after, so only the rounding of float sums is tolerated.
        assert sum(point.value for point in found[key]) <= programs.grown[key] + 1e-6, key
    busy = sum(sum(point.value for point in points) for key, points in found.items() if key[0] == "system.cpu.time")
    assert busy > 0


AGENTS = [WAYS[0], WAYS[-1]]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> dict[str, list[Point]]:
    """The points of two agents that ran at the same time and were ended by SIGTERM."""
    driver = gpus(tmp_path_factory.mktemp("driver"))
    line = ["otel-hardware", "run", "--interval", "0.5"]  # sources pause after three intervals without a collection
    names = {way.name: f"agent-{way.name}" for way in AGENTS}
    with ExitStack() as stack:
        running = [
            stack.enter_context(children.started(line, way.environment(collector, driver, names[way.name])))
            for way in AGENTS
        ]

        def exported_some() -> bool:
            shares = c.SYSTEM_CPU_UTILIZATION.name  # of the time between two readings
            exports = {
                (point.resource["service.name"], point.time) for point in collector.metrics() if point.name == shares
            }
            counts = Counter(name for name, _ in exports)
            return all(counts[name] >= 3 for name in names.values())

        wait(exported_some, children.PATIENCE, "enough exports")
        for agent in running:
            agent.terminate()
        for agent in running:
            out, err = children.end_of(agent)
            assert (agent.returncode, out) == (0, ""), err
    marker.settle(collector)
    return {way: of_service(name, collector) for way, name in names.items()}


@pytest.mark.parametrize("way", AGENTS, ids=lambda way: way.name)
def test_agent_exports_metrics_as_the_vocabulary_defines_them(way: Way, agents: dict[str, list[Point]]) -> None:
    points = agents[way.name]
    check_words(points, way.temporality)
    host = {row.name for row in CATALOG if row.scope is Scope.HOST and Config().wants(row)}
    host -= {name for name in host if name.startswith(OTHERS)}
    assert host - {row.name for row in OPTIONAL} - {point.name for point in points} == set()
    counts = Counter((series(point), point.time) for point in points)
    assert [key for key, count in counts.items() if count != 1] == []
    assert {point.resource["host.name"] for point in points} == {os.uname().nodename}


def test_restarted_agent_continues_every_series(server: Prometheus | None, collector: Collector) -> None:
    environ = {**AGENTS[0].environment(collector, None, "restarted"), "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": ""}
    line = ["otel-hardware", "run", "--interval", "0.5", "--duration", "3", "--simulate", "8xH100"]
    for _ in range(3):
        children.succeed(line, environ)
    marker.settle(collector)
    points = of_service("restarted", collector)
    assert len({frozenset(point.resource.items()) for point in points}) == 1
    gpus = {point.attributes[c.HW_ID] for point in points if point.name == c.HW_GPU_INFO.name}
    assert len(gpus) == 8
    if server is None:
        program("prometheus")  # which is missing
    assert server is not None
    of_agent = '{exported_job="restarted"}'
    wait(lambda: bool(server.last(f"hw_gpu_info{of_agent}")), children.PATIENCE, "a scrape")
    for metric in ("hw_gpu_info", "hw_power_watts"):
        assert server.query(f"count(last_over_time({metric}{of_agent}[1h]))") == [({}, 8.0)]
    joined = f"hw_power_watts{of_agent} * on (host_name, hw_id) group_left (hw_model) hw_gpu_info{of_agent}"
    wait(lambda: len(server.query(joined)) == 8, children.PATIENCE, "the join of the documentation, after a scrape")


# -- exact values


@dataclass(frozen=True)
class DataPoint:
    """One data point, as the SDK passed it to an exporter or as the Collector wrote it."""

    name: str
    attributes: frozenset[tuple[str, Any]]
    start: int | None
    time: int
    value: Number
    type: type

    @property
    def series(self) -> Series:
        return self.name, self.attributes


def exported(journal: Path) -> list[list[DataPoint]]:
    """The points of a reader, one list for each export."""
    return [
        [
            DataPoint(
                metric["name"],
                frozenset(point["attributes"].items()),
                point["start_time_unix_nano"],
                point["time_unix_nano"],
                point["value"],
                type(point["value"]),
            )
            for resource in json.loads(line)["resource_metrics"]
            for scope in resource["scope_metrics"]
            for metric in scope["metrics"]
            for point in metric["data"]["data_points"]
        ]
        for line in journal.read_text().splitlines()
    ]


@dataclass(frozen=True)
class Values:
    """The exports of each reader, and the points that the Collector received."""

    exports: Mapping[str, list[list[DataPoint]]]
    arrived: list[DataPoint]


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Values:
    folder = tmp_path_factory.mktemp("values")
    line = children.command("applications/e2e_values", collector.grpc, collector.http, folder)
    with children.started(line, {"NO_PROXY": "*"}) as process:
        journals = [folder / f"{way.name}.jsonl" for way in WAYS]

        def exported_some(points: Sequence[Point]) -> bool:
            return all(each.exists() and each.read_text().count("\n") >= 5 for each in journals)

        work_until(exported_some, collector, [process])
        assert (*children.end_of(process), process.returncode) == ("", "", 0)
    marker.settle(collector)
    points = of_service("values", collector)
    exports = {way.name: exported(folder / f"{way.name}.jsonl") for way in WAYS}
    arrived = [
        DataPoint(
            point.name,
            frozenset(point.attributes.items()),
            point.start,
            point.time,
            point.value,
            type(point.value),
        )
        for point in points
    ]
    return Values(exports, arrived)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_exported_values_arrive_bit_by_bit(way: Way, values: Values) -> None:
    sent = [point for export in values.exports[way.name] for point in export]
    times = {point.time for point in sent}
    assert len(times) == len(values.exports[way.name]) >= 4
    arrived = [point for point in values.arrived if point.time in times]
    # Equal numbers of equal types: ints are exact, and JSON preserves floats exactly.
    assert Counter(arrived) == Counter(sent)
    assert {int, float} == {point.type for point in sent}


def test_no_point_arrives_that_was_not_exported(values: Values) -> None:
    sent = Counter(point for each in values.exports.values() for export in each for point in export)
    assert Counter(values.arrived) == sent


# By the prefix of a name, the metric that identifies a reading of its source.
READINGS = {"system.": c.SYSTEM_UPTIME, "process.": c.PROCESS_UPTIME}


@pytest.mark.parametrize("way", [way for way in WAYS if way.temporality == "delta"], ids=lambda way: way.name)
@pytest.mark.parametrize("prefix", READINGS)
def test_deltas_sum_to_the_cumulative_value(prefix: str, way: Way, values: Values) -> None:
    """For readers that exported the same reading of a source, which its uptime identifies."""
    clock = READINGS[prefix]
    totals = running_totals(values.exports[way.name], prefix, clock)
    cumulative = {
        reading: {point.series: point.value for point in export if is_counter(point.name, prefix)}
        for name, exports in values.exports.items()
        if name.endswith("cumulative")
        for export in exports
        for reading in readings_of(export, clock)
    }
    common = totals.keys() & cumulative.keys()
    assert common, "no reading was exported by both"
    for reading in common:
        assert totals[reading].keys() == cumulative[reading].keys()
        for key, total in totals[reading].items():
            expected = cumulative[reading][key]
            # Sums of floats: each addition and each difference may round by half a unit of the last place.
            slack = 2 * len(values.exports[way.name]) * math.ulp(expected) if isinstance(expected, float) else 0
            assert abs(total - expected) <= slack, key


def is_counter(name: str, prefix: str) -> bool:
    return name.startswith(prefix) and ROWS[name].kind is Kind.COUNTER


def readings_of(export: Sequence[DataPoint], clock: Metric) -> list[Number]:
    """The reading that was exported. On a busy machine, the first exports may precede the first reading."""
    found = [point.value for point in export if point.name == clock.name]
    assert len(found) <= 1
    return found


def running_totals(
    exports: Sequence[Sequence[DataPoint]], prefix: str, clock: Metric
) -> dict[Number, dict[Series, Number]]:
    """The sums of each counter's deltas, by reading."""
    found: dict[Number, dict[Series, Number]] = {}
    total: dict[Series, Number] = {}
    for export in exports:
        for point in export:
            if is_counter(point.name, prefix):
                total[point.series] = total.get(point.series, 0) + point.value
        found.update((reading, dict(total)) for reading in readings_of(export, clock))
    return found


def test_host_counters_agree_between_jobs(programs: Programs) -> None:
    """Programs that ran at the same time read the same counters, so their ranges of values overlap."""
    found = [by_series(run.points) for run in programs.runs.values() if run.way.temporality == "cumulative"]
    first, second = found
    for key in first.keys() & second.keys():
        row = ROWS[key[0]]
        if row.kind is Kind.COUNTER and row.scope is Scope.HOST and row.name.startswith("system."):
            low, high = sorted((first[key], second[key]), key=lambda points: points[0].value)
            assert high[0].value <= low[-1].value, f"{key} of two programs that ran at the same time"


# -- Prometheus

# Our names, and the names that the Collector's Prometheus exporter derives from them.
PROMETHEUS = {
    c.SYSTEM_CPU_TIME: "system_cpu_time_seconds_total",
    c.SYSTEM_CPU_UTILIZATION: "system_cpu_utilization_ratio",
    c.SYSTEM_CPU_LOAD_1M: "system_cpu_load_average_1m",
    c.SYSTEM_CPU_LOGICAL_COUNT: "system_cpu_logical_count",
    c.SYSTEM_MEMORY_USAGE: "system_memory_usage_bytes",
    c.SYSTEM_PAGING_FAULTS: "system_paging_faults_total",
    c.SYSTEM_FILESYSTEM_LIMIT: "system_filesystem_limit_bytes",
    c.SYSTEM_UPTIME: "system_uptime_seconds",
    c.PROCESS_CPU_TIME: "process_cpu_time_seconds_total",
    c.PROCESS_CONTEXT_SWITCHES: "process_context_switches_total",
    c.PROCESS_MEMORY_PEAK: "process_memory_peak_bytes",
    c.SOURCE_UP: "otel_hardware_source_up",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> Iterator[Prometheus | None]:
    """Prometheus, if it is installed. It is started early, because it scrapes nothing in its first five seconds."""
    try:
        program("prometheus")
    except Missing:
        yield None
        return
    with Prometheus(tmp_path_factory.mktemp("prometheus"), {"hardware": collector.prometheus.split("/")[2]}) as started:
        yield started


@pytest.fixture(scope="module")
def prometheus(server: Prometheus | None, programs: Programs) -> Prometheus:
    """Prometheus, after it has scraped the last values of the programs."""
    if server is None:
        program("prometheus")  # which is missing
    assert server is not None
    now = time.time()
    # Of a scrape that timed out, `up` is 0.
    successful = "timestamp(up) and up == 1"
    wait(lambda: any(at > now for _, at in server.query(successful)), children.PATIENCE, "a later scrape")
    return server


def test_prometheus_stores_the_last_value_of_every_series(prometheus: Prometheus, programs: Programs) -> None:
    run = programs.runs["grpc-cumulative"]
    stored, expected = {}, {}
    for row, name in PROMETHEUS.items():
        # The programs' label job conflicts with the one that Prometheus sets.
        answer = prometheus.last(f'{name}{{exported_job="{run.way.name}"}}')
        labels = [attribute.replace(".", "_") for attribute in row.attributes]
        stored[name] = {frozenset((key, each[key]) for key in labels if key in each): value for each, value in answer}
        expected[name] = {
            frozenset((key.replace(".", "_"), text) for key, text in attributes): float(points[-1].value)
            for (metric, attributes), points in by_series(run.points).items()
            if metric == row.name
        }
    assert all(expected.values())
    assert stored == expected


def test_prometheus_total_is_the_sum_of_deltas(prometheus: Prometheus, programs: Programs) -> None:
    """The Collector adds up the deltas of programs that export deltas."""
    run = programs.runs["http-delta"]
    answer = prometheus.last(f'process_context_switches_total{{exported_job="{run.way.name}"}}')
    sums = {
        dict(attributes)[c.SWITCH_TYPE]: sum(point.value for point in points)
        for (name, attributes), points in by_series(run.points).items()
        if name == c.PROCESS_CONTEXT_SWITCHES.name
    }
    assert {labels["process_context_switch_type"]: value for labels, value in answer} == sums


def test_promtool_complains_about_count_suffix_only(programs: Programs) -> None:
    """Names of the semantic conventions end in .count, which Prometheus reserves for histograms."""
    promtool = program("promtool")
    outcome = subprocess.run(
        [promtool, "check", "metrics"],
        input=programs.collector.exposition(),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    complaints = dict(line.split(" ", 1) for line in (outcome.stdout + outcome.stderr).splitlines())
    expected = 'non-histogram and non-summary metrics should not have "_count" suffix'
    assert set(complaints.values()) <= {expected}, complaints
    counts = {re.sub(r"\W", "_", row.name) for row in CATALOG if row.name.endswith(".count")}
    assert complaints.keys() <= counts
