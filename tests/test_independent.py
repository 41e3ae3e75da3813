"""Compare with other readers of the same machine: Debian's node exporter and the Collector's host metrics receiver.

Each of our readings is made between two of theirs. So a counter must lie between their two values. A gauge must too,
with a tolerance of its range in the other reader's values during the test. If a name has another meaning there, the
translation below compares what is comparable.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support import children
from tests.support.journal import flatten
from tests.tools.collector import Collector, Point
from tests.tools.daemon import NodeExporter, get, wait

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Kind, Metric

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the other readers are set up for Linux only")

ROUNDS = 6
INTERVAL = 0.05  # seconds between our samples

Series: TypeAlias = "tuple[Metric, frozenset[tuple[str, Any]]]"
Reading: TypeAlias = "dict[Series, float]"

ROWS = {row.name: row for row in c.CATALOG}


@dataclass(frozen=True)
class Translation:
    """The translation of another reader's name and labels to our series.

    Attributes:
        row: Our metric.
        attributes: For each of our attributes, the other reader's label, or "=" and a value.
        words: Our values for the values of their labels; empty if they are the same.
    """

    row: Metric
    attributes: Mapping[str, str]
    words: Mapping[str, str]

    def __call__(self, labels: Mapping[str, str]) -> Series | None:
        """The series; None where a value of theirs has no counterpart."""
        found = {}
        for name, label in self.attributes.items():
            value = label[1:] if label.startswith("=") else labels[label]
            if self.words and value not in self.words:
                return None
            found[name] = self.words.get(value, value)
        return self.row, frozenset(found.items())


def of(row: Metric, attributes: Mapping[str, str] | None = None, words: Mapping[str, str] | None = None) -> Translation:
    return Translation(row, attributes or {}, words or {})


# -- ours


class Ours:
    """This process, instrumented, with a reader that collects on demand."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._provider = MeterProvider([self._reader], shutdown_on_exit=False)

    def __enter__(self) -> Ours:
        HardwareInstrumentor().instrument(
            meter_provider=self._provider,
            sample_interval=INTERVAL,
            counter_origin="boot",
            preset="all",
            interfaces=list(psutil.net_io_counters(pernic=True)),
            include_metrics=[
                "system.cpu.load_average.*",
                "system.disk.operation_time",
                "system.network.linux.tcp.retransmits",
                "system.network.packet.count",
                "system.paging.operations",
            ],
        )
        return self

    def __exit__(self, *_: object) -> None:
        HardwareInstrumentor().uninstrument()
        self._provider.shutdown()

    def collect(self) -> Reading:
        points = flatten(self._reader.get_metrics_data())
        return {(ROWS[point.name], frozenset(point.attributes.items())): point.value for point in points}

    def fresh(self) -> Reading:
        """A collection of readings that all began after the call.

        The current reading may have begun before the call, the next one cannot have. A new uptime shows a new reading.
        File systems have no such mark, but a reading that is older than three intervals is not exported.
        """
        begun = time.monotonic()
        marks: dict[Metric, set[float]] = {c.SYSTEM_UPTIME: set(), c.PROCESS_UPTIME: set()}
        reading: Reading = {}

        def renewed() -> bool:
            reading.clear()
            reading.update(self.collect())
            for clock, seen in marks.items():
                seen |= {value for (row, _), value in reading.items() if row is clock}
            known = {row for row, _ in reading}
            complete = {c.SYSTEM_UPTIME, c.PROCESS_UPTIME, c.SYSTEM_FILESYSTEM_LIMIT} <= known
            late = time.monotonic() - begun > 3 * INTERVAL
            return complete and late and all(len(seen) > 2 for seen in marks.values())

        wait(renewed, children.PATIENCE, "two new readings of each of our sources")
        return reading


# -- the node exporter

MODES = {mode: mode for mode in ("user", "nice", "system", "idle", "iowait", "steal")}
INTERRUPTS = {"irq": "interrupt", "softirq": "interrupt"}


def disk(direction: str) -> dict[str, str]:
    return {c.DEVICE: "device", c.DISK_DIRECTION: direction}


