"""W&B's keys have W&B's values: each lies between what psutil says just before and just after, on a busy machine."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import psutil
import pytest
from tests.children import PATIENCE, run, started
from tests.tools import fake_nvml, need
from tests.tools.nvml import (
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
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import wandb
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.machine import Machine, machine
from opentelemetry.instrumentation.hardware.portable import PortableMachine
from opentelemetry.instrumentation.hardware.sources.nvidia.nvml import is_here
from opentelemetry.instrumentation.hardware.vocabulary import CATALOG

MIB, GIB = 2**20, 2**30
TICK = 0.01
"""Seconds: what psutil and the kernel's files count CPU time in."""

HOST = (
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

TWINS = (
    "gpu",
    "memory",
    "memoryAllocated",
    "memoryAllocatedBytes",
    "temp",
    "powerWatts",
    "powerPercent",
    "enforcedPowerLimitWatts",
)
"""What W&B says of a GPU and, of one that the process uses, again as ``gpu.process``; all documented but the last."""

CARD = (
    *TWINS,
    "smClock",
    "memoryClock",
    "graphicsClock",
    "correctedMemoryErrors",
    "unCorrectedMemoryErrors",
    "encoderUtilization",
)
"""What W&B's pages list about NVIDIA's GPUs, and one that they do not."""

EMITTED = (
    "uncorrectedMemoryErrors",
    "fanSpeed",
    "smActive",
    "smOccupancy",
    "pipeTensorActive",
    "pipeTensorHmmaActive",
    "dramActive",
    "pipeFp64Active",
    "pipeFp32Active",
    "pipeFp16Active",
    "pcieTxBytes",
    "pcieRxBytes",
    "nvlinkTxBytes",
    "nvlinkRxBytes",
)
"""What W&B's program says of NVIDIA's GPUs, and its pages do not."""

RADEON = ("memoryReadWriteActivity", "memoryOverDrive")
"""What W&B's program says of AMD's GPUs beside what it says of NVIDIA's."""

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
    *("tpu.hloQueueSize.{core}", "tpu.hloExecTiming.{core}.{stat}Us"),
    *(
        f"tpu.{name}.{{label}}.{{stat}}Us"
        for name in (
            *("bufferTransferLatency", "inboundBufferTransferLatency", "hostToDeviceTransferLatency"),
            *("deviceToHostTransferLatency", "collectiveE2ELatency", "hostComputeLatency"),
        )
    ),
    *("tpu.grpcTcpMinRtt.{stat}Us", "tpu.grpcTcpDeliveryRate.{stat}Mbps"),
)

IPU = (
    *("ipu.{i}.average board temp (C)", "ipu.{i}.average die temp (C)", "ipu.{i}.clock (MHz)", "ipu.{i}.ipu power (W)"),
    *("ipu.{i}.ipu utilisation (%)", "ipu.{i}.ipu utilisation (session) (%)", "ipu.{i}.speed (GT/s)"),
)

TRN = (
    *("trn.{i}.neuroncore_utilization", "trn.host_total_memory_usage", "trn.neuron_device_total_memory_usage"),
    *("trn.host_total_memory_usage.{category}", "trn.host_memory_usage.{category}"),
    "trn.{i}.neuroncore_memory_usage.{category}",
)

KNOWN = {
    *IPU,
    *TRN,
    "openmetrics.{endpoint}.{metric}.{n}",
    *TPU,
    *HOST,
    *(f"gpu.{{i}}.{name}" for name in RADEON),
    *(f"gpu.{{i}}.{name}" for name in CARD + EMITTED),
    *(f"gpu.process.{{i}}.{name}" for name in TWINS),
}


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
    assert between(second.before.threads, row["proc.cpu.threads"], second.after.threads)
    assert row["proc.cpu.threads"] >= 4


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
    line = ["otel-hardware", "snapshot", "--format", "wandb", "--window", "0.1", "--sources=-nvidia"]
    answer = run([*line, "--disk-paths", ",".join(paths)])
    assert answer.returncode == 0, answer.stderr
    expected = {"_timestamp", "_runtime"}
    for key in HOST:
        numbers = range(psutil.cpu_count()) if "{i}" in key else [0]
        expected |= {key.format(i=number, path=path) for number in numbers for path in paths}
    if psutil.disk_io_counters() is None:
        expected -= {"disk.in", "disk.out"}
    row = json.loads(answer.stdout)
    assert set(row) == expected
    assert all(isinstance(value, (int, float)) for value in row.values())


