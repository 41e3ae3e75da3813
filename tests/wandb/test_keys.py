"""W&B's keys have W&B's values: of the host against psutil, of GPUs against a simulated driver."""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
from tests.sources.reading import Portable
from tests.support.children import run, started
from tests.support.wandb import keys, watched
from tests.tools import fake_nvml, need
from tests.tools.nvml import (
    GPM_RATES,
    NOT_AVAILABLE,
    FakeNvml,
    Value,
    a100,
    geforce,
    h100,
    listed,
    mig,
    moving,
    refused,
    t4,
    vgpu,
)

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware import cli, wandb
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources import discover

MIB, GIB = 2**20, 2**30
TICK = 0.01  # seconds: the unit in which psutil and the kernel's files count CPU time

LONG = 60.0  # seconds until a row counts as missing

CPUS = psutil.cpu_count() or 1


# -- the host: each key lies between two readings of psutil


class Truth(NamedTuple):
    """What psutil reports at one moment."""

    clock: float
    process: float
    threads: int
    rss: int
    cpus: list[tuple[float, float]]
    memory: Any
    space: Any
    disk: Any
    network: Mapping[str, Any]

    def transferred(self, direction: str) -> int:
        counted = [
            name for name in self.network if name != "lo" and not Path("/sys/class/net", name, "master").exists()
        ]
        return sum(getattr(self.network[name], f"bytes_{direction}") for name in counted)


class Seen(NamedTuple):
    """What psutil reports before and after the first sample, and before and after the row."""

    first: tuple[Truth, Truth]
    second: tuple[Truth, Truth]
    row: dict[str, float]


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
        psutil.net_io_counters(pernic=True, nowrap=False),
    )


def _busy_and_whole(times: Any) -> tuple[float, float]:
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    whole = sum(times) - guests
    return whole - times.idle - getattr(times, "iowait", 0.0), whole


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


class HostKey(NamedTuple):
    """A key, the value of psutil, the factor between them, and the tolerance in the key's unit.

    Attributes:
        grown: The key counts from the first sample on.
    """

    key: str
    call: Callable[[Truth], float]
    factor: float
    slack: float = 0.0
    grown: bool = False


HOST = (
    HostKey("memory", lambda each: 1 - each.memory.available / each.memory.total, 100, 0.3),
    HostKey("memory_percent", lambda each: 1 - each.memory.available / each.memory.total, 100, 0.3),
    HostKey("proc.memory.availableMB", lambda each: each.memory.available, 1 / MIB, 64),
    HostKey("proc.memory.rssMB", lambda each: each.rss, 1 / MIB, 0.5),
    HostKey("proc.memory.percent", lambda each: each.rss / each.memory.total, 100, 0.01),
    HostKey("proc.cpu.threads", lambda each: each.threads, 1),
    HostKey("disk./.usagePercent", lambda each: each.space.used / (each.space.used + each.space.free), 100, 0.05),
    HostKey("disk./.usageGB", lambda each: each.space.used, 1 / GIB, 0.02),
    HostKey("disk.in", lambda each: each.disk.read_bytes, 1 / MIB, 64 / MIB, grown=True),
    HostKey("disk.out", lambda each: each.disk.write_bytes, 1 / MIB, 64 / MIB, grown=True),
    HostKey("network.sent", lambda each: each.transferred("sent"), 1, grown=True),
    HostKey("network.recv", lambda each: each.transferred("recv"), 1, grown=True),
)