def interface(direction: str) -> dict[str, str]:
    return {c.INTERFACE: "device", c.NETWORK_DIRECTION: direction}


def pressure(resource: str, kind: str) -> Translation:
    return of(c.SYSTEM_PRESSURE_TIME, {c.PRESSURE_RESOURCE: f"={resource}", c.PRESSURE_KIND: f"={kind}"})


# Both of us count what guests ran as user time, as the kernel does; node_cpu_guest_seconds_total tells that part again.
NODE = {
    "node_cpu_seconds_total": of(c.SYSTEM_CPU_TIME, {c.CPU_MODE: "mode"}, MODES | INTERRUPTS),
    "node_load1": of(c.SYSTEM_CPU_LOAD_1M),
    "node_load5": of(c.SYSTEM_CPU_LOAD_5M),
    "node_load15": of(c.SYSTEM_CPU_LOAD_15M),
    "node_memory_MemTotal_bytes": of(c.SYSTEM_MEMORY_LIMIT),
    "node_memory_MemAvailable_bytes": of(c.SYSTEM_MEMORY_LINUX_AVAILABLE),
    "node_vmstat_pgmajfault": of(c.SYSTEM_PAGING_FAULTS, {c.FAULT_TYPE: "=major"}),
    "node_vmstat_pswpin": of(c.SYSTEM_PAGING_OPERATIONS, {c.PAGING_DIRECTION: "=in"}),
    "node_vmstat_pswpout": of(c.SYSTEM_PAGING_OPERATIONS, {c.PAGING_DIRECTION: "=out"}),
    "node_vmstat_oom_kill": of(c.SYSTEM_MEMORY_OOM_KILLS),
    "node_disk_read_bytes_total": of(c.SYSTEM_DISK_IO, disk("=read")),
    "node_disk_written_bytes_total": of(c.SYSTEM_DISK_IO, disk("=write")),
    "node_disk_reads_completed_total": of(c.SYSTEM_DISK_OPERATIONS, disk("=read")),
    "node_disk_writes_completed_total": of(c.SYSTEM_DISK_OPERATIONS, disk("=write")),
    "node_disk_read_time_seconds_total": of(c.SYSTEM_DISK_OPERATION_TIME, disk("=read")),
    "node_disk_write_time_seconds_total": of(c.SYSTEM_DISK_OPERATION_TIME, disk("=write")),
    "node_disk_io_time_seconds_total": of(c.SYSTEM_DISK_IO_TIME, {c.DEVICE: "device"}),
    "node_network_transmit_bytes_total": of(c.SYSTEM_NETWORK_IO, interface("=transmit")),
    "node_network_receive_bytes_total": of(c.SYSTEM_NETWORK_IO, interface("=receive")),
    "node_network_transmit_packets_total": of(c.SYSTEM_NETWORK_PACKET_COUNT, interface("=transmit")),
    "node_network_receive_packets_total": of(c.SYSTEM_NETWORK_PACKET_COUNT, interface("=receive")),
    "node_network_transmit_drop_total": of(c.SYSTEM_NETWORK_PACKET_DROPPED, interface("=transmit")),
    "node_network_receive_drop_total": of(c.SYSTEM_NETWORK_PACKET_DROPPED, interface("=receive")),
    "node_network_transmit_errs_total": of(c.SYSTEM_NETWORK_ERRORS, interface("=transmit")),
    "node_network_receive_errs_total": of(c.SYSTEM_NETWORK_ERRORS, interface("=receive")),
    "node_netstat_Tcp_RetransSegs": of(c.SYSTEM_NETWORK_TCP_RETRANSMITS),
    "node_pressure_cpu_waiting_seconds_total": pressure("cpu", "some"),
    "node_pressure_memory_waiting_seconds_total": pressure("memory", "some"),
    "node_pressure_memory_stalled_seconds_total": pressure("memory", "full"),
    "node_pressure_io_waiting_seconds_total": pressure("io", "some"),
    "node_pressure_io_stalled_seconds_total": pressure("io", "full"),
}

NODE_SPACE = {c.DEVICE: "device", c.FILESYSTEM_TYPE: "fstype", c.FILESYSTEM_MOUNTPOINT: "mountpoint"}