def test_the_keys_and_the_vocabulary_name_each_other() -> None:
    keys = [key.key for key in wandb.KEYS]
    assert set(keys) == KNOWN
    assert len(keys) == len(KNOWN)
    named = {key.strip() for row in CATALOG for key in row.wandb.split(",") if key.strip()}
    assert {key for key in named if not key.startswith(("tpu", "trn", "ipu", "openmetrics"))} <= KNOWN
    for key in wandb.KEYS:
        alone = key.key in ("gpu.{i}.pipeTensorHmmaActive", "gpu.{i}.memoryOverDrive") or "grpcTcp" in key.key
        assert key.rows or alone or key.key.startswith("openmetrics."), f"no row of ours answers to {key.key}"


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


# -- NVIDIA's GPUs: what the simulated driver was told is what W&B would say


def card(gpu: Mapping[str, Value], **more: Value) -> dict[str, Value]:
    """A GPU with errors of its own memory, which W&B counts apart from the others."""
    return {**gpu, "MemoryErrorCounter.0.0.2": 6, "MemoryErrorCounter.1.0.2": 3, **more}


def rows(machine: FakeNvml, *arguments: str, window: str = "0.2", env: Mapping[str, str] | None = None) -> Answer:
    """What a real ``otel-hardware`` prints on that machine about the GPUs, and on stderr."""
    line = ["otel-hardware", "snapshot", "--format", "wandb", "--window", window, *arguments]
    answer = run(line, {**machine.environment, **(env or {})})
    assert answer.returncode == 0, answer.stderr
    return Answer([of_gpus(line) for line in answer.stdout.splitlines()], answer.stderr)


def of_gpus(line: str) -> dict[str, float]:
    row = json.loads(line)
    assert "proc.memory.rssMB" in row, "whatever the GPUs do, the host's keys are there"
    return {key: value for key, value in row.items() if key.startswith("gpu.")}


class Answer(NamedTuple):
    rows: list[dict[str, float]]
    stderr: str


@pytest.fixture
def machine_of(tmp_path: Path) -> Callable[..., FakeNvml]:
    need(fake_nvml)
    return lambda *gpus, **options: FakeNvml(tmp_path, *gpus, **options)


HOPPER = {
    "gpu": 88,
    "memory": 53,
    "memoryAllocated": 50_000 / 81_559 * 100,
    "memoryAllocatedBytes": 50_000 * MIB,
    "temp": 61,
    "powerWatts": 512.6,
    "enforcedPowerLimitWatts": 700,
    "powerPercent": 512.6 / 700 * 100,
    "smClock": 1980,
    "memoryClock": 2619,
    "graphicsClock": 1980,
    "correctedMemoryErrors": 6,
    "unCorrectedMemoryErrors": 3,
    "uncorrectedMemoryErrors": 3,
    "encoderUtilization": 3,
    "smActive": 76,
    "smOccupancy": 41,
    "pipeTensorActive": 62,
    "pipeTensorHmmaActive": 33,
    "dramActive": 53,
    "pipeFp64Active": 4,
    "pipeFp32Active": 12,
    "pipeFp16Active": 2,
    "pcieTxBytes": 95,
    "pcieRxBytes": 286,
    "nvlinkTxBytes": 1_800,
    "nvlinkRxBytes": 900,
}
"""What W&B's formulas make of what :func:`hopper` says: percent, MHz, watts, bytes; links in MiB a second."""

