"""Made-up machines with IPUs, Trainium and Inferentia: output of their tools and drivers at each tick.

The values are invented, the formats are recorded or documented.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tests.sources.machines import SPARSE, STRANGER, Story
from tests.sources.tree import Fabricated, Speaking, Tree

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium

CHILD = STRANGER + 1

HOST = {"/proc/{pid}/ns/pid": "pid:[4026531836]"}
CONTAINER = {"/proc/{pid}/ns/pid": "pid:[4026533001]"}

Files = dict[str, Any]


def program(*children: int, opens: str = "/dev/null") -> Files:
    """The observed process, and children without open device files."""
    files: Files = {f"/proc/{STRANGER}/task/{STRANGER}/children": " ".join(map(str, children))}
    files[f"/proc/{STRANGER}/fd/3"] = opens
    for child in children:
        files |= {f"/proc/{child}/task/{child}/children": "", f"/proc/{child}/fd/0": "/dev/null"}
    return files


def npu_host(files: Files, output: Speaking | None, up: float = 1000.0) -> Fabricated:
    """A machine with these files, and the tool that prints this; None if no tool is installed."""
    tools = {} if output is None else dict.fromkeys(("gcipuinfo", "hl-smi", "neuron-monitor"), output)
    libraries = {"gcipuinfo": SimpleNamespace(folder=lambda: "/opt/poplar/python")}
    return Fabricated(Tree(files, up=up), {"psutil": {}}, tools, libraries)


def lines(*documents: object) -> Speaking:
    return Speaking([json.dumps(each).encode() for each in documents])


# -- Graphcore

IPU_DEVICES = {f"/dev/ipu{number}": "" for number in range(4)}


def c2(number: int, tick: int, pid: int | None = None) -> Mapping[str, str]:
    """An IPU of a C2 card as an early SDK reports it: no space before units."""
    words = {
        "id": str(number),
        "target": "PCIe",
        "average board temp": f"{31 + number + tick}C",
        "average die temp": f"{37.5 + number + tick}C",
        "board ipu index": str(number % 2),
        "board serial number": f"0340.0004.9190{number // 2}",
        "board type": "C2",
        "clock": "1300MHz",
        "driver version": "1.0.56",
        "firmware version": "1.4.14",
        "ipu architecture": "ipu1",
        "ipu power": f"{118 + 2 * tick}W",
        "ipu utilisation": f"{(0.0, 41.25, 99.96)[tick]:.2f}%",
        "ipu utilisation (session)": f"{(0.0, 40.5, 99.5)[tick]:.2f}%",
        "link correctable error count": str(3 * tick),
        "link speed": "8GT/s",
        "link width": "8",
        "pci id": f"0000:{26 + number}:00.0",
    }
    return words if pid is None else {**words, "user process id": str(pid), "user name": "somebody"}


def c600(number: int, tick: int, pid: int | None = None) -> Mapping[str, str]:
    """An IPU of a C600 card as reported by a late SDK: a space before units, and no power."""
    words = {
        "id": str(number),
        "target": "PCIe",
        "average board temp": f"{17.8 + tick} C",
        "average die temp": f"{20.25 + 2 * tick} C",
        "board ipu index": "0",
        "board serial number": f"0063.0063.82239{number}",
        "board type": "C600",
        "board variant": "C600",
        "clock": ("20 MHz", "1500 MHz", "N/A")[tick],
        "driver version": "1.3.0",
        "firmware version": "2.6.8",
        "hexoatt active size (bytes)": "0",
        "hexoatt total size (bytes)": "16911433728",
        "ipu architecture": "ipu21",
        "ipu error state": ("no errors", "no errors", "parity error")[tick] if number else "no errors",
        "ipu power": "N/A",
        "ipu utilisation": f"{(0.0, 62.5, 88.75)[tick]:.2f} %",
        "ipu utilisation (session)": f"{(0.0, 60.0, 88.0)[tick]:.2f} %",
        "link correctable error count": "0",
        "link speed": "16.0 GT/s",
        "parity error threshold interval": "7776000 seconds",
        "pci id": f"0000:{35 + number}:00.0",
        "total board power": f"{12.6 + 30 * tick} W",
    }
    return words if pid is None else {**words, "user process id": str(pid)}


def cards(tick: int) -> Fabricated:
    """Two cards of two IPUs; three are used, by the program, its child and another program."""
    pids = (STRANGER, CHILD, 4242, None)
    output = [c2(number, tick, pid if tick else None) for number, pid in enumerate(pids)]
    files = HOST | IPU_DEVICES | program(CHILD, opens="/dev/ipu0")
    return npu_host(files, lines(output), 1000.0 + 10 * tick)


def pcie(tick: int) -> Fabricated:
    """Two C600 cards in a container. The program uses one of them; the other one is removed."""
    output = [c600(number, tick, 31337) for number in range(2 if tick < 2 else 1)]
    files = CONTAINER | {"/dev/ipu0": "", "/dev/ipu1": ""} | program(opens="/dev/ipu0")
    return npu_host(files, lines(output), 1000.0 + 10 * tick)


# -- Trainium and Inferentia


def open_trainium(
    drivers: Drivers, pid: int = STRANGER, settings: Mapping[str, Any] | None = None, **more: Any
) -> Trainium:
    """The source of these machines, which is open."""
    source = Trainium(SourceContext(Config.read(settings or {}, {}), drivers, pid, **more))
    source.open()
    return source


def reports_of(*runtimes: Mapping[str, Any], devices: int = 1, tick: int = 1) -> Speaking:
    """A neuron-monitor that prints one report of a trn1."""
    return lines(report(runtimes, devices, tick, TRN1))


NEURON = "/sys/devices/virtual/neuron_device"


ELSEWHERE = (
    "collectives",
    "constants",
    "driver_memory",
    "model_shared_scratchpad",
    "nonshared_scratchpad",
    "notifications",
    "runtime_memory",
    "uncategorized",
)


def old_files(devices: int, cores: int, tick: int, ecc: bool = True) -> Files:
    """The driver's sysfs files in the places of version 2.27 (from its source); the values are made up."""
    files: Files = {"/sys/module/neuron/version": "2.22.2.0\n"}
    for number in range(devices):
        device = f"{NEURON}/neuron{number}"
        files |= {
            f"{device}/core_count": f"{cores}\n",
            f"{device}/connected_devices": "\n",
            f"{device}/reset": "",
            f"{device}/uevent": "MAJOR=240\n",
            f"{device}/subsystem/neuron{number}/info/serial_number": "a link back to the device\n",
            f"{device}/power/control": "auto\n",  # a file that every device has
            f"{device}/info/notify_delay": "-1\n",
            f"{device}/info/serial_number": f"00aa00bb00cc00{number:02x}\n",
            f"{device}/info/architecture/arch_type": "NDv3\n",
            f"{device}/info/architecture/instance_type": "Inf2\n",
            f"{device}/info/architecture/device_name": "Inferentia2\n",
            f"{device}/stats/power/utilization": f"POWER_STATUS_VALID,170{tick},1.00,{40 + tick}.00,{20 + tick}.50\n",
            f"{device}/stats/memory_usage/host_mem/tensors/total": "4096\n",
        }
        if ecc:
            files |= {
                f"{device}/stats/hardware/mem_ecc_uncorrected": f"{(1, 0, 2)[tick]}\n",  # 0: unreadable
                f"{device}/stats/hardware/mem_ecc_repairable_uncorrected": "0\n",
                f"{device}/stats/hardware/sram_ecc_uncorrected": f"{tick}\n",
            }
        for core in range(cores):
            memory = f"{device}/neuron_core{core}/stats/memory_usage/device_mem"
            sizes = {"model_code": 1_000_000 * (core + 1), "tensors": 500_000 * (tick + 1), "dma_rings": 4096}
            sizes |= dict.fromkeys(ELSEWHERE, 0)
            for name, size in [*((f"/{name}", size) for name, size in sizes.items()), ("", sum(sizes.values()))]:
                files[f"{memory}{name}/total"] = f"{size}\n"
                files[f"{memory}{name}/present"] = "8192\n"  # the size of the last change
                files[f"{memory}{name}/peak"] = f"{2 * size}\n"
            files |= {
                f"{device}/neuron_core{core}/info/architecture/arch_type": "NCv2\n",
                f"{device}/neuron_core{core}/stats/memory_usage/host_mem/total": "4096\n",
                f"{device}/neuron_core{core}/stats/other_info/flop_count/total": "0\n",
                f"{device}/neuron_core{core}/stats/status/success/total": "12\n",
                f"{device}/neuron_core{core}/stats/tensor_engine/pe_cntrs": "",
            }
    return files


