"""W&B's keys have W&B's values: of the host against psutil, of GPUs against a simulated driver."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias

import psutil
import pytest
from tests.support.children import end_of, run, started
from tests.support.waiting import wait_for
from tests.tools import fake_nvml, need
from tests.tools.nvml import (
    GPM_RATES,
    HANG,
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

from opentelemetry.instrumentation.hardware import cli
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import discover
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia
from opentelemetry.instrumentation.hardware.system.local import machine
from opentelemetry.instrumentation.hardware.system.machine import CgroupUsage, Machine, Memory, Mount, ProcessLimits
from opentelemetry.instrumentation.hardware.system.psutil_backend import PsutilMachine
from opentelemetry.instrumentation.hardware.wandb import host, keys
from opentelemetry.instrumentation.hardware.wandb.host import History, Reading
from opentelemetry.instrumentation.hardware.wandb.probe import Device, Devices, Probe, extra_key

MIB, GIB = 2**20, 2**30
TICK = 0.01
"""Seconds: the unit in which psutil and the kernel's files count CPU time."""
LONG = 60.0
"""Seconds until a row counts as missing."""
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
    network: Any


class Bracket(NamedTuple):
    """A reading between two readings of psutil."""

    before: Truth
    reading: Reading
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


def read(asked: Machine, *paths: str) -> Reading:
    return host.read(asked, os.getpid(), [*paths] or ["/"])


def row_of(first: Reading, before: Reading, now: Reading) -> dict[str, float]:
    return keys.row(host.KEYS, History(first, before, now))


def bracket(asked: Machine) -> Bracket:
    before = truth()
    reading = read(asked)._replace(group=None)  # the tests may run under a limit, which psutil ignores
    return Bracket(before, reading, truth())


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
    HostKey("network.sent", lambda each: each.network.bytes_sent, 1, grown=True),
    HostKey("network.recv", lambda each: each.network.bytes_recv, 1, grown=True),
)


@contextmanager
def asking(way: str) -> Iterator[Machine]:
    """The local machine, read from the kernel's files or through psutil."""
    drivers = Drivers()
    yield (
        machine(drivers)
        if way == "kernel"
        else PsutilMachine(drivers.python_module("psutil"), drivers.python_module("time"))
    )
    drivers.close()


@pytest.fixture(params=["kernel", "psutil"])
def asked(request: pytest.FixtureRequest) -> Iterator[Machine]:
    with asking(request.param) as found:
        yield found


