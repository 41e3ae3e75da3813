"""The files of AMD's kernel driver, as they follow from the state of simulated GPUs.

The values of ``gpu_metrics`` are in the revisions of an MI300 (1.6) and of an MI200 (1.3), as in
``drivers/gpu/drm/amd/include/kgd_pp_interface.h`` of the kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from errno import ENODEV
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware.simulator.machine import Gpu, Machine

Content: TypeAlias = "bytes | OSError"  # of a file, or the error of reading it

DRM: Final = "/sys/class/drm"
KFD: Final = "/sys/class/kfd/kfd"

# Bits of ``indep_throttle_status``: a power limit, a temperature, and an external signal.
_STATUS: Final = {"power": 0x01, "thermal": 0x01 << 32, "brake": 0x01 << 44, "": 0}

# The reasons that an MI300 counts the time of: PROCHOT, PPT and the temperature of the socket.
_RESIDENCY: Final = ("brake", "power", "thermal")


def files(machine: Machine, pid: int) -> dict[str, Content]:
    """Return all files that the driver adds to a machine. The process with this PID holds the GPUs."""
    found: dict[str, object] = {
        "/sys/module/amdgpu/initstate": "live",
        "/sys/module/amdgpu/version": "6.16.13",
        f"{KFD}/topology/nodes/0/gpu_id": "0",
        f"{KFD}/topology/nodes/0/properties": "cpu_cores_count 8\nsimd_count 0\nlocation_id 0\ndomain 0",
    }
    for gpu in machine.gpus:
        node = f"{KFD}/topology/nodes/{gpu.index + 1}"
        found[f"{node}/gpu_id"] = _number(gpu)
        found[f"{node}/properties"] = (
            f"simd_count 1216\nvendor_id 4098\ndevice_id {gpu.card.device}\nlocation_id {_bus(gpu) << 8}\ndomain 0\n"
            f"unique_id {_unique(gpu)}"
        )
        if gpu.load.memory and not gpu.load.is_lost:
            found[f"{KFD}/proc/{pid}/vram_{_number(gpu)}"] = _used(gpu)
        folder = f"{DRM}/card{gpu.index}/device"
        found[f"{folder}/uevent"] = (
            f"DRIVER=amdgpu\nPCI_ID=1002:{gpu.card.device:04X}\nPCI_SLOT_NAME=0000:{_bus(gpu):02x}:00.0"
        )
        for name, value in {**_facts(gpu), **_state(gpu)}.items():
            found[f"{folder}/{name}"] = OSError(ENODEV, "No such device") if gpu.load.is_lost else value
    return {
        path: value if isinstance(value, (bytes, OSError)) else f"{value}\n".encode() for path, value in found.items()
    }


def _bus(gpu: Gpu) -> int:
    return 0x1A + gpu.index


def _number(gpu: Gpu) -> int:
    return 1024 + _bus(gpu)


def _unique(gpu: Gpu) -> int:
    return 0x51310000 + gpu.seed << 32 | gpu.card.device << 16 | gpu.index


def _used(gpu: Gpu) -> int:
    return int(gpu.load.memory * gpu.card.memory)


def _facts(gpu: Gpu) -> Mapping[str, object]:
    card = gpu.card
    limit = round(1e6 * card.limit)
    return {
        "vendor": "0x1002",
        "device": f"0x{card.device:04x}",
        "revision": "0x00",
        "unique_id": f"{_unique(gpu):016x}",
        "serial_number": "SIMULATED",
        "product_name": card.model,
        "vbios_version": "SIMULATED",
        "power/runtime_status": "active",
        "power/control": "on",
        "mem_info_vram_total": card.memory,
        "max_link_width": card.pcie[1],
        "pcie_replay_count": 0,
        "hwmon/hwmon0/name": "amdgpu",
        "hwmon/hwmon0/temp2_label": "junction",
        "hwmon/hwmon0/temp2_crit": 1000 * card.slowdown,
        "hwmon/hwmon0/temp3_label": "mem",
        "hwmon/hwmon0/power1_cap": limit,
        "hwmon/hwmon0/power1_cap_max": limit,
        "hwmon/hwmon0/power1_cap_default": limit,
        "hwmon/hwmon0/freq1_label": "sclk",
        "hwmon/hwmon0/freq2_label": "mclk",
    }


def _state(gpu: Gpu) -> Mapping[str, object]:
    card, load = gpu.card, gpu.load
    graphics, memory = round(card.clocks[1] * gpu.clock), card.clocks[2]
    return {
        "gpu_busy_percent": round(100 * load.busy),
        "mem_busy_percent": round(100 * load.dram),
        "mem_info_vram_used": _used(gpu),
        "current_link_width": int(card.pcie[1] * load.lanes),
        "ras/umc_err_count": f"ue: {load.errors}\nce: 0",
        "hwmon/hwmon0/temp2_input": round(1000 * gpu.temperature),
        "hwmon/hwmon0/temp3_input": round(1000 * (gpu.temperature - 4 + 8 * load.dram)),
        f"hwmon/hwmon0/{'power1_input' if card.links else 'power1_average'}": round(1e6 * gpu.power),
        "hwmon/hwmon0/freq1_input": 1_000_000 * graphics,
        "hwmon/hwmon0/freq2_input": 1_000_000 * memory,
        "gpu_metrics": _mi300(gpu) if card.links else _mi200(gpu),
    }


def _mi300(gpu: Gpu) -> bytes:
    card = gpu.card
    table = bytearray(b"\xff" * 1664)
    struct.pack_into("<HBB", table, 0, len(table), 1, 6)
    struct.pack_into("<Q", table, 16, _energy(gpu))
    times = [round(1000 * gpu.throttled[reason]) for reason in _RESIDENCY]
    elapsed = round(1000 * (1.0 + gpu.age))  # it was there before the program
    struct.pack_into("<6I", table, 32, elapsed, *times, 0, 0)  # of the regulators and HBM nothing
    struct.pack_into("<2H", table, 60, int(card.pcie[1] * gpu.load.lanes), 320)
    links = [int(gpu.linked / card.links) >> 10] * card.links + [0] * (8 - card.links)
    struct.pack_into("<16Q", table, 128, *links, *links)
    return bytes(table)


def _mi200(gpu: Gpu) -> bytes:
    table = bytearray(b"\xff" * 120)
    struct.pack_into("<HBB", table, 0, len(table), 1, 3)
    struct.pack_into("<Q", table, 24, _energy(gpu))
    struct.pack_into("<2H", table, 74, int(gpu.card.pcie[1] * gpu.load.lanes), 160)
    struct.pack_into("<4H", table, 88, *[max(1, round(gpu.temperature))] * 4)
    struct.pack_into("<Q", table, 112, _STATUS[gpu.reason])
    return bytes(table)


def _energy(gpu: Gpu) -> int:
    """Return the energy in steps of 2^-16 J; a counter of 0 counts as none."""
    return max(1, int(gpu.energy * 65536))