# The exporter knows all of a file system, what is free for root, and what is free for everybody; we know states.
NODE_SPACES: dict[str, dict[str, int]] = {
    "node_filesystem_size_bytes": {"used": 1},
    "node_filesystem_free_bytes": {"used": -1, "reserved": 1},
    "node_filesystem_avail_bytes": {"free": 1, "reserved": -1},
}


def of_node_exporter(text: str) -> Reading:
    """Translate a scrape to our names. Several samples that are one series of ours are added up."""
    samples = [
        (name, dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(number))
        for name, labels, number in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.MULTILINE)
    ]
    reading: Reading = {}

    def add(key: Series | None, number: float) -> None:
        if key is not None:
            reading[key] = reading.get(key, 0.0) + number

    for name, labels, number in samples:
        if name in NODE:
            add(NODE[name](labels), number)
        if name == "node_filesystem_size_bytes":
            add(of(c.SYSTEM_FILESYSTEM_LIMIT, NODE_SPACE)(labels), number)
        for state, sign in NODE_SPACES.get(name, {}).items():
            add(
                of(c.SYSTEM_FILESYSTEM_USAGE, NODE_SPACE | {c.FILESYSTEM_STATE: f"={state}"})(labels),
                sign * number,
            )
    plain = {name: number for name, _, number in samples}
    minor = plain["node_vmstat_pgfault"] - plain["node_vmstat_pgmajfault"]
    add(of(c.SYSTEM_PAGING_FAULTS, {c.FAULT_TYPE: "=minor"})({}), minor)
    available = plain["node_memory_MemAvailable_bytes"]
    add(of(c.SYSTEM_MEMORY_USAGE, {c.MEMORY_STATE: "=available"})({}), available)
    add(of(c.SYSTEM_MEMORY_USAGE, {c.MEMORY_STATE: "=used"})({}), plain["node_memory_MemTotal_bytes"] - available)
    add(of(c.SYSTEM_UPTIME)({}), plain["node_time_seconds"] - plain["node_boot_time_seconds"])
    return reading


# -- the Collector's receiver


def enabled(*names: str) -> dict[str, Any]:
    return {"metrics": {name: {"enabled": True} for name in names}}


RECEIVER: dict[str, Any] = {
    "receivers": {
        "host_metrics": {
            "collection_interval": "100ms",
            "initial_delay": "0s",
            "scrapers": {
                "cpu": enabled("system.cpu.logical.count", "system.cpu.physical.count"),
                "load": {},
                "memory": enabled("system.memory.limit", "system.linux.memory.available"),
                "disk": {},
                "filesystem": {},
                "network": {},
                "paging": {},
                "system": {},
                "process": enabled(
                    "process.threads", "process.open_file_descriptors", "process.paging.faults", "process.uptime"
                )
                | {
                    "include": {"names": [psutil.Process().name()], "match_type": "strict"},
                    "mute_process_all_errors": True,
                },
            },
        }
    },
    "exporters": {"file": {"path": "${env:TELEMETRY_DIRECTORY}/metrics.jsonl", "flush_interval": "50ms"}},
    "extensions": {"health_check": {"endpoint": "${env:HEALTH_CHECK_ENDPOINT}"}},
    "service": {
        "extensions": ["health_check"],
        "pipelines": {"metrics": {"receivers": ["host_metrics"], "exporters": ["file"]}},
    },
}

# What the receiver counts for a fault of the host: the library beneath it gives bytes, a page for each.
FAULT = 4096

