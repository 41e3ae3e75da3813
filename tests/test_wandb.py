"""W&B's keys have W&B's values: each lies between what psutil says just before and just after, on a busy machine."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import psutil
import pytest
from tests.children import run

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.machine import Machine, machine
from opentelemetry.instrumentation.hardware.portable import PortableMachine
from opentelemetry.instrumentation.hardware.vocabulary import CATALOG

MIB, GIB = 2**20, 2**30
TICK = 0.01
"""Seconds: what psutil and the kernel's files count CPU time in."""

DOCUMENTED = (
    "cpu",
    "cpu.{i}.cpu_percent",
    "proc.cpu.threads",
    "disk.{path}.usagePercent",
    "disk.{path}.usageGB",
    "disk.in",
    "disk.out",
    "memory",
    "memory_percent",
    "proc.memory.rssMB",
    "proc.memory.percent",
    "proc.memory.availableMB",
    "network.sent",
    "network.recv",
)
"""What W&B's pages list about host, disk, network, memory and process, old and new (typing errors mended)."""


class Truth(NamedTuple):
    """What psutil says at one moment."""

    clock: float
    process: float
    threads: int
    rss: int
    cpus: list[tuple[float, float]]
    memory: Any
    space: Any
    disk: Any
    network: Any


class Bracket(NamedTuple):
    """One reading of ours between two of psutil's."""

    before: Truth
    ours: wandb.Reading
    after: Truth


Seen: TypeAlias = "tuple[Bracket, Bracket, dict[str, float]]"


def truth() -> Truth:
    process = psutil.Process()
    times = process.cpu_times()
    return Truth(
        time.monotonic(),
        times.user + times.system,
        process.num_threads(),
        process.memory_info().rss,
        [_busy_and_whole(each) for each in psutil.cpu_times(percpu=True)],
        psutil.virtual_memory(),
        psutil.disk_usage("/"),
        psutil.disk_io_counters(nowrap=False),
        psutil.net_io_counters(nowrap=False),
    )


def _busy_and_whole(times: Any) -> tuple[float, float]:
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    whole = sum(times) - guests
    return whole - times.idle - getattr(times, "iowait", 0.0), whole


def bracket(asked: Machine) -> Bracket:
    before = truth()
    ours = wandb.take(asked, os.getpid())
    return Bracket(before, ours, truth())


@contextmanager
def busy(folder: Path) -> Iterator[None]:
    """Burn CPU, write a file to the disk, send bytes over loopback, and keep three threads waiting."""
    done = threading.Event()
    waiting = [threading.Thread(target=done.wait) for _ in range(3)]
    for thread in waiting:
        thread.start()
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()
        with sender, receiver, open(folder / "written", "wb") as file:
            end = time.process_time() + 0.3
            while time.process_time() < end:
                sender.sendall(bytes(65536))
                left = 65536
                while left:
                    left -= len(receiver.recv(left))
            file.write(os.urandom(4 * MIB))
            file.flush()
            os.fsync(file.fileno())
    try:
        yield
    finally:
        done.set()
        for thread in waiting:
            thread.join()


