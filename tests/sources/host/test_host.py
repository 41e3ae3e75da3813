"""The host's metrics against psutil, and with the files of older and newer kernels."""

from __future__ import annotations

import mmap
import os
import re
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from tests.sources.machines import dev, diskstats, metal, old, stat
from tests.sources.reading import Portable, agrees, all_of, often, opened, rises_between, series_of, value
from tests.sources.tree import Fabricated, Tree
from tests.support.children import run, started
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import CounterRatio, Series, Value

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the Linux kernel")

MODES = {"user": "user", "nice": "nice", "system": "system", "idle": "idle", "iowait": "iowait", "steal": "steal"}
UNSTEADY = {"idle": 0.2, "iowait": 0.2}  # seconds by which these counters of the kernel may fall


def _seconds(times: object, mode: str) -> float:
    parts = ("irq", "softirq") if mode == "interrupt" else (MODES[mode],)
    return float(sum(getattr(times, part) for part in parts))


def test_cpu_time_agrees_with_psutil() -> None:
    with opened("host") as host:
        before, ours, after = psutil.cpu_times(), often(host), psutil.cpu_times()
    for mode in [*MODES, "interrupt"]:
        mine = value(ours, c.SYSTEM_CPU_TIME, {c.CPU_MODE: mode})
        rises_between(_seconds(before, mode), mine, _seconds(after, mode), mode, UNSTEADY.get(mode, 0.011))


def test_cpu_time_of_each_core_agrees_with_psutil() -> None:
    with opened("host", detail="cpu") as host:
        before, ours, after = psutil.cpu_times(True), often(host), psutil.cpu_times(True)
    assert len(series_of(ours, c.SYSTEM_CPU_TIME)) == 7 * len(before)
    for core, (first, last) in enumerate(zip(before, after)):
        for mode in [*MODES, "interrupt"]:
            mine = value(ours, c.SYSTEM_CPU_TIME, {c.CPU_MODE: mode, c.CPU_NUMBER: core})
            slack = UNSTEADY.get(mode, 0.011)
            rises_between(_seconds(first, mode), mine, _seconds(last, mode), f"CPU {core} {mode}", slack)


def test_cpu_utilization_parts_and_whole_are_of_one_reading() -> None:
    with opened("host", include_metrics="system.cpu.utilization") as host:
        ours = often(host)
    shares = series_of(ours, c.SYSTEM_CPU_UTILIZATION)
    whole = sum(series_of(ours, c.SYSTEM_CPU_TIME).values())  # type: ignore[arg-type]
    assert {series.attributes[c.CPU_MODE] for series in shares} == {*MODES, "interrupt"}
    for series, share in shares.items():
        assert isinstance(share, CounterRatio)
        assert share.whole == pytest.approx(whole)
        assert share.part == value(ours, c.SYSTEM_CPU_TIME, series.attributes)


def test_memory_agrees_with_psutil() -> None:
    with opened("host") as host:
        agrees(
            lambda: psutil.virtual_memory().available,
            lambda: value(often(host), c.SYSTEM_MEMORY_USAGE, {c.MEMORY_STATE: "available"}),
            1 << 16,
            "memory by state",
        )
        agrees(
            lambda: psutil.virtual_memory().available,
            lambda: value(often(host), c.SYSTEM_MEMORY_LINUX_AVAILABLE),
            1 << 16,
            "memory available",
        )
        assert value(often(host), c.SYSTEM_MEMORY_LIMIT) == psutil.virtual_memory().total


def test_memory_states_sum_to_the_limit() -> None:
    with opened("host", include_metrics="system.memory.*") as host:
        ours = often(host)
    limit = value(ours, c.SYSTEM_MEMORY_LIMIT)
    assert sum(series_of(ours, c.SYSTEM_MEMORY_USAGE).values()) == limit  # type: ignore[arg-type]
    assert sum(series_of(ours, c.SYSTEM_MEMORY_UTILIZATION).values()) == pytest.approx(1)  # type: ignore[arg-type]


