"""PsutilMachine, run on Linux and compared with LinuxMachine, and with values of other systems."""

from __future__ import annotations

import os
import sys

import psutil
import pytest
from tests.sources.machines import windows
from tests.sources.reading import Portable, all_of, often, opened, series_of, value
from tests.sources.tree import Fabricated
from tests.support.children import started
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Series, Value
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system.psutil_backend import PsutilMachine

GIB = 1 << 30
IDLE = "import sys; print('ready', flush=True); sys.stdin.read()"

ONLY_LINUX = {
    **{metric: "named after Linux" for metric in c.CATALOG if ".linux." in metric.name},
    c.SYSTEM_PAGING_FAULTS: "not available from psutil",
    c.SYSTEM_NETWORK_CONNECTION_COUNT: "psutil would have to read every socket",
    c.SYSTEM_PROCESS_COUNT: "psutil would have to read every process",
    c.PROCESS_PAGING_FAULTS: "not available from psutil",
    c.PROCESS_CONTEXT_SWITCHES: "psutil counts the main thread only",
}
STEADY = 0.05  # seconds by which counters of time may differ that are rounded in different places

COUNTERS_OF_TIME = {c.SYSTEM_CPU_TIME, c.PROCESS_CPU_TIME}


def _everything(name: str, drivers: Portable | None) -> dict[Series, Value]:
    with opened(name, drivers, include_metrics="*", detail="cpu,connections,processes") as source:
        return all_of(source)


def _rows(found: dict[Series, Value]) -> set[Metric]:
    return {series.metric for series in found}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with LinuxMachine")
@pytest.mark.parametrize("name", ["host", "filesystem", "process"])
def test_psutil_reports_every_metric_except_the_listed(name: str) -> None:
    kernel, portable = _rows(_everything(name, None)), _rows(_everything(name, Portable()))
    assert kernel - portable <= set(ONLY_LINUX), "metrics that PsutilMachine lacks"
    assert portable - kernel <= {c.SYSTEM_CPU_FREQUENCY}, "psutil guesses a frequency at times"
    assert not portable & set(ONLY_LINUX)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with LinuxMachine")
@pytest.mark.parametrize("name", ["host", "filesystem", "process"])
def test_counters_agree_with_the_kernel(name: str) -> None:
    with (
        opened(name, include_metrics="*", exclude_metrics="cpython.gc.*") as kernel,
        opened(name, Portable(), include_metrics="*", exclude_metrics="cpython.gc.*") as portable,
    ):
        before, ours, after = all_of(kernel), all_of(portable), all_of(kernel)
    compared = set()
    for series, number in ours.items():
        if series.metric.kind.value != "counter" or series not in before or series.metric.name.startswith("cpython"):
            continue
        if series.metric is c.PROCESS_DISK_IO:
            continue  # psutil includes ended children, see test_disk_io_agrees_with_psutil
        first, last = before[series], after[series]
        slack = 0.2 if series.metric in COUNTERS_OF_TIME else 1e-9
        assert first - slack <= number <= last + slack, f"{series!r}: {first}, {number}, {last}"  # type: ignore[operator]
        compared.add(series.metric)
    assert compared or name == "filesystem"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with LinuxMachine")
@pytest.mark.parametrize(
    ("name", "row", "allowed"),
    [
        ("host", c.SYSTEM_MEMORY_USAGE, 1 << 18),
        ("host", c.SYSTEM_MEMORY_LIMIT, 0),
        ("host", c.SYSTEM_PAGING_USAGE, 1 << 18),
        ("host", c.SYSTEM_CPU_LOGICAL_COUNT, 0),
        ("host", c.SYSTEM_CPU_PHYSICAL_COUNT, 0),
        ("host", c.SYSTEM_CPU_LOAD_1M, 0.01),
        ("host", c.SYSTEM_UPTIME, 1.5),
        ("filesystem", c.SYSTEM_FILESYSTEM_USAGE, 1 << 20),
        ("filesystem", c.SYSTEM_FILESYSTEM_LIMIT, 0),
        ("process", c.PROCESS_MEMORY_USAGE, 1 << 18),
        ("process", c.PROCESS_MEMORY_VIRTUAL, 1 << 20),
        ("process", c.PROCESS_THREAD_COUNT, 0),
        ("process", c.PROCESS_UPTIME, 1.5),
        ("process", c.PROCESS_TREE_COUNT, 0),
    ],
    ids=lambda each: each.name if isinstance(each, Metric) else None,
)
def test_gauges_agree_with_the_kernel(name: str, row: Metric, allowed: float) -> None:
    attempts: list[tuple[object, ...]] = []
    with opened(name) as kernel, opened(name, Portable()) as portable:
        for _ in range(50):
            before, ours, after = (series_of(all_of(each), row) for each in (kernel, portable, kernel))
            if name == "filesystem":  # psutil lists overlays and bind mounts as well
                ours = {series: number for series, number in ours.items() if series in before}
            attempts.append((before, ours, after))
            if ours and all(
                min(before[series], after[series]) - allowed <= number <= max(before[series], after[series]) + allowed  # type: ignore[operator]
                for series, number in ours.items()
            ):
                return
    raise AssertionError(f"{row.name} was never between the values of LinuxMachine before and after: {attempts[-1]}")