# Left out, because it means something else there: process.disk.io, which counts what went through caches, pipes and
# sockets as well (ours is what storage had to do); process.context_switches, which are those of the main thread (ours
# of all).
SCRAPED = {
    "system.cpu.time": of(
        c.SYSTEM_CPU_TIME,
        {c.CPU_MODE: "state"},
        MODES | {"wait": "iowait", "interrupt": "interrupt", "softirq": "interrupt"},
    ),
    "system.cpu.logical.count": of(c.SYSTEM_CPU_LOGICAL_COUNT),
    "system.cpu.physical.count": of(c.SYSTEM_CPU_PHYSICAL_COUNT),
    "system.cpu.load_average.1m": of(c.SYSTEM_CPU_LOAD_1M),
    "system.cpu.load_average.5m": of(c.SYSTEM_CPU_LOAD_5M),
    "system.cpu.load_average.15m": of(c.SYSTEM_CPU_LOAD_15M),
    "system.memory.limit": of(c.SYSTEM_MEMORY_LIMIT),
    "system.memory.usage": of(c.SYSTEM_MEMORY_USAGE, {c.MEMORY_STATE: "state"}, {"used": "used"}),
    "system.linux.memory.available": of(c.SYSTEM_MEMORY_LINUX_AVAILABLE),
    "system.paging.faults": of(c.SYSTEM_PAGING_FAULTS, {c.FAULT_TYPE: "type"}),
    "system.disk.io": of(c.SYSTEM_DISK_IO, disk("direction")),
    "system.disk.operations": of(c.SYSTEM_DISK_OPERATIONS, disk("direction")),
    "system.disk.operation_time": of(c.SYSTEM_DISK_OPERATION_TIME, disk("direction")),
    "system.disk.io_time": of(c.SYSTEM_DISK_IO_TIME, {c.DEVICE: "device"}),
    "system.filesystem.usage": of(
        c.SYSTEM_FILESYSTEM_USAGE,
        {
            c.DEVICE: "device",
            c.FILESYSTEM_TYPE: "type",
            c.FILESYSTEM_MOUNTPOINT: "mountpoint",
            c.FILESYSTEM_STATE: "state",
        },
    ),
    "system.network.io": of(c.SYSTEM_NETWORK_IO, interface("direction")),
    "system.network.packets": of(c.SYSTEM_NETWORK_PACKET_COUNT, interface("direction")),
    "system.network.dropped": of(c.SYSTEM_NETWORK_PACKET_DROPPED, interface("direction")),
    "system.network.errors": of(c.SYSTEM_NETWORK_ERRORS, interface("direction")),
    "system.uptime": of(c.SYSTEM_UPTIME),
    # Their third state, the time that the process waited for disks, is not a mode of the conventions.
    "process.cpu.time": of(c.PROCESS_CPU_TIME, {c.CPU_MODE: "state"}, {"user": "user", "system": "system"}),
    "process.memory.usage": of(c.PROCESS_MEMORY_USAGE),
    "process.memory.virtual": of(c.PROCESS_MEMORY_VIRTUAL),
    "process.threads": of(c.PROCESS_THREAD_COUNT),
    "process.open_file_descriptors": of(c.PROCESS_FILE_DESCRIPTOR_COUNT),
    "process.paging.faults": of(c.PROCESS_PAGING_FAULTS, {c.FAULT_TYPE: "type"}),
    "process.uptime": of(c.PROCESS_UPTIME),
}


def of_receiver(points: Sequence[Point]) -> dict[Series, list[tuple[int, float]]]:
    """Translate points to our names: by series, times and values, oldest first."""
    found: dict[Series, dict[int, float]] = {}
    for point in points:
        somebody_else = point.name.startswith("process.") and point.resource.get("process.pid") != os.getpid()
        if point.name in SCRAPED and not somebody_else:
            key = SCRAPED[point.name]({name: str(text) for name, text in point.attributes.items()})
            if key is not None:
                value = point.value / FAULT if key[0] is c.SYSTEM_PAGING_FAULTS else point.value
                times = found.setdefault(key, {})
                times[point.time] = times.get(point.time, 0.0) + value
    return {key: sorted(times.items()) for key, times in found.items()}


# -- both at once


@dataclass(frozen=True)
class Bracket:
    """Three readings of one series, in this order."""

    before: float
    ours: float
    after: float

    def outside(self, steady: bool) -> float:
        """How far ours lies outside theirs; a counter that falls does not agree with itself."""
        low, high = (self.before, self.after) if steady else sorted((self.before, self.after))
        return max(0.0, low - self.ours, self.ours - high)


