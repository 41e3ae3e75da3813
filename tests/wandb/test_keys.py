"""W&B's keys of points that a test makes up, and of a real command; `test_captures.py` has those of whole machines."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import psutil
import pytest
from tests.support.children import run
from tests.support.wandb import keys, watched
from tests.tools.nvml import MIB, FakeNvml, Gpu, h100, listed, moving, refused

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware import cli, wandb
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources import discover

GIB = 2**30

CPUS = psutil.cpu_count() or 1

# -- the host


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


def test_snapshot_prints_every_host_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ["/", str(tmp_path)]
    expected = {"_timestamp", "_runtime", "cpu", *(f"cpu.{number}.cpu_percent" for number in range(CPUS))}
    expected |= {"memory", "memory_percent", "network.sent", "network.recv", "disk.in", "disk.out", "proc.cpu.threads"}
    expected |= {f"proc.memory.{name}" for name in ("availableMB", "rssMB", "percent")}
    expected |= {f"disk.{path}.{name}" for path in paths for name in ("usagePercent", "usageGB")}
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


# -- GPUs


@pytest.mark.whole
def test_command_prints_the_keys_of_a_gpu_that_the_process_uses(
    tmp_path: Path,
) -> None:
    """Also the metrics that no capture has, which only these keys need."""
    more: Gpu = {"MemoryErrorCounter.0.0.2": 6, "MemoryErrorCounter.1.0.2": 3, "GpmCounter.7": moving(0, 33)}
    driver = FakeNvml(tmp_path, {**h100(), **more, "ComputeRunningProcesses": listed((os.getpid(), 5 * MIB))})
    row = printed_with(driver)
    found = {name.removeprefix("gpu.0."): value for name, value in row.items() if name.startswith("gpu.0.")}
    assert {f"gpu.{{i}}.{name}" for name in found} == {
        key.name for key in wandb.NVIDIA if "process" not in key.name and "fanSpeed" not in key.name
    }
    errors = {"correctedMemoryErrors": 6, "uncorrectedMemoryErrors": 3, "unCorrectedMemoryErrors": 3}
    assert errors.items() <= found.items()
    assert found["pipeTensorHmmaActive"] == pytest.approx(33, rel=1e-3)
    twins = {name.removeprefix("gpu.process.0."): row[name] for name in row if name.startswith("gpu.process.0.")}
    assert len(twins) == 8
    assert twins.items() <= found.items(), "the whole GPU's, once more"


def printed_with(driver: FakeNvml, *arguments: str, err: str = "") -> dict[str, float]:
    """The row that a real command prints on that machine."""
    line = ["otel-hardware", "snapshot", "--format", "wandb", "--window", "0.1", "--pid", str(os.getpid()), *arguments]
    answer = run(line, driver.environment)
    assert (answer.returncode, answer.stderr) == (0, err)
    row: dict[str, float] = json.loads(answer.stdout)
    return row


@pytest.mark.whole
def test_unusable_driver_is_one_message(tmp_path: Path) -> None:
    driver = FakeNvml(tmp_path, h100(0))
    driver.set_lines({"Init": refused(18)})
    message = (
        "otel-hardware: nvidia: NVML: RM has detected an NVML/RM version mismatch; nvidia-smi is switched off; the "
        "driver was exchanged while it ran: restart the machine, or recreate the container\n"
    )
    row = printed_with(driver, "--nvidia-smi", "off", err=message)
    assert "proc.memory.rssMB" in row, "the host's keys do not depend on the GPUs"
    assert not [name for name in row if name.startswith("gpu.")]


def test_gpu_of_which_the_process_uses_a_part_is_repeated() -> None:
    whole, part = ({c.HW_ID: name, c.HW_NAME: name, c.HW_VENDOR: "NVIDIA"} for name in ("GPU-1", "MIG-1"))
    row = keys(
        c.HW_GPU_INFO(1, {**whole, c.GPU_INDEX: 0}),
        c.HW_GPU_INFO(1, {**part, c.GPU_INDEX: 0, c.GPU_TYPE: "partition", c.HW_PARENT: "GPU-1"}),
        c.HW_POWER(90.0, {c.HW_ID: "GPU-1", c.HW_TYPE: "gpu"}),
        used={"MIG-1"},
    )
    assert row == {"gpu.0.powerWatts": 90.0, "gpu.process.0.powerWatts": 90.0}


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