@pytest.fixture(scope="module", params=["linux", "portable"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """A row with work before it, between readings of psutil. The tests may run under a limit, which psutil ignores."""
    drivers = Portable() if request.param == "portable" else None
    before = truth()
    with watched("host,process,filesystem", os.getpid(), drivers) as watching:
        first = before, truth()
        with busy(tmp_path_factory.mktemp("busy")):
            before = truth()
            row = watching.row()
            return Seen(first, (before, truth()), row)


@pytest.mark.parametrize("host", HOST, ids=lambda host: host.key)
def test_host_key_lies_between_two_readings_of_psutil(seen: Seen, host: HostKey) -> None:
    first, second, row = seen
    if host.key.startswith("disk.") and second[1].disk is None and host.grown:
        pytest.skip("this machine shows no disks")
    if host.grown:
        low, high = (host.call(b) - host.call(a) for a, b in ((first[1], second[0]), (first[0], second[1])))
    else:
        low, high = sorted(map(host.call, second))
    assert low * host.factor - host.slack <= row[host.key] <= high * host.factor + host.slack


def test_started_threads_are_counted(seen: Seen) -> None:
    assert seen.row["proc.cpu.threads"] >= 4


def test_network_is_without_loopback_and_members(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = {"lo": 1, "lo0": 1, "Loopback Pseudo-Interface 1": 1, "veth1": 1, "docker0": 10, "long0": 100}
    monkeypatch.setattr(os.path, "exists", lambda path: path == "/sys/class/net/veth1/master")

    def interfaces(size: int) -> list[Point]:
        return [
            c.SYSTEM_NETWORK_IO(size * factor, {c.INTERFACE: name, c.NETWORK_DIRECTION: direction})
            for name, factor in factors.items()
            for direction in ("transmit", "receive")
        ]

    row = keys(*interfaces(8), first=interfaces(3))
    assert row == {"network.sent": 550, "network.recv": 550}


def test_counts_of_the_kernel_and_of_the_cgroup_begin_at_the_first_sample() -> None:
    def counts(size: int) -> list[Point]:
        return [c.SYSTEM_NETWORK_TCP_RETRANSMITS(100 + size), c.CONTAINER_MEMORY_OOM_KILLS(size)]

    assert keys(*counts(9), first=counts(4)) == {"network.tcpRetransmits": 5, "proc.memory.oomKills": 5}


@pytest.mark.parametrize(
    ("throttled", "periods", "expected"),
    [(2.5, 10.0, {"proc.cpu.throttledPercent": 25.0}), (0.0, 10.0, {"proc.cpu.throttledPercent": 0.0}), (0.0, 0.0, {})],
)
def test_throttled_percent_is_that_of_the_periods_since_the_last_row(
    throttled: float, periods: float, expected: dict[str, float]
) -> None:
    points = c.CONTAINER_CPU_THROTTLED_PERIODS(500), c.CONTAINER_CPU_PERIODS(9000)
    rates = dict(zip((series for series, _ in points), (throttled, periods)))
    assert keys(*points, first=points, rates=rates) == expected


def test_cpu_is_process_time_over_elapsed_time_and_capacity(seen: Seen) -> None:
    first, second, row = seen
    capacity = psutil.cpu_count(logical=False) or CPUS
    if len(psutil.Process().cpu_affinity()) < CPUS:
        capacity = len(psutil.Process().cpu_affinity())
    least = (second[0].process - first[1].process - 2 * TICK) / (second[1].clock - first[0].clock)
    most = (second[1].process - first[0].process + 2 * TICK) / (second[0].clock - first[1].clock)
    assert least * 100 <= row["cpu"] * capacity <= most * 100
    assert row["cpu"] > 0


def test_cpu_percent_of_each_cpu_is_that_of_psutil(seen: Seen) -> None:
    first, second, row = seen
    for number in range(CPUS):
        least = second[0].cpus[number][0] - first[1].cpus[number][0] - 3 * TICK
        most = second[1].cpus[number][0] - first[0].cpus[number][0] + 3 * TICK
        longest = second[1].cpus[number][1] - first[0].cpus[number][1] + 3 * TICK
        shortest = second[0].cpus[number][1] - first[1].cpus[number][1] - 3 * TICK
        assert least / longest * 100 <= row[f"cpu.{number}.cpu_percent"] <= most / shortest * 100


def test_snapshot_prints_every_host_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["/", str(tmp_path)]
    expected = {"_timestamp", "_runtime", "cpu", *(f"cpu.{number}.cpu_percent" for number in range(CPUS))}
    expected |= {host.key.replace("disk./", f"disk.{path}") for host in HOST for path in paths}
    if psutil.disk_io_counters() is None:
        expected -= {"disk.in", "disk.out"}
    row = printed(capsys, "--window", "0.1", "--sources=-nvidia", "--disk-paths", ",".join(paths))
    devices = {key.split(".")[1] for key in row if key.count(".") == 2 and key.endswith((".in", ".out"))}
    assert devices <= (psutil.disk_io_counters(perdisk=True) or {}).keys()
    assert bool(devices) == ("disk.in" in expected)
    expected |= {f"disk.{device}.{direction}" for device in devices for direction in ("in", "out")}
    if sys.platform == "linux":
        expected.add("network.tcpRetransmits")
    assert set(row) - {"proc.cpu.throttledPercent", "proc.memory.oomKills"} == expected, "the others need a limit"
    assert all(isinstance(value, (int, float)) for value in row.values())


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, float]:
    """The row that the command prints in this process."""
    assert cli.main(["snapshot", "--format", "wandb", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    row: dict[str, float] = json.loads(printed.out)
    return row


def test_cpu_percent_excludes_idle_and_iowait() -> None:
    shares = {"user": 0.1, "idle": 0.2, "iowait": 0.5, "steal": 0.2}
    cpus = [c.SYSTEM_CPU_UTILIZATION(share, {c.CPU_MODE: mode, c.CPU_NUMBER: 3}) for mode, share in shares.items()]
    assert keys(*cpus) == {"cpu.3.cpu_percent": 30.0}


def test_unreadable_disk_path_has_no_keys() -> None:
    with watched("filesystem", os.getpid(), disk_paths=["/", "/no/such/path"]) as watching:
        assert {*watching.row()} == {"disk./.usagePercent", "disk./.usageGB"}
        assert any("/no/such/path" in sentence for sentence in watching.missing)


# -- the cgroup, and the disks that W&B chooses


def group(memory: int | None, limit: int | None) -> list[Point]:
    usage = [] if memory is None else [c.CONTAINER_MEMORY_USAGE(memory)]
    return usage + ([] if limit is None else [c.CONTAINER_MEMORY_LIMIT(limit)])


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (
            group(3 * GIB, 4 * GIB),
            {"memory": 25.0, "memory_percent": 75.0, "proc.memory.availableMB": 1024, "proc.memory.percent": 25.0},
        ),
        (
            group(5 * GIB, 4 * GIB),
            {"memory": 25.0, "memory_percent": 125.0, "proc.memory.availableMB": 0, "proc.memory.percent": 25.0},
        ),
        (group(None, 4 * GIB), {"memory": 25.0, "proc.memory.percent": 25.0}),
        *(
            (
                without_limit,
                {
                    "memory": 25.0,
                    "memory_percent": 25.0,
                    "proc.memory.availableMB": 12 * 1024,
                    "proc.memory.percent": 6.25,
                },
            )
            for without_limit in ([], group(3 * GIB, None))
        ),
    ],
)
def test_memory_keys_are_relative_to_the_cgroup_limit(limits: list[Point], expected: dict[str, float]) -> None:
    sizes = {"used": 4 * GIB, "available": 12 * GIB}
    memory = [c.SYSTEM_MEMORY_USAGE(size, {c.MEMORY_STATE: state}) for state, size in sizes.items()]
    row = keys(*limits, *memory, c.SYSTEM_MEMORY_LIMIT(16 * GIB), c.PROCESS_MEMORY_USAGE(GIB))
    assert row == {"proc.memory.rssMB": 1024.0, **expected}


@pytest.mark.parametrize(
    ("quota", "affinity", "capacity"),
    [
        (None, 8, 4),  # neither: the physical cores
        (1.5, 8, 1.5),
        (6.0, 8, 6.0),
        (6.0, 2, 2),
        (None, 2, 2),
        (12.0, 8, 12.0),  # W&B takes the quota as it is
    ],
)
def test_cpu_is_divided_by_the_cgroup_limit_the_affinity_or_the_physical_cores(
    quota: float | None, affinity: int, capacity: float
) -> None:
    allowed = min(affinity, quota or affinity)
    row = keys(
        *(c.PROCESS_CPU_UTILIZATION(0.15 / allowed, {c.CPU_MODE: mode}) for mode in ("user", "system")),
        *([] if quota is None else [c.CONTAINER_CPU_LIMIT(quota)]),
        c.PROCESS_CPU_LIMIT(allowed),
        c.SYSTEM_CPU_LOGICAL_COUNT(8),
        c.SYSTEM_CPU_PHYSICAL_COUNT(4),
    )
    assert row["cpu"] == pytest.approx(30 / capacity, rel=1e-3)


def disks(*names: str, read: int = 0) -> list[Point]:
    directions = {"read": read, "write": 2 * read}
    return [
        c.SYSTEM_DISK_IO(size, {c.DEVICE: name, c.DISK_DIRECTION: direction})
        for name in names
        for direction, size in directions.items()
    ]


@pytest.mark.parametrize(
    ("mounts", "devices"),
    [
        ({"/": "/dev/sda2"}, {"sda2"}),
        ({"/data": "/dev/sdb1"}, {"sdb1"}),
        ({"/": "/dev/sda2", "/data": "/dev/sdb1"}, {"sda2", "sdb1"}),
        ({"/": "server:/export"}, {"sda", "sda2", "sdb1"}),
        ({"/": "overlay"}, {"sda", "sda2", "sdb1"}),
        ({}, {"sda", "sda2", "sdb1"}),
    ],
)
def test_disk_keys_are_of_the_devices_of_the_paths_else_of_all(mounts: dict[str, str], devices: set[str]) -> None:
    names = ("sda", "sda2", "sdb1", "loop0", "zram0")
    spaces = [
        c.SYSTEM_FILESYSTEM_USAGE(
            MIB, {c.DEVICE: device, c.FILESYSTEM_MOUNTPOINT: path, c.FILESYSTEM_STATE: "used", c.FILESYSTEM_TYPE: "x"}
        )
        for path, device in mounts.items()
    ]
    row = keys(*disks(*names, read=MIB), *spaces, first=disks(*names), paths=())
    assert row == {
        "disk.in": 4.0,  # sda, sdb1, which has no disk here, loop0 and zram0
        "disk.out": 8.0,
        **{f"disk.{device}.in": 1.0 for device in devices},
        **{f"disk.{device}.out": 2.0 for device in devices},
    }


# -- NVIDIA's GPUs


class GpuKey(NamedTuple):
    """A key of a GPU, the call of NVML that it comes from, which of the numbers of its answer, and the factor on that.

    Attributes:
        of: The number that it is a share of.
        twin: Whether W&B repeats it as ``gpu.process`` for a GPU that the process uses.
    """

    key: str
    call: str
    number: int = 0
    factor: float = 1
    of: tuple[str, int] | None = None
    twin: bool = False


# The keys of W&B's documentation and program. The driver has links in MiB per second.
NVIDIA = (
    GpuKey("gpu", "UtilizationRates", 0, twin=True),
    GpuKey("memory", "UtilizationRates", 1, twin=True),
    GpuKey("memoryAllocated", "MemoryInfo", 3, 100, of=("MemoryInfo", 0), twin=True),
    GpuKey("memoryAllocatedBytes", "MemoryInfo", 3, twin=True),
    GpuKey("temp", "Temperature.0", twin=True),
    GpuKey("powerWatts", "PowerUsage", 0, 1e-3, twin=True),
    GpuKey("powerPercent", "PowerUsage", 0, 100, of=("EnforcedPowerLimit", 0), twin=True),
    GpuKey("enforcedPowerLimitWatts", "EnforcedPowerLimit", 0, 1e-3, twin=True),
    GpuKey("graphicsClock", "ClockInfo.0"),
    GpuKey("smClock", "ClockInfo.1"),
    GpuKey("memoryClock", "ClockInfo.2"),
    GpuKey("correctedMemoryErrors", "MemoryErrorCounter.0.0.2"),
    GpuKey("unCorrectedMemoryErrors", "MemoryErrorCounter.1.0.2"),
    GpuKey("uncorrectedMemoryErrors", "MemoryErrorCounter.1.0.2"),
    GpuKey("encoderUtilization", "EncoderUtilization", 0),
    GpuKey("fanSpeed", "FanSpeed"),
    GpuKey("smActive", "GpmCounter.2"),
    GpuKey("smOccupancy", "GpmCounter.3"),
    GpuKey("pipeTensorActive", "GpmCounter.5"),
    GpuKey("pipeTensorHmmaActive", "GpmCounter.7"),
    GpuKey("dramActive", "GpmCounter.10"),
    GpuKey("pipeFp64Active", "GpmCounter.11"),
    GpuKey("pipeFp32Active", "GpmCounter.12"),
    GpuKey("pipeFp16Active", "GpmCounter.13"),
    GpuKey("pcieTxBytes", "GpmCounter.20", factor=MIB),
    GpuKey("pcieRxBytes", "GpmCounter.21", factor=MIB),
    GpuKey("nvlinkTxBytes", "GpmCounter.61"),
    GpuKey("nvlinkRxBytes", "GpmCounter.60"),
    GpuKey("energyJoules", "TotalEnergyConsumption"),
)

# Rates of the driver's counters over a window that the machine may stretch, so that only their ratio, 2, is known.
NVLINK = {"nvlinkTxBytes", "nvlinkRxBytes"}

MOVING = NVLINK | {"energyJoules"}

TWINS = [each.key for each in NVIDIA if each.twin]

# What the simulated GPUs with GPM measure in each window, by the call.
RATES = {f"GpmCounter.{metric}": rate for metric, rate in {**GPM_RATES, 7: 33, 61: 1_800, 60: 900}.items()}


def card(gpu: Mapping[str, Value], **more: Value) -> dict[str, Value]:
    """A GPU with errors of the device memory, which W&B counts separately, and two different clocks."""
    clocks = {"ClockInfo.0": 1_215, "ClockInfo.1": 1_230}
    return {**gpu, "MemoryErrorCounter.0.0.2": 6, "MemoryErrorCounter.1.0.2": 3, **clocks, **more}


def hopper(**more: Value) -> dict[str, Value]:
    return card({**h100(), **{call: moving(0, rate) for call, rate in RATES.items()}}, **more)


def expected(gpu: Mapping[str, Value]) -> dict[str, float]:
    """W&B's values for a GPU with these driver values; unsupported calls have none."""

    def driver_value(call: str, number: int) -> float | None:
        value = gpu.get(call)
        if call.startswith("GpmCounter"):
            return RATES[call] if value is not None and gpu["GpmQueryDeviceSupport"] else None
        if isinstance(value, tuple):
            value = value[number]
        return value if isinstance(value, (int, float)) and value != NOT_AVAILABLE else None

    found = {}
    for each in NVIDIA:
        value, of = driver_value(each.call, each.number), driver_value(*each.of) if each.of else 1
        if value is not None and of:
            found[each.key] = value / of * each.factor
    return found


class Case(NamedTuple):
    """A GPU of the machine below.

    Attributes:
        gpu: What its driver answers.
        absent: Keys that this kind of GPU has not.
        used: Whether the observed process uses it.
    """

    gpu: Mapping[str, Value]
    absent: set[str]
    used: bool = False


GPM = {each.key for each in NVIDIA if each.call.startswith("GpmCounter")}
ECC = {each.key for each in NVIDIA if each.call.startswith("MemoryErrorCounter")}
POWER = {"powerWatts", "powerPercent", "enforcedPowerLimitWatts"}
CLOCKS = {"graphicsClock", "smClock", "memoryClock"}


def cases(own: int, child: int) -> dict[str, Case]:
    """GPUs of one machine, in NVML's order."""
    divided = mig(card(a100()), 0, {0: (7, 0), 3: (9, 0)})
    processes = listed((own, 5 * MIB))
    return {
        "hopper": Case(hopper(), {"fanSpeed"}),
        "consumer": Case(geforce(), GPM | ECC),
        "foreign": Case(card(a100(), ComputeRunningProcesses=listed((1, 7 * MIB))), (GPM - NVLINK) | {"fanSpeed"}),
        "turing": Case(card(t4()), GPM | {"fanSpeed"}),
        "lost": Case({}, {each.key for each in NVIDIA}),
        "virtual": Case(vgpu(), GPM | ECC | POWER | CLOCKS | {"temp", "fanSpeed", "energyJoules"}),
        "no-power-limit": Case(
            {**geforce(), "EnforcedPowerLimit": NOT_AVAILABLE}, GPM | ECC | {"powerPercent", "enforcedPowerLimitWatts"}
        ),
        "no-permission": Case(
            {**hopper(), "GpmQueryDeviceSupport": 0, "Temperature.0": NOT_AVAILABLE, "PowerUsage": refused(4)},
            (GPM - NVLINK) | {"temp", "powerWatts", "powerPercent", "fanSpeed"},
        ),
        "used": Case(hopper(ComputeRunningProcesses=processes), {"fanSpeed"}, used=True),
        "used-by-a-child": Case(
            card(a100(), GraphicsRunningProcesses=listed((child, 5 * MIB))), (GPM - NVLINK) | {"fanSpeed"}, used=True
        ),
        "used-without-memory-of-processes": Case(
            {**geforce(), "ComputeRunningProcesses": listed((own,)), "ProcessUtilization": refused(3)},
            GPM | ECC,
            used=True,
        ),
        "instances-used": Case(
            {**divided, "mig3.ComputeRunningProcesses": processes},
            (GPM - NVLINK) | ECC | {"gpu", "memory", "encoderUtilization", "fanSpeed"},
            used=True,
        ),
    }


class Answer(NamedTuple):
    rows: list[dict[str, float]]
    stderr: str


class Many(NamedTuple):
    """The machine with all of them, and the row that was printed of it."""

    machine: FakeNvml
    cases: dict[str, Case]
    answer: Answer


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Many:
    need(fake_nvml)
    with started([sys.executable, "-c", "import sys; sys.stdin.read()"]) as child:
        found = cases(os.getpid(), child.pid)
        gpus = [{**case.gpu, **_bus(index)} for index, case in enumerate(found.values())]
        driver = FakeNvml(tmp_path_factory.mktemp("driver"), *gpus)
        driver.set_lines({f"gpu{list(found).index('lost')}": refused(15)})
        return Many(driver, found, rows(driver, "--pid", str(os.getpid())))


def _bus(index: int) -> dict[str, Value]:
    """What identifies one GPU of a machine."""
    return {"UUID": f"GPU-00000000-0000-4000-8000-{index:012x}", "PciInfo": f"0000:{index + 1:02x}:00.0 0x233010de 0x0"}


def rows(driver: FakeNvml, *arguments: str, window: str = "0.1") -> Answer:
    """What a real ``otel-hardware`` prints on that machine about the GPUs, and on stderr."""
    answer = run(["otel-hardware", "snapshot", "--format", "wandb", "--window", window, *arguments], driver.environment)
    assert answer.returncode == 0, answer.stderr
    return Answer([of_gpus(line) for line in answer.stdout.splitlines()], answer.stderr)


def of_gpus(line: str) -> dict[str, float]:
    row = json.loads(line)
    assert "proc.memory.rssMB" in row, "the host's keys do not depend on the GPUs"
    return {key: value for key, value in row.items() if key.startswith("gpu.")}


def of(row: Mapping[str, float], index: int, prefix: str = "gpu") -> dict[str, float]:
    start = f"{prefix}.{index}."
    return {key.removeprefix(start): row[key] for key in row if key.startswith(start)}


def numbers(index: int, values: Mapping[str, float], prefix: str = "gpu") -> dict[str, float]:
    return {f"{prefix}.{index}.{name}": value for name, value in values.items()}


@pytest.fixture
def machine_of(tmp_path: Path) -> Callable[..., FakeNvml]:
    need(fake_nvml)
    return lambda *gpus, **options: FakeNvml(tmp_path, *gpus, **options)


@pytest.mark.whole
@pytest.mark.parametrize("name", cases(0, 0))
def test_gpu_keys_are_nvml_answers_times_factors(many: Many, name: str) -> None:
    index, case = list(many.cases).index(name), many.cases[name]
    (row,) = many.answer.rows
    found = of(row, index)
    assert {key: value for key, value in found.items() if key not in MOVING} == pytest.approx(
        {key: value for key, value in expected(case.gpu).items() if key not in MOVING}, rel=1e-3
    )
    assert 5e6 <= found.get("energyJoules", 5e6) < 6e6
    if NVLINK & found.keys():
        assert found["nvlinkTxBytes"] / found["nvlinkRxBytes"] == pytest.approx(2, rel=1e-3)
    assert set(of(row, index)) == {each.key for each in NVIDIA} - case.absent
    twins = {key: value for key, value in of(row, index).items() if key in TWINS}
    assert of(row, index, "gpu.process") == (twins if case.used else {}), "the whole GPU's, once more"


@pytest.mark.whole
def test_nvml_is_shut_down_and_only_the_lost_gpu_is_logged(many: Many) -> None:
    assert many.answer.stderr.splitlines() == [
        "otel-hardware: GPU 4 (gpu4): GPU is lost; its metrics are missing until it responds"
    ]
    (row,) = many.answer.rows
    indices = {key.removeprefix("gpu.process.").removeprefix("gpu.").split(".")[0] for key in row}
    assert indices == {str(index) for index, name in enumerate(many.cases) if name != "lost"}
    calls = many.machine.calls()
    assert calls["Init"] == calls["Shutdown"] > 0
    assert calls["GpmSampleAlloc"] == calls["GpmSampleFree"] > 0


@pytest.mark.whole
def test_unusable_driver_is_one_message(machine_of: Callable[..., FakeNvml]) -> None:
    driver = machine_of(h100(0))
    driver.set_lines({"Init": refused(18)})
    answer = rows(driver, "--nvidia-smi", "off", "--every", "0.1", "--count", "2")
    assert answer.rows == [{}, {}]
    assert answer.stderr.splitlines() == [
        "otel-hardware: nvidia: NVML: RM has detected an NVML/RM version mismatch; nvidia-smi is switched off; the "
        "driver was exchanged while it ran: restart the machine, or recreate the container"
    ]


def by_tool(folder: Path, document: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    """The same row, of a machine without the library, and with a tool that prints one of our documents.

    Process 9100 of the document is this one.
    """
    output = Path(__file__).parents[1] / "sources" / "nvidia" / "smi" / f"{document}.xml"
    (folder / "output.xml").write_text(output.read_text().replace("<pid>9100</pid>", f"<pid>{os.getpid()}</pid>"))
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {shlex.quote(str(folder / 'output.xml'))}\n")
    tool.chmod(0o755)
    arguments = ("--window", "0.05", "--nvml", "off", "--nvidia-smi", str(tool), "--pid", str(os.getpid()))
    return {key: value for key, value in printed(capsys, *arguments).items() if key.startswith("gpu.")}


def test_nvidia_smi_gives_the_keys_without_nvml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = {
        "gpu": 100,
        "memory": 55,
        "memoryAllocated": 92_160 / 143_771 * 100,
        "memoryAllocatedBytes": 92_160 * MIB,
        "temp": 52,
        "powerWatts": 628.14,
        "enforcedPowerLimitWatts": 700,
        "powerPercent": 628.14 / 700 * 100,
        "smClock": 1755,
        "memoryClock": 3201,
        "graphicsClock": 1755,
        "encoderUtilization": 0,
        "correctedMemoryErrors": 0,
        "uncorrectedMemoryErrors": 0,
        "unCorrectedMemoryErrors": 0,
    }
    found = by_tool(tmp_path, "v13-h200", capsys)
    assert 0 < found.pop("gpu.0.energyJoules") < 628.14 * LONG, "of the power, since the first sample"
    assert found == pytest.approx(numbers(0, expected), rel=1e-5)


# -- several vendors


def gpu(vendor: str, index: int, watts: float) -> list[Point]:
    device = {c.HW_ID: f"{vendor}{index}", c.HW_NAME: f"GPU {index}"}
    return [
        c.HW_GPU_INFO(1, {**device, c.HW_VENDOR: vendor, c.GPU_INDEX: index}),
        c.HW_POWER(watts, {**device, c.HW_TYPE: "gpu"}),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_nvidia_gpu_takes_precedence_over_gpu_of_the_same_index(order: int) -> None:
    gpus = [gpu("NVIDIA", 0, 300.0), gpu("AMD", 0, 90.0), gpu("AMD", 1, 95.0)][::order]
    assert keys(*(point for each in gpus for point in each), used={"NVIDIA0"}) == {
        "gpu.0.powerWatts": 300.0,
        "gpu.process.0.powerWatts": 300.0,
        "gpu.1.powerWatts": 95.0,
    }


def test_each_table_but_that_of_the_host_has_the_name_of_a_source() -> None:
    assert {*wandb.KEYS} - {"host"} <= {*discover()}


def test_each_key_is_there_once_and_has_a_metric() -> None:
    for name, table in wandb.KEYS.items():
        assert len({key.name for key in table}) == len(table), f"{name} has a key twice"
    assert [key.name for table in wandb.KEYS.values() for key in table if not key.metrics] == [
        "openmetrics.{endpoint}.{metric}.{n}"
    ]
