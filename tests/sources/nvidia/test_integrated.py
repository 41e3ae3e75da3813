"""GPUs that share the memory of the host: GB10, Thor and Orin, and the kernel's files of a Jetson."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from errno import EAGAIN
from pathlib import Path

import pytest
from tests.sources.nvidia_gpus import MEMORY, Exported, OnHost, simulated_gpus
from tests.sources.playing import playing
from tests.tools.nvml import MIB, NOT_AVAILABLE, Gpu, listed, orin, refused, thor, unified

Files = Mapping[str, str | bytes | OSError]

# -- Memory


@pytest.mark.parametrize("make", [unified, thor])
def test_used_memory_is_the_sum_of_the_processes_and_the_limit_is_that_of_the_host(
    tmp_path: Path, make: Callable[[], Gpu]
) -> None:
    lists = {
        "gpu0.ComputeRunningProcesses": listed((11, 9_000 * MIB), (12, 500 * MIB)),
        "gpu0.GraphicsRunningProcesses": listed((12, 700 * MIB), (13, 300 * MIB)),
    }
    with simulated_gpus(tmp_path, make(), lines=lists) as machine:
        now = machine.tick(0)
        assert now.one("hw.gpu.memory.usage") == 10_000 * MIB, "a process in both lists is one"
        assert now.one("hw.gpu.memory.peak") == 10_000 * MIB
        assert now.one("hw.gpu.memory.limit") == MEMORY
        assert now.one("hw.gpu.memory.utilization") == pytest.approx(10_000 * MIB / MEMORY)
        assert now.of("hw.gpu.info", hw_gpu_type="integrated", hw_model=str(make()["Name"]))
        assert not machine.unsupported("hw.gpu.memory")
        assert machine.tick(2, dict.fromkeys(lists, "")).one("hw.gpu.memory.usage") == 0


def test_memory_is_unknown_if_that_of_one_process_is(tmp_path: Path) -> None:
    lists = {"gpu0.ComputeRunningProcesses": listed((11, 9_000 * MIB), (12, NOT_AVAILABLE))}
    with simulated_gpus(tmp_path, unified(), lines=lists) as machine:
        now = machine.tick(0)
        assert now.of("hw.gpu.memory.usage") == {}
        assert now.one("hw.gpu.memory.limit") == MEMORY
        assert machine.unsupported("hw.gpu.memory.usage: the driver has no value")
        now = machine.tick(10, {"gpu0.ComputeRunningProcesses": listed((11, 9_000 * MIB))})
        assert now.one("hw.gpu.memory.usage") == 9_000 * MIB
        assert not machine.unsupported("hw.gpu.memory")


def test_memory_is_unknown_if_processes_have_no_pid(tmp_path: Path) -> None:
    """NVML of an Orin answers with empty entries (nv-monitor, pull request 17)."""
    lists = dict.fromkeys(("gpu0.ComputeRunningProcesses", "gpu0.GraphicsRunningProcesses"), listed((0, 0), (0, 0)))
    with simulated_gpus(tmp_path, orin(), lines=lists) as machine:
        now = machine.tick(0)
        assert now.of("hw.gpu.memory.usage") == {}
        assert now.one("hw.gpu.memory.limit") == MEMORY


@pytest.mark.parametrize("call", ["ComputeRunningProcesses", "GraphicsRunningProcesses"])
def test_memory_is_missing_while_a_process_list_fails(tmp_path: Path, call: str) -> None:
    with simulated_gpus(tmp_path, unified(), lines={f"gpu0.{call}": refused(10)}) as machine:
        assert machine.tick(0).of("hw.gpu.memory.usage") == {}
        assert machine.unsupported("hw.gpu.memory.usage")[0].endswith("Timeout")
        machine.fake.set_lines({f"gpu0.{call}": listed((11, 5 * MIB))})
        now = machine.ticks(4, 10)
        assert now.one("hw.gpu.memory.usage") == 5 * MIB


def test_memory_that_is_never_busy_is_absent(tmp_path: Path) -> None:
    """GB10 reports 0 % of it also under load, of the GPU and of each process."""
    share = (os.getpid(), 1_000_000, 90, 0, 3, 4)
    lines = {
        "gpu0.UtilizationRates": (96, 0),
        "gpu0.ComputeRunningProcesses": listed((os.getpid(), 9_000 * MIB)),
        "gpu0.ProcessUtilization": listed(share),
    }
    with simulated_gpus(tmp_path, unified(), lines=lines) as machine:
        machine.tick(0)
        now = machine.tick(10, {"gpu0.ProcessUtilization": listed((share[0], 2_000_000, *share[2:]))})
        assert now.of("hw.gpu.utilization", hw_gpu_task="memory") == {}
        assert now.one("hw.gpu.utilization", hw_gpu_task="general") == 0.96
        assert now.values("process.gpu.utilization") == [0.03, 0.04, 0.9]
        assert machine.unsupported("hw.gpu.utilization (memory): an integrated GPU has no memory of its own")


# -- The kernel's files of a Jetson

THERMAL = "/sys/class/thermal/thermal_zone"


def thermal(*zones: tuple[str, str | OSError]) -> dict[str, str | bytes | OSError]:
    found: dict[str, str | bytes | OSError] = {}
    for number, (name, celsius) in enumerate(zones):
        found |= {f"{THERMAL}{number}/type": f"{name}\n", f"{THERMAL}{number}/temp": celsius}
    return found


def devfreq(name: str, load: str = "774\n") -> dict[str, str | bytes | OSError]:
    folder = f"/sys/class/devfreq/{name}"
    return {
        f"{folder}/cur_freq": "306000000\n",
        f"{folder}/min_freq": "114750000\n",
        f"{folder}/max_freq": "918000000\n",
        f"{folder}/device/load": load,
        "/sys/class/devfreq/15340000.vic/cur_freq": "115200000\n",
        "/sys/class/devfreq/15340000.vic/device/load": "3\n",
    }


JETPACK_6: Files = {
    "/sys/module/nvgpu/initstate": "live\n",
    "/sys/firmware/devicetree/base/model": "NVIDIA Jetson Orin NX Engineering Reference Developer Kit\0",
    "/sys/devices/platform/gpu.0/load": "774\n",
    **devfreq("17000000.gpu"),
    **thermal(
        ("cpu-thermal", "53968\n"),
        ("gpu-thermal", "51312\n"),
        ("cv0-thermal", OSError(EAGAIN, "Resource temporarily unavailable")),
        ("soc0-thermal", "54812\n"),
    ),
}
JETPACK_5: Files = {
    "/sys/module/nvgpu/initstate": "live\n",
    **devfreq("17000000.ga10b"),
    **thermal(("CPU-therm", "46500\n"), ("GPU-therm", "51312\n"), ("SOC0-therm", "44062\n")),
}
NANO: Files = {
    "/sys/devices/gpu.0/load": "774\n",
    **devfreq("57000000.gpu"),
    **thermal(("AO-therm", "40000\n"), ("CPU-therm", "35500\n"), ("GPU-therm", "51312\n")),
}
IDS = {"JetPack 6": "17000000.gpu", "JetPack 5": "17000000.ga10b", "Nano": "57000000.gpu"}

# Names and formats as on these devices: NVIDIA's developer guides, jetson_stats (jtop/core/gpu.py, temperature.py), and
# a tree that was recorded for glances (tests-data/plugins/gpu/tegra).
TREES = {"JetPack 6": JETPACK_6, "JetPack 5": JETPACK_5, "Nano": NANO}


def values(now: Exported) -> dict[str, float]:
    return {
        "utilization": now.one("hw.gpu.utilization", hw_gpu_task="general"),
        "clock": now.one("hw.gpu.frequency", hw_frequency_domain="graphics"),
        "limit": now.one("hw.gpu.frequency.limit", hw_frequency_domain="graphics"),
        "celsius": now.one("hw.temperature", hw_sensor_location="gpu"),
    }


VALUES = {"utilization": 0.774, "clock": 306e6, "limit": 918e6, "celsius": 51.312}


@pytest.mark.parametrize("name", TREES)
def test_jetson_with_nvml_has_utilization_clock_and_temperature_from_the_kernel(tmp_path: Path, name: str) -> None:
    with simulated_gpus(tmp_path, orin(), files=TREES[name]) as machine:
        now = machine.tick(0)
        assert values(now) == VALUES
        (info,) = now.of("hw.gpu.info")
        assert dict(info)["hw.model"] == "Orin (nvgpu)"
        assert now.of("hw.gpu.memory.usage") == {}
        for metric in ("hw.temperature (gpu)", "frequency (graphics", "frequency.limit (graphics", "(general"):
            assert not machine.unsupported(metric), metric
        assert machine.unsupported("hw.power")
        machine.tick(2)
        assert machine.tick(2).one("hw.gpu.time", hw_gpu_task="general") == pytest.approx(4 * 0.774)
        assert machine.up()


def test_jetson_files_that_appear_after_nvml_are_read(tmp_path: Path) -> None:
    """At the start of an Orin, NVML may respond before the kernel's files exist (jetson_stats, pull request 889)."""
    tree: dict[str, str | bytes | OSError] = {"/sys/module/nvgpu/initstate": "live\n"}
    with simulated_gpus(tmp_path, orin(), files=tree) as machine:
        assert machine.tick(0).of("hw.gpu.utilization") == {}
        tree.update(JETPACK_6)
        assert values(machine.tick(2)) == VALUES
        assert machine.up()