@pytest.fixture(params=["kernel", "psutil"])
def asked(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """The machine, asked both ways."""
    drivers = Drivers()
    if request.param == "kernel":
        yield machine(drivers)
    else:
        yield PortableMachine(drivers.module("psutil"), drivers.module("time"))
    drivers.close()


@pytest.fixture
def seen(asked: Machine, tmp_path: Path) -> Seen:
    """Two brackets around something that happens, and W&B's row for it."""
    first = bracket(asked)
    with busy(tmp_path):
        second = bracket(asked)
    return first, second, wandb.row(wandb.Span(first.ours, first.ours, second.ours))


def between(low: float, value: float, high: float, slack: float = 0.0) -> bool:
    return min(low, high) - slack <= value <= max(low, high) + slack


def test_cpu_is_the_process_over_the_window_and_all_logical_cpus(
    seen: Seen,
) -> None:
    first, second, row = seen
    count = psutil.cpu_count()
    least = (second.before.process - first.after.process - 2 * TICK) / (second.after.clock - first.before.clock)
    most = (second.after.process - first.before.process + 2 * TICK) / (second.before.clock - first.after.clock)
    assert least * 100 / count <= row["cpu"] <= most * 100 / count
    assert row["cpu"] > 0


def test_each_cpu_has_psutils_percent(seen: Seen) -> None:
    first, second, row = seen
    for number in range(psutil.cpu_count()):
        least = second.before.cpus[number][0] - first.after.cpus[number][0] - 3 * TICK
        most = second.after.cpus[number][0] - first.before.cpus[number][0] + 3 * TICK
        longest = second.after.cpus[number][1] - first.before.cpus[number][1] + 3 * TICK
        shortest = second.before.cpus[number][1] - first.after.cpus[number][1] - 3 * TICK
        assert least / longest * 100 <= row[f"cpu.{number}.cpu_percent"] <= most / shortest * 100


def test_memory_is_what_is_not_available(seen: Seen) -> None:
    _, second, row = seen
    used = [
        (each.memory.total - each.memory.available) / each.memory.total * 100 for each in (second.before, second.after)
    ]
    assert between(used[0], row["memory"], used[1], 0.3)
    assert row["memory_percent"] == row["memory"]
    assert between(
        second.before.memory.available / MIB, row["proc.memory.availableMB"], second.after.memory.available / MIB, 64
    )


def test_the_process_has_its_memory_and_threads(seen: Seen) -> None:
    _, second, row = seen
    assert between(second.before.rss / MIB, row["proc.memory.rssMB"], second.after.rss / MIB, 0.5)
    shares = [each.rss / each.memory.total * 100 for each in (second.before, second.after)]
    assert between(shares[0], row["proc.memory.percent"], shares[1], 0.01)
    assert row["proc.cpu.threads"] == second.before.threads == second.after.threads >= 4


def test_a_path_has_its_space(seen: Seen) -> None:
    _, second, row = seen
    spaces = second.before.space, second.after.space
    percents = [each.used / (each.used + each.free) * 100 for each in spaces]
    assert between(percents[0], row["disk./.usagePercent"], percents[1], 0.05)
    assert between(spaces[0].used / GIB, row["disk./.usageGB"], spaces[1].used / GIB, 0.02)


@pytest.mark.skipif(psutil.disk_io_counters() is None, reason="this machine shows no disks")
@pytest.mark.parametrize(("key", "counter"), [("disk.in", "read_bytes"), ("disk.out", "write_bytes")])
def test_disks_count_since_the_first_sample(seen: Seen, key: str, counter: str) -> None:
    first, second, row = seen
    _grew(lambda each: getattr(each.disk, counter), first, second, row[key] * MIB, 64)


@pytest.mark.parametrize(("key", "counter"), [("network.sent", "bytes_sent"), ("network.recv", "bytes_recv")])
def test_the_network_counts_loopback_too(seen: Seen, key: str, counter: str) -> None:
    first, second, row = seen
    _grew(lambda each: getattr(each.network, counter), first, second, row[key])
    assert row[key] >= 65536


def _grew(counter: Callable[[Truth], int], first: Bracket, second: Bracket, ours: float, slack: float = 0) -> None:
    least = counter(second.before) - counter(first.after) - slack
    most = counter(second.after) - counter(first.before) + slack
    assert least <= ours <= most


def test_every_documented_key_is_printed(tmp_path: Path) -> None:
    paths = ["/", str(tmp_path)]
    answer = run(
        ["otel-hardware", "snapshot", "--format", "wandb", "--window", "0.1", "--disk-paths", ",".join(paths)],
    )
    assert answer.returncode == 0, answer.stderr
    expected = {"_timestamp", "_runtime"}
    for key in DOCUMENTED:
        numbers = range(psutil.cpu_count()) if "{i}" in key else [0]
        expected |= {key.format(i=number, path=path) for number in numbers for path in paths}
    if psutil.disk_io_counters() is None:
        expected -= {"disk.in", "disk.out"}
    row = json.loads(answer.stdout)
    assert set(row) == expected
    assert all(isinstance(value, (int, float)) for value in row.values())


def test_the_keys_and_the_vocabulary_name_each_other() -> None:
    documented = {key.key for key in wandb.KEYS}
    assert documented == set(DOCUMENTED)
    named = {key.strip() for row in CATALOG for key in row.wandb.split(",") if key.strip()}
    assert {key for key in named if not key.startswith(("gpu", "tpu", "trn", "ipu", "openmetrics"))} == documented
    for key in wandb.KEYS:
        assert key.rows, f"no row of ours answers to {key.key}"


def test_waiting_for_a_disk_is_not_work(asked: Machine) -> None:
    first = wandb.take(asked, os.getpid())._replace(
        cpus={0: {"user": 10.0, "idle": 10.0, "iowait": 10.0, "steal": 0.0}}
    )
    second = first._replace(
        cpus={0: {"user": 11.0, "idle": 12.0, "iowait": 15.0, "steal": 2.0}, 1: {"user": 5.0, "idle": 5.0}},
        clock=first.clock + 10,
    )
    row = wandb.row(wandb.Span(first, first, second))
    assert row["cpu.0.cpu_percent"] == 30.0
    assert "cpu.1.cpu_percent" not in row, "a CPU that was not there before has no window"


def test_an_unreadable_path_is_absent(asked: Machine) -> None:
    reading = wandb.take(asked, os.getpid(), ["/", "/no/such/path"])
    keys = wandb.row(wandb.Span(reading, reading, reading))
    assert "disk./.usageGB" in keys
    assert not any("/no/such/path" in key for key in keys)


def test_nothing_is_said_of_no_time_at_all(asked: Machine) -> None:
    reading = wandb.take(asked, os.getpid())
    keys = wandb.row(wandb.Span(reading, reading, reading))
    assert "cpu" not in keys
    assert not any(key.endswith("cpu_percent") for key in keys)
    assert keys["network.sent"] == keys["network.recv"] == 0