CONSUMER = {
    "gpu": 97,
    "memory": 44,
    "memoryAllocated": 10_000 / 24_564 * 100,
    "memoryAllocatedBytes": 10_000 * MIB,
    "temp": 64,
    "powerWatts": 287.45,
    "enforcedPowerLimitWatts": 450,
    "powerPercent": 287.45 / 450 * 100,
    "smClock": 2520,
    "memoryClock": 10_501,
    "graphicsClock": 2520,
    "encoderUtilization": 3,
    "fanSpeed": 45,
}
"""The same of a card that counts no errors and has a fan."""


def hopper(**more: Value) -> dict[str, Value]:
    gpm: Mapping[str, Value] = {
        "GpmCounter.7": moving(0, 33),
        "GpmCounter.61": moving(0, 1_800),
        "GpmCounter.60": moving(0, 900),
    }
    return card(h100(0), **gpm, **more)


def numbers(index: int, expected: Mapping[str, float], prefix: str = "gpu") -> dict[str, float]:
    return {f"{prefix}.{index}.{name}": value for name, value in expected.items()}


def test_gpus_have_wandbs_numbers_by_nvmls_index(machine_of: Callable[..., FakeNvml]) -> None:
    machine = machine_of(hopper(), geforce(1))
    answer = rows(machine)
    assert answer.stderr == ""
    (row,) = answer.rows
    assert row == pytest.approx({**numbers(0, HOPPER), **numbers(1, CONSUMER)}, rel=1e-3)
    assert {name for index in (0, 1) for name in of(row, index)} == {*CARD, *EMITTED}, "every key is tried"
    assert machine.calls()["Init"] == machine.calls()["Shutdown"] > 0
    assert machine.calls()["GpmSampleAlloc"] == machine.calls()["GpmSampleFree"] > 0


def of(row: Mapping[str, float], index: int) -> dict[str, float]:
    return {key.removeprefix(f"gpu.{index}."): row[key] for key in row if key.startswith(f"gpu.{index}.")}


def test_a_gpu_that_the_process_uses_is_said_again_as_the_whole(machine_of: Callable[..., FakeNvml]) -> None:
    ours, foreign = listed((os.getpid(), 5 * MIB)), listed((1, 7 * MIB))
    machine = machine_of(
        card(a100(0), ComputeRunningProcesses=foreign), card(h100(1), ComputeRunningProcesses=ours), geforce(2)
    )
    (row,) = rows(machine, "--pid", str(os.getpid())).rows
    twins = {key: value for key, value in row.items() if key.startswith("gpu.process.")}
    assert set(twins) == {f"gpu.process.1.{name}" for name in TWINS}
    assert twins == numbers(1, {name: row[f"gpu.1.{name}"] for name in TWINS}, "gpu.process")
    assert twins["gpu.process.1.memoryAllocatedBytes"] == 50_000 * MIB


def test_a_child_of_the_process_counts_as_the_process(machine_of: Callable[..., FakeNvml]) -> None:
    with started([sys.executable, "-c", "import sys; sys.stdin.read()"]) as child:
        machine = machine_of(card(h100(0), GraphicsRunningProcesses=listed((child.pid, 5 * MIB))))
        (row,) = rows(machine, "--pid", str(os.getpid())).rows
    assert row["gpu.process.0.powerWatts"] == 512.6


@pytest.mark.parametrize(
    ("gpu", "absent"),
    [
        (card(t4()), {"fanSpeed"}),
        (vgpu(), {*CARD[4:13], "fanSpeed", "uncorrectedMemoryErrors"}),
        (
            {**geforce(), "EnforcedPowerLimit": 0},
            {"powerPercent", "correctedMemoryErrors", "unCorrectedMemoryErrors", "uncorrectedMemoryErrors"},
        ),
        (
            card({**h100(), "GpmQueryDeviceSupport": 0}, **{"Temperature.0": NOT_AVAILABLE, "PowerUsage": refused(4)}),
            {"temp", "powerWatts", "powerPercent", "fanSpeed"},
        ),
    ],
    ids=["t4", "vgpu", "no limit", "no permission"],
)
def test_what_is_refused_is_absent(
    machine_of: Callable[..., FakeNvml], gpu: Mapping[str, Value], absent: set[str]
) -> None:
    (row,) = rows(machine_of(gpu)).rows
    assert set(of(row, 0)) == {*CARD, *EMITTED[:2]} - absent