def test_descriptor_count_agrees_with_psutil() -> None:
    process = psutil.Process()
    with opened("process", Portable()) as source:
        assert value(often(source), c.PROCESS_FILE_DESCRIPTOR_COUNT) == process.num_fds()


def test_memory_states_sum_to_the_limit() -> None:
    with opened("host", Portable()) as source:
        found = often(source)
    assert sum(series_of(found, c.SYSTEM_MEMORY_USAGE).values()) == value(found, c.SYSTEM_MEMORY_LIMIT)  # type: ignore[arg-type]


def test_session_without_linux_reports_all_sources_but_container() -> None:
    """The whole pipeline, with its threads, on a system that is not Linux."""
    session = Session(Config(sample_interval=60.0), interval=60.0, drivers=lambda source: Portable())
    session.start()
    try:
        wait_for(lambda: not any(each.state.value == "starting" for each in session.runners), 30, "first reading")
        snapshot = session.collector.collect({})
    finally:
        session.close()
    states = {runner.name: runner.state.value for runner in session.runners}
    assert {name for name, state in states.items() if state == "up"} == {"host", "filesystem", "process"}
    assert {state for state in states.values() if state != "up"} == {"absent"}
    assert not snapshot.problems
    names = {row.name for row in snapshot.values}
    assert {"system.cpu.time", "system.memory.usage", "system.filesystem.usage", "process.cpu.time"} <= names


def test_child_that_ends_during_the_reading_is_left_out() -> None:
    with opened("process", Portable()) as source:
        with started([sys.executable, "-c", IDLE]) as child:
            child.stdout.readline()
            before = value(all_of(source), c.PROCESS_TREE_COUNT)
            child.kill()
            wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE, 20, "dead child")
            all_of(source)  # a zombie: psutil may still list it
        assert value(all_of(source), c.PROCESS_TREE_COUNT) == before - 1


def _machine(**functions: object) -> PsutilMachine:
    drivers = Fabricated(None, {"psutil": functions, "time": {"time": 2_000.0}})
    return PsutilMachine(drivers.python_module("psutil").call, drivers.python_module("time").call)


def test_child_that_psutil_cannot_read_is_not_in_the_tree() -> None:
    known = windows(0).modules["psutil"]["Process.as_dict"]
    unknown = {"cpu_times": None, "num_threads": None, "memory_info": None, "create_time": 1.0}

    def as_dict(pid: int, names: list[str]) -> object:
        if pid == 78:
            raise type("NoSuchProcess", (Exception,), {})("it is gone")
        return unknown if pid == 79 else known(pid, names)

    machine = _machine(**{"Process.as_dict": as_dict, "Process.children": [78, 79, 80]})
    assert [each.pid for each in machine.tree(77)] == [77, 80]


def test_functions_missing_in_psutil_are_absent() -> None:
    assert _machine().cpu_frequencies() == {}
    assert _machine(cpu_count=6).limits(1).cpus == 6
    process = windows(0)
    with opened("process", process) as source:
        found = all_of(source)
    assert value(found, c.PROCESS_HANDLE_COUNT) == 412
    assert not series_of(found, c.PROCESS_FILE_DESCRIPTOR_COUNT)


