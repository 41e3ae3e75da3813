"""nvitop, an independent reader, and our source on the same simulated GPUs: equal values, in NVML's units."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.sources.nvidia_gpus import Exported, SimulatedGpus, simulated_gpus
from tests.support.children import PATIENCE, Piped, command, started
from tests.tools import nvitop
from tests.tools.nvml import MIB, Gpu, Value, a100, geforce, h100, listed, mig, t4, unified, vgpu, wsl

ME = os.getpid()
SOMEBODY = 1

_EVERY = 2.0  # seconds between two readings


class Row(NamedTuple):
    """Our counterpart of a number of nvitop: the metric, its attributes, and NVML's unit in ours."""

    name: str
    attributes: Mapping[str, str] = {}
    unit: float = 1.0


DOMAINS = ("graphics", "sm", "memory", "video")

ROWS: Mapping[str, Row] = {
    **{
        task: Row("hw.gpu.utilization", {"hw_gpu_task": task}, 1e-2)
        for task in ("general", "memory", "encoder", "decoder")
    },
    "used": Row("hw.gpu.memory.usage"),
    "total": Row("hw.gpu.memory.limit"),
    "temperature": Row("hw.temperature", {"hw_sensor_location": "gpu"}),
    "power": Row("hw.power", unit=1e-3),
    "limit": Row("hw.power.limit", {"hw_limit_type": "enforced"}, 1e-3),
    "state": Row("hw.gpu.performance_state"),
    **{f"clock.{domain}": Row("hw.gpu.frequency", {"hw_frequency_domain": domain}, 1e6) for domain in DOMAINS},
    **{f"most.{domain}": Row("hw.gpu.frequency.limit", {"hw_frequency_domain": domain}, 1e6) for domain in DOMAINS},
}

FACTS = {"name": "hw_model", "serial": "hw_serial_number"}