def test_swap_agrees_with_psutil() -> None:
    with opened("host", include_metrics="system.paging.*") as host:
        before, ours, after = psutil.swap_memory(), often(host), psutil.swap_memory()
    page = mmap.PAGESIZE
    swap = {name: value(ours, c.SYSTEM_PAGING_USAGE, {c.PAGING_STATE: name}) for name in ("used", "free")}
    assert sum(swap.values()) == before.total
    rises_between(min(before.used, after.used), swap["used"], max(before.used, after.used), "swap used", 1 << 20)
    for way, counted in (("in", "sin"), ("out", "sout")):
        mine = value(ours, c.SYSTEM_PAGING_OPERATIONS, {c.PAGING_DIRECTION: way}) * page
        rises_between(getattr(before, counted), mine, getattr(after, counted), f"swapped {way}")


def test_disk_counters_agree_with_psutil() -> None:
    with opened("host", include_metrics="system.disk.*") as host:
        before, ours, after = psutil.disk_io_counters(True), often(host), psutil.disk_io_counters(True)
    names = {str(series.attributes[c.DEVICE]) for series in series_of(ours, c.SYSTEM_DISK_IO)}
    disks = {path.name: path / "device" for path in Path("/sys/block").iterdir()}
    hardware = {name for name, device in disks.items() if device.exists() and not (device / "iopolicy").exists()}
    assert names == hardware - {"sr0", "fd0"}
    for name in names:
        for metric, words, unit in (
            (c.SYSTEM_DISK_IO, ("read_bytes", "write_bytes"), 1.0),
            (c.SYSTEM_DISK_OPERATIONS, ("read_count", "write_count"), 1.0),
            (c.SYSTEM_DISK_OPERATION_TIME, ("read_time", "write_time"), 1e-3),
        ):
            for way, word in zip(("read", "write"), words):
                mine = value(ours, metric, {c.DEVICE: name, c.DISK_DIRECTION: way})
                first, last = getattr(before[name], word) * unit, getattr(after[name], word) * unit
                rises_between(first, mine, last, f"{name} {word}", 1e-9)
        busy = value(ours, c.SYSTEM_DISK_IO_TIME, {c.DEVICE: name})
        rises_between(before[name].busy_time / 1e3, busy, after[name].busy_time / 1e3, f"{name} busy", 1e-9)


def test_interface_counters_agree_with_psutil() -> None:
    with opened("host", include_metrics="system.network.*", interfaces=list(psutil.net_io_counters(True))) as host:
        before, ours, after = psutil.net_io_counters(True), often(host), psutil.net_io_counters(True)
    for name, first in before.items():
        for metric, words in (
            (c.SYSTEM_NETWORK_IO, ("bytes_sent", "bytes_recv")),
            (c.SYSTEM_NETWORK_PACKET_COUNT, ("packets_sent", "packets_recv")),
            (c.SYSTEM_NETWORK_PACKET_DROPPED, ("dropout", "dropin")),
            (c.SYSTEM_NETWORK_ERRORS, ("errout", "errin")),
        ):
            for way, word in zip(("transmit", "receive"), words):
                mine = value(ours, metric, {c.INTERFACE: name, c.NETWORK_DIRECTION: way})
                rises_between(getattr(first, word), mine, getattr(after[name], word), f"{name} {word}")


def test_cpu_count_load_and_uptime_agree_with_psutil() -> None:
    with opened("host", include_metrics="system.cpu.load_average.*") as host:
        ours = all_of(host)
        assert value(ours, c.SYSTEM_CPU_LOGICAL_COUNT) == psutil.cpu_count()
        if psutil.cpu_count(logical=False):
            assert value(ours, c.SYSTEM_CPU_PHYSICAL_COUNT) == psutil.cpu_count(logical=False)
        for number, row in enumerate((c.SYSTEM_CPU_LOAD_1M, c.SYSTEM_CPU_LOAD_5M, c.SYSTEM_CPU_LOAD_15M)):
            agrees(
                lambda number=number: psutil.getloadavg()[number],  # type: ignore[misc]
                lambda row=row: value(often(host), row),  # type: ignore[misc]
                0.011,
                row.name,
            )
        agrees(lambda: time.time() - psutil.boot_time(), lambda: value(often(host), c.SYSTEM_UPTIME), 1.5, "uptime")