@pytest.mark.parametrize("name", TREES)
def test_jetson_without_nvml_is_read_from_the_kernel_alone(name: str) -> None:
    settings = {"sources": ["nvidia"], "nvml": "off", "nvidia_smi": "off"}
    with playing(lambda source: OnHost(TREES[name]), settings) as stage:
        stage.read()
        now = Exported(stage.points())
        assert values(now) == VALUES
        assert now.one("hw.status", hw_state="ok") == 1
        (info,) = now.of("hw.gpu.info")
        assert dict(info)["hw.id"] == IDS[name]
        assert dict(info)["hw.gpu.type"] == "integrated"
        remarks = " ".join(stage.remarks())
        assert "NVML is switched off; nvidia-smi is switched off; nvgpu is used instead" in remarks
        assert "hw.power" in remarks


@pytest.mark.parametrize("error", [OSError(EAGAIN, "Resource temporarily unavailable"), "-40000\n", "\n"])
def test_jetson_sensor_that_cannot_be_read_is_absent(tmp_path: Path, error: str | OSError) -> None:
    tree = {**JETPACK_6, f"{THERMAL}1/temp": error}
    with simulated_gpus(tmp_path, orin(), files=tree) as machine:
        now = machine.tick(0)
        assert now.of("hw.temperature") == {}
        assert now.one("hw.gpu.utilization", hw_gpu_task="general") == 0.774
        assert machine.unsupported("hw.temperature (gpu)")
        assert machine.up()