@dataclass(frozen=True)
class Comparison:
    """The comparison with one other reader.

    Attributes:
        brackets: By our series, one for each round; empty for a series that the other reader does not have.
        seen: By series, every value of the other reader.
        rows: All metrics of the other reader.
    """

    brackets: Mapping[Series, list[Bracket]]
    seen: Mapping[Series, list[float]]
    rows: set[Metric]


@dataclass(frozen=True)
class Comparisons:
    node_exporter: Comparison
    receiver: Comparison


@contextmanager
def busy(file: Path) -> Iterator[None]:
    """Keep the machine busy during the block."""
    with children.started(children.command("applications/e2e_busy", file)) as process:
        assert process.stdout.readline() == "busy\n"
        yield
        _, err = children.end_of(process)
        assert (process.returncode, err) == (0, "")


@pytest.fixture(scope="module")
def comparisons(tmp_path_factory: pytest.TempPathFactory) -> Comparisons:
    folder = tmp_path_factory.mktemp("independent")
    with ExitStack() as stack:
        exporter = stack.enter_context(NodeExporter(folder, "--collector.netdev.device-exclude=^$"))
        # We begin before the receiver does, so that it does not see our own threads come as something that moved.
        ours = stack.enter_context(Ours())
        ours.fresh()
        collector = stack.enter_context(Collector(folder, RECEIVER))
        stack.enter_context(busy(folder / "busy"))
        scrapes, readings, moments = [of_node_exporter(get(exporter.url))], [], []
        collector.wait(lambda points: enough(points, 0))
        for _ in range(ROUNDS):
            begin = time.time_ns()
            write_to_disk(folder / "block")  # on a busy machine, the program's own write can take longer than a round
            readings.append(ours.fresh())
            moments.append((begin, time.time_ns()))
            scrapes.append(of_node_exporter(get(exporter.url)))
        points = collector.wait(lambda points: enough(points, moments[-1][1]))
    return Comparisons(with_node_exporter(scrapes, readings), with_receiver(of_receiver(points), readings, moments))


def write_to_disk(file: Path) -> None:
    """Write a file, and wait until the disk has it."""
    with file.open("wb") as opened:
        opened.write(bytes(65536))
        opened.flush()
        os.fsync(opened.fileno())


def enough(points: Sequence[Point], moment: int) -> bool:
    """Whether each of the receiver's scrapers has run twice since a moment."""
    names = {point.name for point in points} | {"system.cpu.time", "process.cpu.time", "system.disk.io"}
    return all(len({each.time for each in points if each.name == name and each.time > moment}) >= 2 for name in names)


def with_node_exporter(scrapes: Sequence[Reading], readings: Sequence[Reading]) -> Comparison:
    """Combine scrapes with our readings. Each reading was made after one scrape and before the next."""
    brackets = {
        key: [
            Bracket(before[key], reading[key], after[key])
            for before, reading, after in zip(scrapes, readings, scrapes[1:])
            if key in reading and key in before
        ]
        for key in readings[-1]
    }
    seen = {key: [scrape[key] for scrape in scrapes if key in scrape] for key in brackets}
    return Comparison(brackets, seen, {row for scrape in scrapes for row, _ in scrape})


def with_receiver(
    scraped: Mapping[Series, Sequence[tuple[int, float]]],
    readings: Sequence[Reading],
    moments: Sequence[tuple[int, int]],
) -> Comparison:
    """Combine the receiver's points with our readings, by the times of the points, which may precede its reading.

    Its scrapes come one after the other. So the last but one before a moment had been read by then, and of those that
    come after it, the second one has certainly been read later.
    """
    brackets: dict[Series, list[Bracket]] = {key: [] for key in readings[-1]}
    for key, found in brackets.items():
        for (begin, end), reading in zip(moments, readings):
            before = [value for at, value in scraped.get(key, ()) if at < begin]
            after = [value for at, value in scraped.get(key, ()) if at > end]
            if key in reading and len(before) >= 2 and len(after) >= 2:
                found.append(Bracket(before[-2], reading[key], after[1]))
    seen = {key: [value for _, value in scraped.get(key, ())] for key in brackets}
    return Comparison(brackets, seen, {row for row, _ in scraped})