def test_network_connections_count_opened_sockets() -> None:
    """Loopback connections have both ends here; others come and go meanwhile."""
    pairs = 40

    def now() -> Counter[str]:
        words = (c.NETWORK_TRANSPORT, c.CONNECTION_STATE)
        found: Counter[str] = Counter()
        for series, count in series_of(often(host), c.SYSTEM_NETWORK_CONNECTION_COUNT).items():
            found[" ".join(str(series.attributes[word]) for word in words if word in series.attributes)] = int(count)  # type: ignore[arg-type]
        return found

    opened_sockets: list[socket.socket] = []
    with opened("host", detail="connections") as host:
        before = now()
        try:
            server = socket.create_server(("127.0.0.1", 0), backlog=pairs)
            opened_sockets.append(server)
            for _ in range(pairs):
                opened_sockets.append(socket.create_connection(server.getsockname(), 10))
                opened_sockets.append(server.accept()[0])
                datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                datagrams.bind(("127.0.0.1", 0))
                opened_sockets.append(datagrams)
            grown = now()
        finally:
            for each in opened_sockets:
                each.close()
    assert set(grown) == {"tcp established", "tcp time_wait", "udp"}
    assert 1.5 * pairs <= grown["tcp established"] - before["tcp established"] <= 2.5 * pairs
    assert 0.5 * pairs <= grown["udp"] - before["udp"] <= 1.5 * pairs


def test_process_count_by_state_agrees_with_psutil() -> None:
    words = {"running": "running", "stopped": "stopped", "tracing-stop": "stopped", "zombie": "defunct"}

    def theirs(state: str) -> int:
        found = Counter(words.get(each.info["status"], "sleeping") for each in psutil.process_iter(["status"]))
        return found[state]

    line = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with opened("host", detail="processes") as host, started(line) as child:
        os.kill(child.pid, signal.SIGSTOP)
        wait_for(lambda: psutil.Process(child.pid).status() == "stopped", 20, "stopped child")
        for state in ("sleeping", "stopped"):
            agrees(
                lambda state=state: theirs(state),  # type: ignore[misc]
                lambda state=state: value(all_of(host), c.SYSTEM_PROCESS_COUNT, {c.PROCESS_STATE: state}),  # type: ignore[misc]
                0,
                f"processes {state}",
            )
        os.kill(child.pid, signal.SIGCONT)
        os.kill(child.pid, signal.SIGKILL)
        wait_for(lambda: psutil.Process(child.pid).status() == "zombie", 20, "zombie child")
        agrees(
            lambda: theirs("defunct"),
            lambda: value(all_of(host), c.SYSTEM_PROCESS_COUNT, {c.PROCESS_STATE: "defunct"}),
            0,
            "processes defunct",
        )


def _pressure() -> dict[tuple[str, str], float]:
    found = {}
    for file in Path("/proc/pressure").iterdir():
        for line in file.read_text().splitlines():
            found[file.name, line.split()[0]] = int(line.split("total=")[1]) / 1e6
    return found


@pytest.mark.skipif(not Path("/proc/pressure/cpu").exists(), reason="this kernel has no /proc/pressure")
def test_pressure_time_agrees_with_proc_pressure() -> None:
    with opened("host") as host:
        before, ours, after = _pressure(), often(host), _pressure()
    found = series_of(ours, c.SYSTEM_PRESSURE_TIME)
    keys = {(str(each.attributes[c.PRESSURE_RESOURCE]), str(each.attributes[c.PRESSURE_KIND])) for each in found}
    assert keys == {("cpu", "some"), ("memory", "some"), ("memory", "full"), ("io", "some"), ("io", "full")}
    for resource, kind in keys:
        mine = value(ours, c.SYSTEM_PRESSURE_TIME, {c.PRESSURE_RESOURCE: resource, c.PRESSURE_KIND: kind})
        rises_between(before[resource, kind], mine, after[resource, kind], f"{kind} {resource}")


# -- other kernels

TABLES = (
    "/proc/stat",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/vmstat",
    "/proc/diskstats",
    "/proc/net/dev",
    "/proc/net/sockstat",
    "/proc/net/snmp",
    "/proc/pressure/cpu",
    "/proc/pressure/memory",
    "/proc/pressure/io",
)
ASKED = {"include_metrics": "system.*", "detail": "connections"}