def test_jetson_whose_files_fail_is_failed(tmp_path: Path) -> None:
    folder = "/sys/class/devfreq/17000000.gpu"
    broken = {path: OSError(EAGAIN, "?") for path in JETPACK_6 if path.startswith((folder, f"{THERMAL}1/temp"))}
    settings = {"sources": ["nvidia"], "nvml": "off", "nvidia_smi": "off"}
    with playing(lambda source: OnHost({**JETPACK_6, **broken}), settings) as stage:
        stage.read()
        now = Exported(stage.points())
        assert now.one("hw.status", hw_state="failed") == 1
        assert any(f"GPU 0 does not respond: {folder}/device/load cannot be read" in text for text in stage.remarks())


def test_other_machines_have_no_files_of_a_jetson(tmp_path: Path) -> None:
    """GB10 is integrated, too. A devfreq device of another maker is not taken for NVIDIA's."""
    tree = {"/sys/class/devfreq/fde60000.gpu-panthor/cur_freq": "1\n", **thermal(("gpu-thermal", "99000\n"))}
    with simulated_gpus(tmp_path, unified(), files=tree) as machine:
        assert machine.tick(0).one("hw.temperature", hw_sensor_location="gpu") == 48
    settings = {"sources": ["nvidia"], "nvml": "off", "nvidia_smi": "off"}
    with playing(lambda source: OnHost(tree), settings) as stage:
        assert not any(line.startswith("hw.") for line in stage.tick())


THOR: Files = {
    "/sys/module/nvidia/initstate": "live\n",
    "/sys/firmware/devicetree/base/model": "NVIDIA Jetson AGX Thor Developer Kit\0",
    "/sys/class/devfreq/gpu-gpc-0/cur_freq": "972000000\n",
    "/sys/class/devfreq/gpu-gpc-0/max_freq": "1575000000\n",
    "/sys/class/devfreq/gpu-nvd-0/cur_freq": "1008000000\n",
    **thermal(("tj-thermal", "46906\n"), ("gpu-thermal", "44312\n"), ("soc012-thermal", "46906\n")),
}


def test_thor_has_clock_and_temperature_from_the_kernel(tmp_path: Path) -> None:
    """NVML of JetPack 7.0 has utilization only; its devfreq device has no load (jetson_stats, issue 885)."""
    lacks = ("Temperature", "PowerUsage", "PerformanceState", "ClockInfo", "MaxClockInfo")
    gpu = {call: value for call, value in thor().items() if not call.startswith(lacks)}
    with simulated_gpus(tmp_path, gpu, files=THOR) as machine:
        now = machine.tick(0)
        expected = {"utilization": 0.97, "clock": 972e6, "limit": 1575e6, "celsius": 44.312}
        assert values(now) == expected
        assert machine.up()


def test_temperature_of_nvml_is_used_while_that_of_the_kernel_is_off(tmp_path: Path) -> None:
    """The sensor is off while the GPU of a Thor is; NVML of JetPack 7.2 has its temperature then, too."""
    off: Files = {**THOR, f"{THERMAL}1/temp": OSError(EAGAIN, "Resource temporarily unavailable")}
    for tree in (off, THOR):
        with simulated_gpus(tmp_path, thor(), files=tree) as machine:
            assert machine.tick(0).one("hw.temperature", hw_sensor_location="gpu") == 48
            assert not machine.unsupported("hw.temperature (gpu)")


def test_thor_without_nvml_has_clock_and_temperature() -> None:
    settings = {"sources": ["nvidia"], "nvml": "off", "nvidia_smi": "off"}
    with playing(lambda source: OnHost(THOR), settings) as stage:
        stage.read()
        now = Exported(stage.points())
        assert now.one("hw.gpu.frequency", hw_frequency_domain="graphics") == 972e6
        assert now.one("hw.temperature", hw_sensor_location="gpu") == 44.312
        assert now.of("hw.gpu.utilization") == {}
        (info,) = now.of("hw.gpu.info")
        assert dict(info)["hw.model"] == "NVIDIA Jetson AGX Thor Developer Kit"
        assert "hw.gpu.utilization" in " ".join(stage.remarks())