# Resolution of the kernel's CPU times in seconds; they are rounded down.
TICK = 1 / os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 0.01

# The resolution of a number in its unit, by metric.
GRAIN = {
    # The exporter adds up the CPUs, each rounded for itself; the kernel rounds the sum once. And its time of waiting
    # for disks is an estimate that can fall by a tick.
    c.SYSTEM_CPU_TIME: ((os.cpu_count() or 1) + 1) * TICK,
    # Ours comes in microseconds, theirs in ticks.
    c.PROCESS_CPU_TIME: TICK,
    # Both others take it from the time of boot, which the kernel tells in whole seconds; the receiver rounds it, too.
    c.SYSTEM_UPTIME: 1.0,
    c.PROCESS_UPTIME: 1.0,
}

STEADY = (c.SYSTEM_UPTIME, c.PROCESS_UPTIME)  # gauges that never fall


def check(comparison: Comparison, row: Metric, apart: Series | None = None) -> None:
    """Check that each of our series except one is also one of theirs, and agrees in every round."""
    found = {key: brackets for key, brackets in comparison.brackets.items() if key[0] is row and key != apart}
    if not found:
        # We leave out virtual disks such as loop devices, so only the other reader may have disks.
        assert row not in comparison.rows or row.name.startswith(("system.disk.", "system.filesystem."))
        pytest.skip(f"this machine has no {row.name}")
    steady = row.kind is Kind.COUNTER or row in STEADY
    for key, brackets in found.items():
        name = f"{row.name} {dict(key[1])}"
        assert len(brackets) == ROUNDS, f"{name}: the other reader has it in {len(brackets)} of {ROUNDS} rounds"
        moved = 0.0 if steady else max(comparison.seen[key]) - min(comparison.seen[key])
        # The last term is for floats: seconds that were divided and added up in another order.
        allowed = moved + GRAIN.get(row, 0.0) + 1e-6
        wrong = [bracket for bracket in brackets if bracket.outside(steady) > allowed]
        # Memory that is used and freed between two readings is not seen by every reader. That affects one round; a
        # gauge with another meaning is outside in every round.
        assert len(wrong) <= (0 if steady else ROUNDS // 3), f"{name} lies outside by more than {allowed:g}: {wrong}"


def rows(translations: Mapping[str, Translation], *more: Metric) -> list[Metric]:
    """Return the compared metrics, each once."""
    return sorted({each.row for each in translations.values()} | {*more}, key=lambda row: row.name)


@pytest.mark.parametrize(
    "row",
    rows(NODE, c.SYSTEM_FILESYSTEM_USAGE, c.SYSTEM_FILESYSTEM_LIMIT, c.SYSTEM_UPTIME),
    ids=lambda row: row.name,
)
def test_metric_agrees_with_node_exporter(row: Metric, comparisons: Comparisons) -> None:
    check(comparisons.node_exporter, row)


@pytest.mark.parametrize("row", rows(SCRAPED), ids=lambda row: row.name)
def test_metric_agrees_with_collector_host_metrics_receiver(row: Metric, comparisons: Comparisons) -> None:
    # It has no state "available".
    check(comparisons.receiver, row, of(c.SYSTEM_MEMORY_USAGE, {c.MEMORY_STATE: "=available"})({}))


@pytest.mark.parametrize("other", ["node_exporter", "receiver"])
def test_counters_moved_during_the_comparison(other: str, comparisons: Comparisons) -> None:
    """A bracket of constant numbers would prove little."""
    comparison: Comparison = getattr(comparisons, other)
    moved = {
        key[0]
        for key, brackets in comparison.brackets.items()
        if brackets and all(bracket.before < bracket.after for bracket in brackets)
    }
    expected = {
        c.SYSTEM_CPU_TIME,
        c.SYSTEM_NETWORK_IO,
        c.SYSTEM_NETWORK_PACKET_COUNT,
        c.SYSTEM_PAGING_FAULTS,
    }
    if any(key[0] is c.SYSTEM_DISK_IO for key in comparison.brackets):
        expected |= {c.SYSTEM_DISK_IO, c.SYSTEM_DISK_OPERATIONS}
    assert expected <= moved