class Nvitop:
    """nvitop in a separate process. It reads the GPUs on request."""

    def __init__(self, child: Piped) -> None:
        self._child = child

    def read(self) -> Any:
        self._child.stdin.write("\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, f"nvitop has ended: {self._child.communicate(timeout=PATIENCE)[1]}"
        return json.loads(line)


@contextmanager
def both(folder: Path, *gpus: Gpu, lines: Mapping[str, Value] | None = None) -> Iterator[tuple[SimulatedGpus, Nvitop]]:
    """A machine with these GPUs, read by us and by nvitop."""
    nvitop()
    with (
        simulated_gpus(folder, *gpus, lines=lines) as machine,
        started(command("machines/nvitop_gpus"), machine.fake.environment) as child,
    ):
        yield machine, Nvitop(child)


def ours(now: Exported, id: str) -> dict[str, Any]:  # noqa: A002
    """Our values of a device, by nvitop's names and in its units."""
    found: dict[str, Any] = {}
    for key, (name, attributes, unit) in ROWS.items():
        for value in now.values(name, hw_id=id, **attributes):
            found[key] = round(value / unit, 6)
    for value in now.values("hw.fan.speed_ratio", hw_id=f"{id}/fan0"):
        found["fan"] = round(value * 100, 6)
    (facts,) = now.of("hw.gpu.info", hw_id=id)
    reported = {key.replace(".", "_"): text for key, text in facts}
    return found | {key: reported[fact] for key, fact in FACTS.items() if fact in reported}


def compare(now: Exported, reported: Any, but: tuple[str, ...] = ()) -> None:
    """Both report the same devices, and the same values of each as far as both have them."""
    infos = [dict(pairs) for pairs in now.of("hw.gpu.info")]
    assert {info["hw.id"] for info in infos} == set(reported["devices"])
    assert {info.get("hw.driver_version") for info in infos} == {reported["driver"]}
    for id, (device, _) in reported["devices"].items():  # noqa: A001
        left_out = (*but, "general") if id.startswith("MIG") else but  # which nvitop does not read of an instance
        theirs = {key: value for key, value in device.items() if key in (*ROWS, *FACTS, "fan") and key not in left_out}
        assert {key: value for key, value in ours(now, id).items() if key not in left_out} == theirs


MACHINES: Mapping[str, Callable[[], tuple[Gpu, ...]]] = {
    "h100": lambda: (h100(0), h100(1)),
    "a100": lambda: (a100(0),),
    "inference": lambda: (t4(0), geforce(1)),
    "wsl": lambda: (wsl(0),),
    "vgpu": lambda: (vgpu(0),),
}

LATER: Mapping[str, Value] = {
    "UtilizationRates": (73, 29),
    "EncoderUtilization": (55, 167_000),
    "DecoderUtilization": (1, 167_000),
    "MemoryInfo": (15_360 * MIB, 449 * MIB, 1 * MIB, 14_910 * MIB),
    "Temperature.0": 83,
    "TemperatureV.0": 83,
    "PowerUsage": 69_999,
    "EnforcedPowerLimit": 65_000,
    "PowerManagementLimit": 65_000,
    "ClockInfo.0": 300,
    "ClockInfo.1": 315,
    "ClockInfo.2": 405,
    "ClockInfo.3": 540,
    "PerformanceState": 8,
    "FanSpeed": 100,
    "FanSpeed.0": 100,
}


@pytest.mark.parametrize("case", MACHINES)
def test_nvitop_reads_the_same_values_before_and_after_a_change(case: str, tmp_path: Path) -> None:
    gpus = MACHINES[case]()
    with both(tmp_path, *gpus) as (machine, theirs):
        compare(machine.tick(0), theirs.read())
        changes = {
            f"gpu{index}.{call}": value
            for index, gpu in enumerate(gpus)
            for call, value in LATER.items()
            if call in gpu and gpu[call] != "!999"
        }
        assert changes
        now = machine.tick(_EVERY, changes)
        compare(now, theirs.read())
        assert set(now.values("hw.gpu.utilization", hw_gpu_task="general")) == (set() if case == "wsl" else {0.73})


def test_nvitop_reads_the_same_values_of_mig_instances(tmp_path: Path) -> None:
    with both(tmp_path, mig(h100(), 0, {0: (1, 0), 2: (3, 0)}), h100(1)) as (machine, theirs):
        # NVML reports no serial number of an instance; we report that of its GPU.
        compare(machine.tick(0), theirs.read(), but=("serial",))
        now = machine.tick(_EVERY, {"gpu0.mig2.MemoryInfo": (9_984 * MIB, 16 * MIB, 0, 9_968 * MIB)})
        reported = theirs.read()
        compare(now, reported, but=("serial",))
        used = [device["used"] for id, (device, _) in reported["devices"].items() if id.startswith("MIG")]  # noqa: A001
        assert used == [1024 * MIB, 9_968 * MIB]


def test_nvitop_agrees_on_unified_memory_gpu_but_for_its_memory(tmp_path: Path) -> None:
    with both(tmp_path, unified()) as (machine, theirs):
        now, reported = machine.tick(0), theirs.read()
        compare(now, reported, but=("used", "total", "memory"))  # it leaves out two, and we one that is always 0


def test_nvitop_reads_the_same_nvlink_throughput(tmp_path: Path) -> None:
    with both(tmp_path, h100(), a100(1)) as (machine, theirs):
        theirs.read()
        before, now = machine.tick(0), machine.tick(10)
        for id, (device, _) in theirs.read()["devices"].items():  # noqa: A001
            for way in ("transmit", "receive"):
                link = {"hw_id": id, "hw_gpu_link_type": "nvlink", "network_io_direction": way}
                gained = now.one("hw.gpu.io", **link) - before.one("hw.gpu.io", **link)
                assert gained / 10 == device[way] * 1024


def test_nvitop_reads_the_same_process_memory_and_utilization(tmp_path: Path) -> None:
    def share(second: int, *percents: int) -> str:
        # nvitop reads the last second of the real clock, we read what is newer than the newest known sample.
        return listed((ME, int(1e6 * (time.time() + 3600 + second)), *percents))

    lists = {
        "gpu0.ComputeRunningProcesses": listed((ME, 700 * MIB), (SOMEBODY, 9 * MIB)),
        "gpu0.ProcessUtilization": share(0, 10, 20, 30, 40),
    }
    with both(tmp_path, t4(0), geforce(1), lines=lists) as (machine, theirs):
        machine.tick(0)
        changes = {
            "gpu0.ComputeRunningProcesses": listed((ME, 750 * MIB), (SOMEBODY, 9 * MIB)),
            "gpu0.ProcessUtilization": share(1, 33, 7, 0, 0),
        }
        now = machine.tick(_EVERY, changes)
        (device, processes), (_, none) = theirs.read()["devices"].values()
        mine = processes[str(ME)]
        assert not none
        assert now.values("process.gpu.memory.usage") == [mine["used"]] == [750 * MIB]
        for task in ("sm", "memory"):
            assert round(100 * now.one("process.gpu.utilization", hw_gpu_task=task), 6) == mine[task]
        assert device["used"] == t4()["MemoryInfo"][3]  # type: ignore[index]