def _read(machine: Fabricated, **settings: object) -> dict[Series, Value]:
    with opened("host", machine, settings={**ASKED, **settings}) as host:
        return all_of(host)


@pytest.mark.parametrize("damage", ["gone", "empty", "forbidden"])
@pytest.mark.parametrize("path", TABLES)
def test_unreadable_proc_file_loses_only_its_metrics(path: str, damage: str) -> None:
    whole, machine = _read(metal(0)), metal(0)
    files = machine.tree.files
    if damage == "gone":
        del files[path]
    else:
        files[path] = PermissionError(13, "Permission denied") if damage == "forbidden" else b""
    left = _read(machine)
    assert left.items() <= whole.items(), "a value is wrong"
    assert len(left) < len(whole), "no metric needs the file"
    rows = {series.metric for series in whole} - {series.metric for series in left}
    assert len(rows) <= 12, f"lost with {path}: {sorted(row.name for row in rows)}"


def test_processes_are_not_counted_where_those_of_others_are_hidden() -> None:
    """/proc has the option hidepid: 1 forbids to read them, 2 hides them. On Android, SELinux does."""
    whole = _read(metal(0), detail="processes")
    for hidden in (PermissionError(13, "Permission denied"), None):
        machine = metal(0)
        files = machine.tree.files
        del files["/proc/1/stat"]
        if hidden is not None:
            files["/proc/1/stat"] = hidden
        left = _read(machine, detail="processes")
        assert {series.metric for series in whole} - {series.metric for series in left} == {c.SYSTEM_PROCESS_COUNT}