def moved_files(devices: int, cores: int, tick: int) -> Files:
    """The same files in other places: 2.31 has moved some by its documentation; the new places are made up."""
    places = {
        "/info/": "/identity/",
        "/info/architecture/": "/identity/",
        "/stats/hardware/": "/health/ecc/",
        "/stats/power/": "/telemetry/power/",
        "/stats/memory_usage/device_mem": "/memory/device_mem",
    }
    files = old_files(devices, cores, tick)
    for old, new in sorted(places.items(), reverse=True):
        files = {path.replace(old, new): content for path, content in files.items()}
    return files


def latency(milliseconds: float) -> Mapping[str, float]:
    steps = {"p0": 0.5, "p1": 0.75, "p25": 0.875, "p50": 1.0, "p75": 1.25, "p99": 2.0, "p100": 4.0}
    return {name: step * milliseconds / 1000 for name, step in steps.items()}


def runtime(pid: int, cores: Sequence[int], tick: int, tag: str = "", v3d: bool = False) -> dict[str, Any]:
    """One application in a report of neuron-monitor."""
    percent = (0, 40.0625, 93.5)[tick]
    use: dict[str, Any] = {str(core): {"neuroncore_utilization": percent / (1 + core % 2)} for core in cores}
    if v3d:
        for core, each in zip(cores, use.values()):
            parts = {f"nc_v3.{2 * core + half}": {"neuroncore_utilization": percent} for half in range(2)}
            each |= {"flops": 1_234_567_891_011, "v3d": parts}
    sizes = {"constants": 196_608, "model_code": 101_125_344 + tick, "model_shared_scratchpad": 0}
    sizes |= {"runtime_memory": 0, "tensors": 943_608}
    device = sum(sizes.values()) * len(cores)
    host = {"application_memory": 609_656_832 + tick, "constants": 0, "dma_buffers": 1_048_576, "tensors": 0}
    results = dict.fromkeys(("completed_with_err", "completed_with_num_err", "incorrect_input", "failed_to_queue"), 0)
    stats = {
        "period": 9.99,
        "error_summary": {
            "generic": 23_654 + 19 * tick,
            "numerical": 0,
            "transient": 0,
            "model": 0,
            "runtime": tick // 2,
        },
        "execution_summary": {"completed": (0, 2600, 2604)[tick], "timed_out": tick // 2, **results},
        "latency_stats": {"total_latency": latency(2 + tick), "device_latency": latency(1 + tick)} if tick else None,
        "error": "",
    }
    used = {
        "host": sum(host.values()),
        "neuron_device": device,
        "usage_breakdown": {"host": host, "neuroncore_memory_usage": {str(core): sizes for core in cores}},
    }
    report = {
        "execution_stats": stats,
        "memory_used": {"period": 9.99, "neuron_runtime_used_bytes": used, "loaded_models": [], "error": ""},
        "neuron_runtime_vcpu_usage": {"period": 9.99, "vcpu_usage": {"user": 19.25, "system": 3.75}, "error": ""},
        "neuroncore_counters": {"period": 9.99, "neuroncores_in_use": use, "error": ""},
    }
    return {"pid": pid, "address": "", "neuron_runtime_tag": tag or str(pid), "error": "", "report": report}


def listing(entry: dict[str, Any], cores: Sequence[int]) -> dict[str, Any]:
    """An application in the report of an older neuron-monitor, which also lists the cores that it does not use."""
    groups = entry["report"]
    sizes = groups["memory_used"]["neuron_runtime_used_bytes"]["usage_breakdown"]["neuroncore_memory_usage"]
    for core in map(str, cores):
        groups["neuroncore_counters"]["neuroncores_in_use"].setdefault(core, {"neuroncore_utilization": 0})
        sizes.setdefault(core, dict.fromkeys(("constants", "model_code", "runtime_memory", "tensors"), 0))
    return entry


def report(
    runtimes: Sequence[Mapping[str, Any]], devices: int, tick: int, hardware: Mapping[str, Any]
) -> Mapping[str, Any]:
    """A report of neuron-monitor."""
    ecc = [
        {
            "neuron_device_index": number,
            "mem_ecc_corrected": 7 + tick,
            "mem_ecc_uncorrected": 0,
            "sram_ecc_uncorrected": 0,
            "sram_ecc_corrected": number,
        }
        for number in range(devices)
    ]
    return {
        "neuron_runtime_data": runtimes,
        "system_data": {"neuron_hw_counters": {"period": 9.99, "neuron_devices": ecc, "error": ""}},
        "instance_info": {"instance_name": "", "instance_type": "trn1.2xlarge", "error": "no metadata"},
        "neuron_hardware_info": {"neuron_device_count": devices, **hardware, "error": ""},
    }


TRN1 = {"neuroncore_per_device_count": 2}
TRN2 = {
    "neuron_device_type": "trainium2",
    "neuron_device_version": "v4",
    "neuroncore_version": "v3d",
    "neuron_device_memory_size": 103_079_215_104,
    "neuroncore_per_device_count": 4,
    "logical_neuroncore_config": 2,
}


def trn1(tick: int) -> Fabricated:
    """Tools of 2023, without sysfs files; the program uses two cores."""
    output = report([runtime(STRANGER, (0, 1), tick)], 1, tick, TRN1)
    files = HOST | {"/dev/neuron0": "", "/sys/module/neuron/initstate": "live\n"} | program(opens="/dev/neuron0")
    return npu_host(files, lines(output), 1000.0 + 10 * tick)


def trn2(tick: int) -> Fabricated:
    """Two devices of four logical cores, sysfs files in new places; two ranks of the program, and another program."""
    ranks = [runtime(STRANGER, (0, 1), tick, v3d=True), runtime(CHILD, (4,), tick, "my_app", v3d=True)]
    others = [runtime(4242, (6, 7), tick, "their_app", v3d=True)]
    garbage = [b"time=2026 level=warning msg=slow", b'{"neuron_runtime_data": ['] if tick == 1 else []
    line = json.dumps(report([*ranks, *others], 2, tick, TRN2)).encode()
    files = HOST | moved_files(2, 8, tick) | program(CHILD, opens="/dev/neuron0")
    return npu_host(files, Speaking([*garbage, line]), 1000.0 + 10 * tick)


def groups_with_errors(tick: int) -> Fabricated:
    """Report groups with errors and a tool that falls silent, in a container where only tags identify runtimes."""
    ours = runtime(77, (0, 1), tick, "rank-0")
    other = runtime(78, (2, 3), tick, "rank-1")
    ours["report"]["memory_used"]["error"] = "NRT is busy" if tick == 2 else ""
    other["report"]["neuroncore_counters"]["error"] = "no counters"
    output: Speaking = lines(report([ours, other], 2, tick, TRN1))
    if tick == 1:
        output = Speaking(TimeoutError("neuron-monitor printed nothing for 3 periods"))
    return npu_host(
        CONTAINER | old_files(2, 2, tick, ecc=False) | program(opens="/dev/neuron0"), output, 1000.0 + 10 * tick
    )


def no_tool(tick: int) -> Fabricated:
    """An image without the tool: only sysfs files."""
    return npu_host(HOST | old_files(2, 2, tick) | program(), None, 1000.0 + 10 * tick)


def nothing(tick: int) -> Fabricated:
    """A machine with neither IPUs nor Neuron devices."""
    return npu_host({**HOST, "/dev/null": "", "/sys/module/nvme/initstate": "live\n"}, None)


NPUS = (
    Story("graphcore", "c2", "made up: two C2 cards at work", cards, pid=STRANGER),
    Story("graphcore", "c600", "made up: two C600 cards, of which one goes, in a container", pcie, pid=STRANGER),
    Story("graphcore", "none", "made up: no IPU", nothing, pid=STRANGER),
    Story("trainium", "trn1", "made up: a trn1 with the tools of 2023", trn1, pid=STRANGER),
    Story(
        "trainium",
        "trn2",
        "made up: a trn2 with driver files in new places",
        trn2,
        settings={**SPARSE, "include_metrics": "aws.neuron.execution.latency"},
        pid=STRANGER,
    ),
    Story("trainium", "errors", "made up: groups with errors, in a container", groups_with_errors, pid=STRANGER),
    Story("trainium", "files", "made up: an inf2 without the tools", no_tool, pid=STRANGER),
    Story("trainium", "none", "made up: no Neuron device", nothing, pid=STRANGER),
)