@pytest.mark.parametrize(
    ("names", "whole"),
    [
        (["sda", "sda1", "sda2", "sdb"], {"sda", "sdb"}),
        (["nvme0n1", "nvme0n1p1", "nvme1n1"], {"nvme0n1", "nvme1n1"}),
        (["disk0", "disk1", "disk2"], {"disk0", "disk1", "disk2"}),
        (["PhysicalDrive0", "PhysicalDrive1"], {"PhysicalDrive0", "PhysicalDrive1"}),
        (["ada0", "ada0p1", "cd0"], {"ada0", "cd0"}),
        (["loop0", "ram0", "zram0", "nbd0", "sr0", "sda"], {"sda"}),
    ],
)
def test_partitions_are_recognized_by_name(names: list[str], whole: set[str]) -> None:
    each = {"read_bytes": 1, "write_bytes": 2, "read_count": 3, "write_count": 4}
    machine = _machine(disk_io_counters=lambda perdisk: dict.fromkeys(names, each) if perdisk else each)
    assert set(machine.disks()) == whole


def test_loopback_and_virtual_interfaces_are_left_out() -> None:
    each = dict.fromkeys(
        ("bytes_sent", "bytes_recv", "packets_sent", "packets_recv", "errin", "errout", "dropin", "dropout"), 1
    )
    names = [
        "lo",
        "lo0",
        "Loopback Pseudo-Interface 1",
        "en0",
        "Ethernet",
        "veth9",
        "vEthernet (WSL)",
        "docker0",
        "utun3",
        "awdl0",
    ]
    machine = _machine(net_io_counters=lambda pernic: dict.fromkeys(names, each))
    assert set(machine.interfaces()) == {"en0", "Ethernet"}
    assert set(machine.interfaces(["lo0"])) == {"lo0"}


def test_zeros_that_psutil_returns_for_unknown_values_are_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """See the documentation of ``psutil.swap_memory`` and ``psutil.net_io_counters``."""
    words = ("bytes_sent", "bytes_recv", "packets_sent", "packets_recv", "errin", "errout", "dropin", "dropout")
    machine = _machine(
        net_io_counters=lambda pernic: {"en0": dict.fromkeys(words, 0)},
        swap_memory=lambda: {"total": GIB, "free": GIB, "sin": 0, "sout": 0},
    )
    assert machine.interfaces()["en0"].dropped_sent == 0
    assert machine.vmstat() == {"pswpin": 0, "pswpout": 0}
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        dropped = machine.interfaces()["en0"]
    assert (dropped.dropped_received, dropped.dropped_sent) == (0, None)
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", "nt")
        assert machine.vmstat() == {}
        assert machine.interfaces()["en0"].dropped_sent == 0


def test_psutil_fields_are_mapped_to_attributes() -> None:
    words = ["bytes_sent", "bytes_recv", "packets_sent", "packets_recv", "errin", "errout", "dropin", "dropout"]
    counted = {word: number for number, word in enumerate(words, 1)}
    interface = _machine(net_io_counters=lambda pernic: {"en0": counted}).interfaces()["en0"]
    assert (interface.sent, interface.received) == (1, 2)
    assert (interface.packets_sent, interface.packets_received) == (3, 4)
    assert (interface.errors_received, interface.errors_sent) == (5, 6)
    assert (interface.dropped_received, interface.dropped_sent) == (7, 8)
    words = ["read_count", "write_count", "read_bytes", "write_bytes", "read_time", "write_time", "busy_time"]
    counted = {word: 1000 * number for number, word in enumerate(words, 1)}
    disk = _machine(disk_io_counters=lambda perdisk: {"disk0": counted}).disks()["disk0"]
    assert (disk.reads, disk.writes, disk.read, disk.written) == (1000, 2000, 3000, 4000)
    assert (disk.read_time, disk.write_time, disk.busy) == (5.0, 6.0, 7.0)
    counted = dict.fromkeys(words[:4], 1)
    disk = _machine(disk_io_counters=lambda perdisk: {"disk0": counted}).disks()["disk0"]
    assert (disk.read_time, disk.write_time, disk.busy) == (None, None, None), "OpenBSD and NetBSD have no times"
    page = os.sysconf("SC_PAGE_SIZE")
    counts = _machine(swap_memory=lambda: {"total": 0, "free": 0, "sin": 3 * page, "sout": 5 * page}).vmstat()
    assert counts == {"pswpin": 3, "pswpout": 5}, "psutil returns bytes, the kernel counts pages"