def test_an_older_driver_counts_its_own_memory_as_used(machine_of: Callable[..., FakeNvml]) -> None:
    (row,) = rows(machine_of(card(a100(0)), without=("nvmlDeviceGetMemoryInfo_v2",))).rows
    assert row["gpu.0.memoryAllocatedBytes"] == (40_000 + 693) * MIB
    assert row["gpu.0.memoryAllocated"] == pytest.approx((40_000 + 693) / 81_920 * 100, rel=1e-3)


def test_instances_have_no_keys_and_their_users_use_the_whole(machine_of: Callable[..., FakeNvml]) -> None:
    divided = mig(card(a100(0)), 0, {0: (7, 0), 3: (9, 0)})
    machine = machine_of({**divided, "mig3.ComputeRunningProcesses": listed((os.getpid(), 5 * MIB))})
    (row,) = rows(machine, "--pid", str(os.getpid())).rows
    utilization = {"gpu", "memory", "encoderUtilization"}
    volatile = {"correctedMemoryErrors", "unCorrectedMemoryErrors"}
    assert set(of(row, 0)) == set(CARD) - utilization - volatile, "neither is said of a GPU in instances"
    assert row["gpu.0.memoryAllocatedBytes"] == row["gpu.process.0.memoryAllocatedBytes"] == 40_000 * MIB
    assert {key.split(".")[1] for key in row} == {"0", "process"}


@contextmanager
def series(machine: FakeNvml) -> Iterator[Callable[[], dict[str, float]]]:
    """A series of rows, of which the next one can be had."""
    line = ["otel-hardware", "snapshot", "--format", "wandb", "--every", "0.2", "--window", "0.2"]
    with started(line, machine.environment) as child:
        assert child.stdout is not None
        stdout = child.stdout
        yield lambda: of_gpus(stdout.readline())
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE)
        assert child.returncode == 0, err


def test_gpm_is_about_the_time_since_the_row_before(machine_of: Callable[..., FakeNvml]) -> None:
    machine = machine_of(hopper())
    with series(machine) as following:
        assert following()["gpu.0.smActive"] == pytest.approx(76, rel=1e-3)
        machine.say({"gpu0.GpmCounter.2": moving(0, 10)})
        wait_for(
            lambda: following().get("gpu.0.smActive") == pytest.approx(10, rel=1e-3), PATIENCE, "window of its own"
        )


@pytest.mark.parametrize(
    "ill", [{"gpu0": refused(15)}, {"gpu0.UtilizationRates": refused(18)}], ids=["lost", "driver reloaded"]
)
def test_a_gpu_that_comes_back_is_read_again(machine_of: Callable[..., FakeNvml], ill: dict[str, str]) -> None:
    machine = machine_of(hopper())
    with series(machine) as following:
        assert "gpu.0.memoryAllocatedBytes" in following()
        machine.say(ill)
        wait_for(lambda: following() == {}, PATIENCE, "row without the GPU")
        machine.say(dict.fromkeys(ill) | {"gpu0.UtilizationRates": (88, 53)})
        wait_for(lambda: following().get("gpu.0.gpu") == 88, PATIENCE, "row with the GPU again")


def test_a_gpu_that_never_answered_costs_its_own_keys(machine_of: Callable[..., FakeNvml]) -> None:
    machine = machine_of(h100(0), geforce(1))
    machine.say({"gpu0": refused(15)})
    (row,) = rows(machine).rows
    assert row == pytest.approx(numbers(1, CONSUMER), rel=1e-5)