# Without /proc/meminfo: one read returns all of it, and some of its lines are optional.
@pytest.mark.parametrize("path", [path for path in TABLES if path != "/proc/meminfo"])
def test_truncated_proc_file_gives_no_wrong_value(path: str) -> None:
    machine = metal(0)
    whole = _read(machine)
    text = machine.tree.files[path]
    assert isinstance(text, str)
    step = max(1, len(text) // 50)
    for cut in range(0, len(text), step):
        machine.tree.files[path] = text[:cut]
        wrong = {series: number for series, number in _read(machine).items() if whole[series] != number}
        assert not wrong, f"{path} cut to {text[:cut][-40:]!r} gives {wrong}"


@pytest.mark.parametrize("path", TABLES)
def test_vanishing_proc_file_loses_its_metrics_until_it_is_back(path: str) -> None:
    machine = metal(0)
    with opened("host", machine, settings=ASKED) as host:
        whole = often(host)
        kept = machine.tree.files.pop(path)
        assert often(host).items() < whole.items()
        machine.tree.files[path] = kept
        assert often(host) == whole


def test_more_memory_available_than_there_is_gives_the_older_estimate() -> None:
    """As lxcfs computes it in a small container."""
    machine = metal(0)
    lines = ["MemTotal: 64000 kB", "MemFree: 31000 kB", "MemAvailable: 81000 kB", "Buffers: 200 kB", "Cached: 18000 kB"]
    machine.tree.files["/proc/meminfo"] = "\n".join([*lines, ""])
    found = _read(machine)
    states = {name: value(found, c.SYSTEM_MEMORY_USAGE, {c.MEMORY_STATE: name}) for name in ("used", "available")}
    assert states == {"used": 14_800 << 10, "available": 49_200 << 10}
    machine.tree.files["/proc/meminfo"] = "\n".join([lines[0], *lines[2:], ""])
    assert not series_of(_read(machine), c.SYSTEM_MEMORY_USAGE), "there is no estimate"
    machine.tree.files["/proc/meminfo"] = "MemTotal: 0 kB\nMemAvailable: 0 kB\n"
    assert not series_of(_read(machine), c.SYSTEM_MEMORY_USAGE)


@pytest.mark.parametrize("free", [18446744073709551488, 9000])
def test_more_swap_free_than_there_is_is_unknown(free: int) -> None:
    """A difference of lxcfs that was below 0."""
    machine = metal(0)
    machine.tree.files["/proc/meminfo"] = str(machine.tree.files["/proc/meminfo"]) + "\n"
    whole = _read(machine)
    text = re.sub("SwapTotal: .*", "SwapTotal: 0 kB", str(machine.tree.files["/proc/meminfo"]))
    machine.tree.files["/proc/meminfo"] = re.sub("SwapFree: .*", f"SwapFree: {free} kB", text)
    lost = {series.metric for series in whole.keys() - _read(machine).keys()}
    assert lost == {c.SYSTEM_PAGING_USAGE, c.SYSTEM_PAGING_UTILIZATION}


def test_cores_of_the_machine_are_not_those_of_a_container_with_fewer_cpus() -> None:
    """lxcfs limits the CPUs that are online, but not the folders of the CPUs."""
    machine = metal(0, cores=8)
    assert value(_read(machine), c.SYSTEM_CPU_PHYSICAL_COUNT) == 8
    machine.tree.cpus = 2
    found = _read(machine)
    assert value(found, c.SYSTEM_CPU_LOGICAL_COUNT) == 2
    assert not series_of(found, c.SYSTEM_CPU_PHYSICAL_COUNT)


def test_columns_and_lines_of_newer_kernels_are_ignored() -> None:
    whole, machine = _read(metal(0)), metal(0)
    files = machine.tree.files
    for path in ("/proc/stat", "/proc/diskstats", "/proc/loadavg"):
        files[path] = "".join(f"{line} 77 88\n" for line in str(files[path]).splitlines())
    files["/proc/meminfo"] = "Newest:  5 kB\n" + str(files["/proc/meminfo"]) + "MemTotalNew: 7 kB\nPlain:  3\n"
    files["/proc/vmstat"] = str(files["/proc/vmstat"]) + "pgfault_new 9\nnew_pgfault 4\n"
    files["/proc/pressure/cpu"] = "somewhat avg10=0.00 total=8\n" + str(files["/proc/pressure/cpu"]) + "none total=9\n"
    files["/proc/pressure/irq"] = "full avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"
    files["/proc/net/sockstat"] = str(files["/proc/net/sockstat"]) + "NEW: inuse 3\n"
    assert _read(machine) == whole


@pytest.mark.parametrize("columns", [14, 18, 20])
def test_diskstats_of_14_18_and_20_columns_give_the_same_values(columns: int) -> None:
    machine = old(0)
    machine.tree.files["/proc/diskstats"] = diskstats(["sda", "sda1", "sdb"], 0, columns)
    assert _read(machine) == _read(old(0))


@pytest.mark.parametrize("columns", [4, 7, 8, 10])
def test_cpu_modes_missing_in_proc_stat_are_absent(columns: int) -> None:
    machine = old(0)
    machine.tree.files["/proc/stat"] = stat(8, 0, columns)
    modes = {str(series.attributes[c.CPU_MODE]) for series in series_of(_read(machine), c.SYSTEM_CPU_TIME)}
    known = ["user", "nice", "system", "idle", "iowait", "interrupt", "steal"]
    assert modes == set(known[: {4: 4, 7: 6, 8: 7, 10: 7}[columns]])


def test_negative_size_in_meminfo_is_unknown() -> None:
    machine = old(0)
    files = machine.tree.files
    files["/proc/meminfo"] = str(files["/proc/meminfo"]) + "MemAvailable:   -1 kB\n"
    found = _read(machine)
    assert sum(series_of(found, c.SYSTEM_MEMORY_USAGE).values()) == value(found, c.SYSTEM_MEMORY_LIMIT)  # type: ignore[arg-type]
    shares = series_of(found, c.SYSTEM_MEMORY_UTILIZATION).values()
    assert all(isinstance(share, float) and share > 0.0 for share in shares)


def test_cpus_that_go_offline_are_noticed() -> None:
    """The kernel removes the topology of a CPU that is offline."""
    machine = metal(0)
    with opened("host", machine) as host:
        before = all_of(host)
        machine.tree.cpus //= 2
        for path in [path for path in machine.tree.files if "/topology/" in path][: machine.tree.cpus]:
            del machine.tree.files[path]
        after = all_of(host)
    for metric in (c.SYSTEM_CPU_LOGICAL_COUNT, c.SYSTEM_CPU_PHYSICAL_COUNT):
        assert value(after, metric) < value(before, metric)


def test_removed_and_added_disks_are_noticed() -> None:
    machine = old(0)
    with opened("host", machine) as host:
        machine.tree.files["/proc/diskstats"] = diskstats(["sdb", "sdc"], 0)
        machine.tree.files["/sys/block/sdc/device/model"] = "x\n"
        found = {series.attributes[c.DEVICE] for series in series_of(often(host), c.SYSTEM_DISK_IO_TIME)}
    assert found == {"sdb", "sdc"}


def test_nvme_disk_with_several_ports_is_counted_once() -> None:
    """The paths count what the disk does; the disk itself has zeros before Linux 6.4, and later the same counts.

    Files and links as in https://github.com/Atoptool/atop/pull/157 and
    https://docs.kernel.org/admin-guide/nvme-multipath.html.
    """
    machine = old(0)
    files = machine.tree.files
    files["/proc/diskstats"] = diskstats(["nvme0c0n1", "nvme0n1", "nvme1n1"], 0)
    files["/sys/block/nvme0c0n1/device/cntlid"] = "0\n"  # -> ../../nvme0
    files["/sys/block/nvme0n1/device/iopolicy"] = "numa\n"  # -> ../../nvme-subsys0
    files["/sys/block/nvme1n1/device/cntlid"] = "0\n"  # -> ../../nvme1, a disk with one port
    assert {series.attributes[c.DEVICE] for series in series_of(_read(machine), c.SYSTEM_DISK_IO)} == {
        "nvme0c0n1",
        "nvme1n1",
    }


def test_added_interface_appears_within_a_minute_and_removed_one_vanishes() -> None:
    machine = old(0)

    def seen() -> set[object]:
        return {series.attributes[c.INTERFACE] for series in series_of(often(host), c.SYSTEM_NETWORK_IO)}

    with opened("host", machine) as host:
        assert seen() == {"eth0"}
        machine.tree.files["/proc/net/dev"] = dev(["lo", "eth0", "eth1"], 0)
        machine.tree.files["/sys/class/net/eth1/device/vendor"] = "x\n"
        machine.tree.up += 60.0
        assert seen() == {"eth0", "eth1"}
        machine.tree.files["/proc/net/dev"] = dev(["lo", "eth1"], 0)
        assert seen() == {"eth1"}


def test_interface_with_non_utf8_name_is_ignored() -> None:
    machine = old(0)
    machine.tree.files["/proc/net/dev"] = dev(["lo", "eth0", "odd"], 0).encode().replace(b"odd", b"v\xff")
    assert _read(machine) == _read(old(0))


@pytest.mark.parametrize("columns", [4, 7])
def test_diskstats_line_with_few_columns_is_ignored(columns: int) -> None:
    machine = old(0)
    machine.tree.files["/proc/diskstats"] = diskstats(["sda"], 0, 14) + diskstats(["sdb"], 0, columns)
    found = {series.attributes[c.DEVICE] for series in series_of(_read(machine), c.SYSTEM_DISK_IO_TIME)}
    assert found == {"sda"}


def test_retransmits_are_those_of_the_kernel() -> None:
    machine = metal(2)
    assert value(_read(machine), c.SYSTEM_NETWORK_TCP_RETRANSMITS) == 708
    machine.tree.files["/proc/net/snmp"] = "Tcp: RtoAlgorithm RtoMin\nTcp: 1 200\n"
    assert series_of(_read(machine), c.SYSTEM_NETWORK_TCP_RETRANSMITS) == {}


def test_udp_connections_without_ipv6() -> None:
    machine, udp = metal(0), {c.NETWORK_TRANSPORT: "udp"}
    assert value(_read(machine), c.SYSTEM_NETWORK_CONNECTION_COUNT, udp) == 9 + 5
    del machine.tree.files["/proc/net/sockstat6"]
    assert value(_read(machine), c.SYSTEM_NETWORK_CONNECTION_COUNT, udp) == 9


MANY = """
import os, subprocess
from opentelemetry.instrumentation.hardware import catalog as c
from tests.sources.reading import often, opened, series_of
names = [f"otel{number}" for number in range(80)]
kinds = ("dummy", "ifb")
kind = next(kind for kind in kinds if not os.system(f"ip link add otel0 type {kind} 2>/dev/null"))
for name in names[1:]:
    subprocess.run(["ip", "link", "add", name, "type", kind], check=True)
with opened("host", interfaces=names) as host:
    print(len(series_of(often(host), c.SYSTEM_NETWORK_IO)))
"""


@pytest.mark.whole
def test_proc_net_dev_longer_than_a_page_is_read_whole() -> None:
    """/proc/net/dev of a machine with many interfaces: one read returns at most a page."""
    if not (shutil.which("unshare") and shutil.which("ip") and os.geteuid() == 0):
        pytest.skip("needs unshare, ip and root, to make a network namespace")
    done = run(["unshare", "--net", sys.executable, "-c", MANY], cwd=Path(__file__).parents[3])
    if "StopIteration" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"no network namespace, or no interfaces in it: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == 80 * 2


@pytest.mark.parametrize("drivers", [None, Portable()], ids=["linux", "portable"])
def test_detail_devices_adds_what_is_not_hardware(drivers: Drivers | None) -> None:
    with opened("host", drivers) as some, opened("host", drivers, detail=["devices"]) as every:
        names = [
            {str(series.attributes[name]) for series in series_of(all_of(source), metric)}
            for source in (some, every)
            for metric, name in ((c.SYSTEM_DISK_IO, c.DEVICE), (c.SYSTEM_NETWORK_IO, c.INTERFACE))
        ]
    hardware, interfaces, disks, links = names
    assert hardware <= disks == {*(psutil.disk_io_counters(perdisk=True) or {})}
    assert interfaces < links == {*psutil.net_io_counters(pernic=True)}


ROUTES = "Iface\tDestination\tGateway\neth0\t000011AC\t00000000\n"
NONE, HERE = "0" * 32, "fd" + "0" * 30
ROUTES_6 = (
    f"{HERE} 40 {NONE} 00 {NONE} 00000100 00000001 00000000 00000001     eth1\n"
    f"{NONE} 00 {NONE} 00 {HERE} 00000400 00000002 00000000 00000003     eth0\n"
    f"{NONE} 00 {NONE} 00 {NONE} ffffffff 00000001 00000000 00200200       lo\n"
)


@pytest.mark.parametrize("ipv6", ["", ROUTES_6])
def test_container_with_a_default_route_of_ipv6_only_has_its_interface(ipv6: str) -> None:
    files = {"/proc/net/dev": dev(["lo", "eth0", "eth1"], 1), "/proc/net/route": ROUTES, "/proc/net/ipv6_route": ipv6}
    assert {*Fabricated(Tree(files)).machine().interfaces()} == ({"eth0"} if ipv6 else set())


def _links(**interfaces: tuple[int, int]) -> dict[str, str]:
    """The files of interfaces, each with its number and the number of the one that it is linked to."""
    return {
        f"/sys/class/net/{name}/{file}": f"{number}\n"
        for name, numbers in interfaces.items()
        for file, number in zip(("ifindex", "iflink"), numbers)
    }


def test_pod_with_an_adapter_for_rdma_also_has_the_interface_of_its_default_route() -> None:
    """The adapter is moved into the pod. The other interface is one end of a pair, of which the node has the other."""
    files = {
        "/proc/net/dev": dev(["lo", "net1", "eth0"], 1),
        "/proc/net/ipv6_route": ROUTES_6,
        "/sys/class/net/net1/device/vendor": "0x15b3\n",
        **_links(lo=(1, 1), net1=(31, 31), eth0=(1757, 1758)),
    }
    assert {*Fabricated(Tree(files)).machine().interfaces()} == {"net1", "eth0"}


@pytest.mark.parametrize("link", [2, 3])
def test_bridge_and_vlan_with_the_default_route_of_a_host_are_not_counted_in_addition(link: int) -> None:
    files = {
        "/proc/net/dev": dev(["lo", "eno1", "eth0", "veth1"], 1),
        "/proc/net/ipv6_route": ROUTES_6,
        "/sys/class/net/eno1/device/vendor": "0x15b3\n",
        **_links(lo=(1, 1), eno1=(2, 2), eth0=(3, link), veth1=(9, 70)),  # the last one is of a container
    }
    assert {*Fabricated(Tree(files)).machine().interfaces()} == {"eno1"}