@pytest.fixture(scope="module", params=["kernel", "psutil"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Two readings with work in between, each between two of psutil, and their row."""
    with asking(request.param) as found:
        first = bracket(found)
        with busy(tmp_path_factory.mktemp("busy")):
            second = bracket(found)
    return first, second, row_of(first.reading, first.reading, second.reading)


@pytest.mark.parametrize("host", HOST, ids=lambda host: host.key)
def test_host_key_lies_between_two_readings_of_psutil(seen: Seen, host: HostKey) -> None:
    first, second, row = seen
    if host.key.startswith("disk.") and second.after.disk is None and host.grown:
        pytest.skip("this machine shows no disks")
    if host.grown:
        low, high = (
            host.call(b) - host.call(a) for a, b in ((first.after, second.before), (first.before, second.after))
        )
    else:
        low, high = sorted((host.call(second.before), host.call(second.after)))
    assert low * host.factor - host.slack <= row[host.key] <= high * host.factor + host.slack


def test_loopback_and_started_threads_are_counted(seen: Seen) -> None:
    _, _, row = seen
    assert row["network.sent"] >= 65536
    assert row["network.recv"] >= 65536
    assert row["proc.cpu.threads"] >= 4


def test_cpu_is_process_time_over_elapsed_time_and_capacity(seen: Seen) -> None:
    first, second, row = seen
    assert second.reading.capacity
    least = (second.before.process - first.after.process - 2 * TICK) / (second.after.clock - first.before.clock)
    most = (second.after.process - first.before.process + 2 * TICK) / (second.before.clock - first.after.clock)
    assert least * 100 <= row["cpu"] * second.reading.capacity <= most * 100
    assert row["cpu"] > 0


def test_cpu_percent_of_each_cpu_is_that_of_psutil(seen: Seen) -> None:
    first, second, row = seen
    for number in range(CPUS):
        least = second.before.cpus[number][0] - first.after.cpus[number][0] - 3 * TICK
        most = second.after.cpus[number][0] - first.before.cpus[number][0] + 3 * TICK
        longest = second.after.cpus[number][1] - first.before.cpus[number][1] + 3 * TICK
        shortest = second.before.cpus[number][1] - first.after.cpus[number][1] - 3 * TICK
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
    assert set(row) == expected
    assert all(isinstance(value, (int, float)) for value in row.values())


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, float]:
    """The row that the command prints in this process."""
    assert cli.main(["snapshot", "--format", "wandb", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    row: dict[str, float] = json.loads(printed.out)
    return row


def test_cpu_percent_excludes_iowait_and_new_cpus(asked: Machine) -> None:
    first = read(asked)._replace(cpus={0: {"user": 10.0, "idle": 10.0, "iowait": 10.0, "steal": 0.0}})
    second = first._replace(
        cpus={0: {"user": 11.0, "idle": 12.0, "iowait": 15.0, "steal": 2.0}, 1: {"user": 5.0, "idle": 5.0}},
        clock=first.clock + 10,
    )
    row = row_of(first, first, second)
    assert row["cpu.0.cpu_percent"] == 30.0
    assert "cpu.1.cpu_percent" not in row, "a CPU that was not there before has no window"


def test_unreadable_disk_path_has_no_keys(asked: Machine) -> None:
    reading = read(asked, "/", "/no/such/path")
    row = row_of(reading, reading, reading)
    assert "disk./.usageGB" in row
    assert not any("/no/such/path" in key for key in row)


def test_empty_window_has_no_cpu_keys(asked: Machine) -> None:
    reading = read(asked)
    row = row_of(reading, reading, reading)
    assert "cpu" not in row
    assert not any(key.endswith("cpu_percent") for key in row)
    assert row["network.sent"] == row["network.recv"] == 0


# -- the cgroup, and the disks that W&B chooses


def group(memory: int | None, limit: int | None, cpus: float | None = None) -> CgroupUsage:
    return CgroupUsage(None, None, None, None, memory, None, cpus, limit, {})


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
            for without_limit in (None, group(3 * GIB, None))
        ),
    ],
)
def test_memory_keys_are_relative_to_the_cgroup_limit(
    asked: Machine, limits: CgroupUsage | None, expected: dict[str, float]
) -> None:
    reading = read(asked)
    process = reading.process._replace(resident=GIB)
    memory = Memory(total=16 * GIB, available=12 * GIB)
    reading = reading._replace(group=limits, process=process, memory=memory)
    row = row_of(reading, reading, reading)
    names = ("memory", "memory_percent", "proc.memory.availableMB", "proc.memory.percent")
    assert {name: row[name] for name in names if name in row} == expected


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
    asked: Machine, quota: float | None, affinity: int, capacity: float
) -> None:
    limited = Answers(asked, group(None, None, quota), ProcessLimits(min(affinity, quota or affinity), None))
    first = host.read(limited, os.getpid(), [])
    now = first._replace(clock=first.clock + 10, process=first.process._replace(user=first.process.user + 3))
    assert row_of(first, first, now)["cpu"] == pytest.approx(30 / capacity, rel=1e-3)


@pytest.mark.parametrize(
    ("paths", "mounts", "devices"),
    [
        (["/"], {"/": "/dev/sda2", "/data": "/dev/sdb1"}, {"sda2"}),
        (["/data"], {"/": "/dev/sda2", "/data": "/dev/sdb1"}, {"sda2", "sdb1"}),
        (["/database"], {"/": "/dev/gone", "/data": "/dev/sdb1"}, {"sdb1"}),  # a prefix of the text, as W&B has it
        (["/"], {"/etc/hosts": "/dev/sdb1"}, {"sdb1"}),  # a container: its root is no block device
        (["/"], {"/": "server:/export"}, {"sda", "sda2", "sdb1"}),
        (["/"], {}, {"sda", "sda2", "sdb1"}),
    ],
)
def test_disk_keys_are_of_the_devices_that_wandb_chooses(
    asked: Machine, monkeypatch: pytest.MonkeyPatch, paths: list[str], mounts: dict[str, str], devices: set[str]
) -> None:
    counters = {
        name: SimpleNamespace(read_bytes=0, write_bytes=0) for name in ("sda", "sda2", "sdb1", "loop0", "zram0")
    }
    monkeypatch.setattr(psutil, "disk_io_counters", lambda perdisk=False, nowrap=True: counters if perdisk else None)
    mounted = Answers(asked, mounts=[Mount(path, device, "ext4") for path, device in mounts.items()])
    first = host.read(mounted, os.getpid(), paths)
    more = {name: host.Transferred(MIB, 2 * MIB) for name in first.disks}
    row = row_of(first, first, first._replace(disks=more))
    assert {key: value for key, value in row.items() if key.endswith((".in", ".out"))} == {
        **{f"disk.{device}.in": 1.0 for device in devices},
        **{f"disk.{device}.out": 2.0 for device in devices},
    }


def test_disk_and_network_keys_are_absent_where_psutil_cannot_read_them(
    asked: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError("/proc/net/dev")

    for name in ("disk_io_counters", "net_io_counters"):
        monkeypatch.setattr(psutil, name, refused)
    reading = read(asked)
    row = row_of(reading, reading, reading)
    assert not [key for key in row if key.endswith((".in", ".out", ".sent", ".recv"))]
    assert "proc.memory.rssMB" in row


class Answers:
    """A machine with other limits or mounts."""

    def __init__(
        self,
        asked: Machine,
        group: CgroupUsage | None = None,
        limits: ProcessLimits | None = None,
        mounts: Sequence[Mount] | None = None,
    ) -> None:
        self._asked = asked
        self._answers = {"cgroup": group, "limits": limits, "mounts": mounts, "cpu_counts": (8, 4) if limits else None}

    def __getattr__(self, name: str) -> Any:
        answer = self._answers.get(name)
        return getattr(self._asked, name) if answer is None else lambda *_: answer


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
    GpuKey("pcieTxBytes", "GpmCounter.20"),
    GpuKey("pcieRxBytes", "GpmCounter.21"),
    GpuKey("nvlinkTxBytes", "GpmCounter.61"),
    GpuKey("nvlinkRxBytes", "GpmCounter.60"),
)
"""The keys of W&B's documentation and program; links through GPM are in MiB per second."""

TWINS = [each.key for each in NVIDIA if each.twin]

RATES = {f"GpmCounter.{metric}": rate for metric, rate in {**GPM_RATES, 7: 33, 61: 1_800, 60: 900}.items()}
"""What the simulated GPUs with GPM measure in each window, by the call."""


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
        "foreign": Case(card(a100(), ComputeRunningProcesses=listed((1, 7 * MIB))), GPM | {"fanSpeed"}),
        "turing": Case(card(t4()), GPM | {"fanSpeed"}),
        "lost": Case({}, {each.key for each in NVIDIA}),
        "virtual": Case(vgpu(), GPM | ECC | POWER | CLOCKS | {"temp", "fanSpeed"}),
        "no-power-limit": Case(
            {**geforce(), "EnforcedPowerLimit": NOT_AVAILABLE}, GPM | ECC | {"powerPercent", "enforcedPowerLimitWatts"}
        ),
        "no-permission": Case(
            {**hopper(), "GpmQueryDeviceSupport": 0, "Temperature.0": NOT_AVAILABLE, "PowerUsage": refused(4)},
            GPM | {"temp", "powerWatts", "powerPercent", "fanSpeed"},
        ),
        "used": Case(hopper(ComputeRunningProcesses=processes), {"fanSpeed"}, used=True),
        "used-by-a-child": Case(
            card(a100(), GraphicsRunningProcesses=listed((child, 5 * MIB))), GPM | {"fanSpeed"}, used=True
        ),
        "used-without-memory-of-processes": Case(
            {**geforce(), "ComputeRunningProcesses": listed((own,)), "ProcessUtilization": refused(3)},
            GPM | ECC,
            used=True,
        ),
        "instances-used": Case(
            {**divided, "mig3.ComputeRunningProcesses": processes},
            GPM | ECC | {"gpu", "memory", "encoderUtilization", "fanSpeed"},
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


@pytest.mark.parametrize("name", cases(0, 0))
def test_gpu_keys_are_nvml_answers_times_factors(many: Many, name: str) -> None:
    index, case = list(many.cases).index(name), many.cases[name]
    (row,) = many.answer.rows
    assert of(row, index) == pytest.approx(expected(case.gpu), rel=1e-3)
    assert set(of(row, index)) == {each.key for each in NVIDIA} - case.absent
    twins = {key: value for key, value in of(row, index).items() if key in TWINS}
    assert of(row, index, "gpu.process") == (twins if case.used else {}), "the whole GPU's, once more"


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


def test_driver_without_memory_info_v2_counts_reserved_memory_as_used(machine_of: Callable[..., FakeNvml]) -> None:
    (row,) = rows(machine_of(card(a100(0)), without=("nvmlDeviceGetMemoryInfo_v2",))).rows
    assert row["gpu.0.memoryAllocatedBytes"] == (40_000 + 693) * MIB
    assert row["gpu.0.memoryAllocated"] == pytest.approx((40_000 + 693) / 81_920 * 100, rel=1e-3)


SNAPSHOT = (
    "from opentelemetry.instrumentation.hardware import cli\n"
    "from opentelemetry.instrumentation.hardware.wandb import nvidia\n"
    "nvidia.Probe.timeout = 0.5\n"
    "raise SystemExit(cli.main())\n"
)
"""The command with less patience for a driver that hangs."""


@contextmanager
def series(driver: FakeNvml) -> Iterator[Callable[[], dict[str, float]]]:
    """A command that prints rows; the yielded function returns the next one."""
    line = [sys.executable, "-c", SNAPSHOT, "snapshot", "--format", "wandb", "--every", "0.1", "--window", "0.1"]
    with started(line, driver.environment) as child:
        assert child.stdout is not None
        stdout = child.stdout
        yield lambda: of_gpus(stdout.readline())
        child.send_signal(signal.SIGINT)
        _, err = end_of(child)
        assert child.returncode == 0, err


def test_gpu_keys_follow_the_driver_through_windows_losses_and_hangs(machine_of: Callable[..., FakeNvml]) -> None:
    driver = machine_of(hopper(UtilizationRates=HANG))
    with series(driver) as following:
        assert following() == following() == {}, "it hangs from the first call on"
        driver.set_lines({"gpu0.UtilizationRates": (88, 53)})
        for percent in (76, 10):
            driver.set_lines({"gpu0.GpmCounter.2": moving(0, percent)})

            def measured(rate: float = percent) -> bool:
                return following().get("gpu.0.smActive") == pytest.approx(rate, rel=1e-3)

            wait_for(measured, LONG, "GPM window since the row before")
        for what, fault in (("lost", {"gpu0": refused(15)}), ("reset", {"gpu0.UtilizationRates": refused(18)})):
            driver.set_lines(fault)
            wait_for(lambda: following() == {}, LONG, f"row without the GPU that is {what}")
            driver.set_lines({"gpu0": None, "gpu0.UtilizationRates": (88, 53)})
            wait_for(lambda: following().get("gpu.0.gpu") == 88, LONG, f"row with the GPU that was {what}")
        for _ in range(2):  # it hangs again at the end, which does not hold up the command's
            driver.set_lines({"gpu0.UtilizationRates": (88, 53)})
            wait_for(lambda: following().get("gpu.0.gpu") == 88, LONG, "row with the GPU that hung")
            driver.set_lines({"gpu0.UtilizationRates": HANG})
            wait_for(lambda: following() == {}, LONG, "row without the GPU that hangs")


def test_devices_option_selects_gpus(machine_of: Callable[..., FakeNvml]) -> None:
    answer = rows(machine_of(hopper(), geforce(1)), "--devices", "1")
    assert answer.stderr == ""
    assert answer.rows == [pytest.approx(numbers(1, expected(geforce(1))), rel=1e-5)]


def test_unusable_driver_is_one_message(machine_of: Callable[..., FakeNvml]) -> None:
    driver = machine_of(h100(0))
    driver.set_lines({"Init": refused(18)})
    answer = rows(driver, "--nvidia-smi", "off", "--every", "0.1", "--count", "2")
    assert answer.rows == [{}, {}]
    assert answer.stderr.splitlines() == [
        "otel-hardware: no gpu.* keys of nvidia: NVML: RM has detected an NVML/RM version mismatch; "
        "nvidia-smi is switched off"
    ]


def test_sources_without_nvidia_make_no_nvml_call(machine_of: Callable[..., FakeNvml]) -> None:
    driver = machine_of(h100(0))
    assert rows(driver, "--sources=-nvidia") == Answer([{}], "")
    assert not driver.calls()


@pytest.mark.skipif(Nvidia.prepare(Config()), reason="this machine has an NVIDIA driver")
def test_nvml_is_not_loaded_without_a_sign_of_a_driver(machine_of: Callable[..., FakeNvml]) -> None:
    driver = machine_of(h100(0))
    found = {name: value for name, value in driver.environment.items() if not name.startswith("OTEL_")}
    program = (
        "import sys; from opentelemetry.instrumentation.hardware.cli import main\n"
        "status = main(['snapshot', '--format', 'wandb', '--window', '0.1'])\n"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else ''\n"
        "print(status, 'pynvml' in sys.modules, 'libnvidia-ml' in maps)"
    )
    answer = run([sys.executable, "-c", program], found)
    assert (answer.stdout.splitlines()[-1], answer.stderr) == ("0 False False", "")
    assert of_gpus(answer.stdout.splitlines()[0]) == {}
    assert not driver.calls()


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
    assert by_tool(tmp_path, "v13-h200", capsys) == pytest.approx(numbers(0, expected), rel=1e-5)


def test_nvidia_smi_instances_have_no_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = by_tool(tmp_path, "v11-a100-mig", capsys)
    whole = {
        "memoryAllocated": 4_680 / 81_251 * 100,
        "memoryAllocatedBytes": 4_680 * MIB,
        "temp": 40,
        "powerWatts": 98.1,
        "enforcedPowerLimitWatts": 350,
        "powerPercent": 98.1 / 350 * 100,
    }
    clocks = {"smClock": 1155, "memoryClock": 1593, "graphicsClock": 1155}
    assert row == pytest.approx({**numbers(0, {**whole, **clocks}), **numbers(0, whole, "gpu.process")}, rel=1e-5)


@pytest.mark.parametrize(
    ("document", "corrected"),
    [
        pytest.param("v12-l40s", 0, id="not the 9 of the whole lifetime"),
        pytest.param("v10-v100", 1, id="of the device memory"),
    ],
)
def test_nvidia_smi_gives_the_errors_since_the_driver_was_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str, corrected: int
) -> None:
    row = by_tool(tmp_path, document, capsys)
    assert row["gpu.0.correctedMemoryErrors"] == corrected
    assert row["gpu.0.unCorrectedMemoryErrors"] == row["gpu.0.uncorrectedMemoryErrors"] == 0


def test_nvidia_smi_gives_fan_speed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert by_tool(tmp_path, "v12-rtx3090", capsys)["gpu.0.fanSpeed"] == 30


# -- several vendors


class Watts(Probe[Devices]):
    """GPUs by index, with their power."""

    def __init__(self, watts: Mapping[int, float]) -> None:
        super().__init__(Config(), 0)
        self._watts = watts

    def read(self) -> Devices:
        return {index: Device({"powerWatts": watts}) for index, watts in self._watts.items()}


def vendor(watts: Mapping[int, float]) -> SimpleNamespace:
    table = (
        extra_key("gpu.{i}.powerWatts", "W", "power"),
        extra_key("gpu.process.{i}.powerWatts", "W", "power"),
    )
    return SimpleNamespace(KEYS=table, Probe=lambda config, pid: Watts(watts))


def test_nvidia_gpu_takes_precedence_over_gpu_of_the_same_index(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "modules", lambda: {"nvidia": vendor({0: 300.0}), "amd": vendor({0: 90.0, 1: 95.0})})
    rows = keys.Rows(Config(), os.getpid(), pytest.fail)
    rows.start()
    row = rows.read()
    rows.close()
    assert {key: value for key, value in row.items() if key.startswith("gpu.")} == {
        "gpu.0.powerWatts": 300.0,
        "gpu.process.0.powerWatts": 300.0,
        "gpu.1.powerWatts": 95.0,
        "gpu.process.1.powerWatts": 95.0,
    }


def test_each_module_has_the_name_of_a_source_and_other_sources_have_no_keys() -> None:
    names = [*keys.modules()]
    assert names[0] == "nvidia", "its keys come first"
    assert {*names} < {*discover()}


def test_failing_vendor_is_one_message_and_affects_only_its_own_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = vendor({})

    class Failing(Watts):
        def read(self) -> Devices:
            self.error = "the driver is gone"
            return {}

    failing.Probe = lambda config, pid: Failing({})
    monkeypatch.setattr(keys, "modules", lambda: {"acme": failing, "nvidia": vendor({0: 300.0})})
    messages: list[str] = []
    rows = keys.Rows(Config(), os.getpid(), messages.append)
    rows.start()
    row = rows.read()
    rows.close()
    assert messages == ["no gpu.* keys of acme: the driver is gone"]
    assert row["gpu.0.powerWatts"] == 300.0


# -- all keys


RADEON = ("memoryReadWriteActivity", "memoryOverDrive")
"""The keys of AMD GPUs that NVIDIA GPUs do not have."""

STATISTICS = ("mean", "p50", "p90", "p95", "p999")
"""What W&B reports of a TPU's distributions."""

TPU = (
    "tpu",
    *(
        f"tpu.{{i}}.{name}"
        for name in (
            *("memoryUsage", "memoryUsageBytes", "dutyCycle", "tensorcoreUtilization", "tensorcoreIdleDuration"),
            *("hbmCapacityTotal", "hbmCapacityUsage", "hbmMemoryUsage", "runtimeHbmUtilization"),
            *("iciLinkHealth", "throttleScore"),
        )
    ),
    "tpu.hloQueueSize.{core}",
    *(f"tpu.hloExecTiming.{{core}}.{statistic}Us" for statistic in STATISTICS),
    *(
        f"tpu.{name}.{{size}}.{statistic}Us"
        for name in (
            *("bufferTransferLatency", "inboundBufferTransferLatency", "hostToDeviceTransferLatency"),
            *("deviceToHostTransferLatency", "collectiveE2ELatency", "hostComputeLatency"),
        )
        for statistic in STATISTICS
    ),
    *(f"tpu.grpcTcpMinRtt.{statistic}Us" for statistic in STATISTICS),
    *(f"tpu.grpcTcpDeliveryRate.{statistic}Mbps" for statistic in STATISTICS),
)

IPU = (
    *("ipu.{i}.average board temp (C)", "ipu.{i}.average die temp (C)", "ipu.{i}.clock (MHz)", "ipu.{i}.ipu power (W)"),
    *("ipu.{i}.ipu utilisation (%)", "ipu.{i}.ipu utilisation (session) (%)", "ipu.{i}.speed (GT/s)"),
)

TRN = (
    *("trn.{i}.neuroncore_utilization", "trn.host_total_memory_usage", "trn.neuron_device_total_memory_usage"),
    *(
        f"trn.{group}.{category}"
        for group in ("host_total_memory_usage", "host_memory_usage")
        for category in ("application_memory", "constants", "dma_buffers", "tensors")
    ),
    *(
        f"trn.{{i}}.neuroncore_memory_usage.{category}"
        for category in ("constants", "model_code", "model_shared_scratchpad", "runtime_memory", "tensors")
    ),
)

KNOWN = {
    *(host.key.replace("./.", ".{path}.") for host in HOST),
    "cpu",
    "cpu.{i}.cpu_percent",
    "disk.{device}.in",
    "disk.{device}.out",
    *(f"gpu.{{i}}.{each.key}" for each in NVIDIA),
    *(f"gpu.process.{{i}}.{name}" for name in TWINS),
    *(f"gpu.{{i}}.{name}" for name in RADEON),
    *TPU,
    *IPU,
    *TRN,
    "openmetrics.{endpoint}.{metric}.{n}",
}


WITHOUT_METRIC = (
    "gpu.{i}.pipeTensorHmmaActive",
    "gpu.{i}.memoryOverDrive",
    *(f"tpu.grpcTcpMinRtt.{statistic}Us" for statistic in STATISTICS),
    *(f"tpu.grpcTcpDeliveryRate.{statistic}Mbps" for statistic in STATISTICS),
    "openmetrics.{endpoint}.{metric}.{n}",
)
"""The keys without a metric of this package."""


def test_keys_are_the_known_ones_and_each_has_a_metric() -> None:
    for name, table in keys.tables():
        assert len({key.name for key in table}) == len(table), f"{name} has a key twice"
    known = {key.name: key for _, table in keys.tables() for key in table}
    assert set(known) == KNOWN
    assert {name for name, key in known.items() if not key.metrics} == set(WITHOUT_METRIC)