def test_only_the_wanted_devices_are_said(machine_of: Callable[..., FakeNvml]) -> None:
    answer = rows(machine_of(hopper(), geforce(1)), "--devices", "1")
    assert answer == Answer([pytest.approx(numbers(1, CONSUMER), rel=1e-5)], "")


def test_a_driver_that_hangs_costs_its_own_keys_until_it_answers(machine_of: Callable[..., FakeNvml]) -> None:
    machine = machine_of(hopper(UtilizationRates=HANG))
    with series(machine) as following:
        assert following() == following() == {}
        machine.say({"gpu0.UtilizationRates": (88, 53)})
        wait_for(lambda: following().get("gpu.0.gpu") == 88, PATIENCE, "row with the GPU")
        machine.say({"gpu0.UtilizationRates": HANG})


def test_a_driver_that_cannot_be_used_is_one_sentence(machine_of: Callable[..., FakeNvml]) -> None:
    machine = machine_of(h100(0))
    machine.say({"Init": refused(18)})
    answer = rows(machine, "--nvidia-smi", "off", "--every", "0.1", "--count", "2", window="0.1")
    assert answer.rows == [{}, {}]
    assert answer.stderr.splitlines() == [
        "otel-hardware: there are no gpu. keys: NVML: RM has detected an NVML/RM version mismatch."
    ]


def test_a_driver_that_is_not_wanted_is_left_alone(machine_of: Callable[..., FakeNvml]) -> None:
    machine = machine_of(h100(0))
    assert rows(machine, "--sources=-nvidia") == Answer([{}], "")
    assert not machine.calls()


@pytest.mark.skipif(is_here(os.path.exists), reason="this machine has an NVIDIA driver")
def test_nothing_is_loaded_where_nothing_says_that_there_is_a_driver(machine_of: Callable[..., FakeNvml]) -> None:
    machine = machine_of(h100(0))
    found = {name: value for name, value in machine.environment.items() if not name.startswith("OTEL_")}
    program = (
        "import sys; from opentelemetry.instrumentation.hardware.cli import main\n"
        "status = main(['snapshot', '--format', 'wandb', '--window', '0.1'])\n"
        "maps = open('/proc/self/maps').read() if sys.platform == 'linux' else ''\n"
        "print(status, 'pynvml' in sys.modules, 'libnvidia-ml' in maps)"
    )
    answer = run([sys.executable, "-c", program], found)
    assert (answer.stdout.splitlines()[-1], answer.stderr) == ("0 False False", "")
    assert of_gpus(answer.stdout.splitlines()[0]) == {}
    assert not machine.calls()


def by_tool(folder: Path, document: str, pid: int) -> dict[str, float]:
    """The same row, of a machine without the library, and with a tool that prints one of our documents.

    Process 9100 of the document is the observed one.
    """
    said = Path(__file__).parent / "sources" / "nvidia" / "smi" / f"{document}.xml"
    (folder / "said.xml").write_text(said.read_text().replace("<pid>9100</pid>", f"<pid>{pid}</pid>"))
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat {shlex.quote(str(folder / 'said.xml'))}\n")
    tool.chmod(0o755)
    line = ["otel-hardware", "snapshot", "--format", "wandb", "--window", "0.1", "--nvml", "off"]
    answer = run([*line, "--nvidia-smi", str(tool), "--pid", str(pid)])
    assert (answer.returncode, answer.stderr) == (0, "")
    return of_gpus(answer.stdout)


def test_nvidia_smi_says_what_it_knows_where_the_library_cannot_be_used(tmp_path: Path) -> None:
    said = {
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
    }
    assert by_tool(tmp_path, "v13-h200", os.getpid()) == pytest.approx(numbers(0, said), rel=1e-5)


def test_instances_that_nvidia_smi_shows_have_no_keys_either(tmp_path: Path) -> None:
    row = by_tool(tmp_path, "v11-a100-mig", os.getpid())
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


def test_nvidia_smi_knows_the_fan(tmp_path: Path) -> None:
    assert by_tool(tmp_path, "v12-rtx3090", os.getpid())["gpu.0.fanSpeed"] == 30
