"""Made-up machines with AMD GPUs: the kernel's files and the output of AMD's tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from errno import EBUSY, ENODEV, EPERM
from typing import Any

from tests.sources.machines import STRANGER, Story
from tests.sources.npus import CONTAINER, HOST
from tests.sources.tree import Fabricated, Speaking, Tree
from tests.tools import amdsysfs
from tests.tools.amdsysfs import KFD, Files, Gpu, attribute_table, number_of, table

BUSY = OSError(EBUSY, "Device or resource busy")
GONE = OSError(ENODEV, "No such device")
DENIED = OSError(EPERM, "Operation not permitted")

ALL = "-a --showmeminfo vram --json"  # arguments of rocm-smi


def radeon_host(files: Files, tools: Mapping[str, Mapping[str, bytes | Exception]] | None = None) -> Fabricated:
    """A machine with these files, and AMD's tools with what they print by their arguments."""
    installed = {name: Speaking(prints=prints) for name, prints in (tools or {}).items()}
    return Fabricated(Tree({**HOST, **alone(), **files}, up=1000.0), tools=installed)


def alone() -> Files:
    """A process without children and without open device files."""
    return {f"/proc/{STRANGER}/task/{STRANGER}/children": "", f"/proc/{STRANGER}/fd/0": "/dev/null"}


def at(tick: int, files: Files) -> Fabricated:
    made = radeon_host(files)
    made.tree.up = 1000.0 + 10 * tick
    return made


# -- sysfs


def mi300x(tick: int) -> Fabricated:
    """Two MI300X: one process computes on the first, its child on both."""
    child = STRANGER + 1
    base = Gpu(
        device="74A1",
        product="AMD Instinct MI300X OAM",
        edge=None,
        power_file="power1_input",
        power=(612 + 20 * tick) * 10**6,
        cap=750 * 10**6,
        total=206_141_652_992,
        used=88_000_000_000,
        graphics=2100,
        clock=1300,
        busy=97 - tick,
        memory_busy=31,
        junction=71_000,
        memory=64_000,
    )
    gpus = [
        replace(
            base,
            metrics=table(
                6,
                energy=9_000_000_000_000 + tick * 6_320 * 65_536,
                residency=(500_000 + tick * 10_000, 0, 4_000 + tick * 2_500, 10, 20, 30 + tick * 100),
                xgmi=[1_000_000 + tick * 50_000] * 7 + [0] + [2_000_000 + tick * 40_000] * 7 + [0],
                video=[40, 20, 0, 0],
                jpeg=[50] * 8 + [0] * 24,
                clock=29,
                pcie=(16, 320),
            ),
        ),
        replace(base, number=1, bdf="0000:c9:00.0", unique="43cc8cc8af246701", serial="692139000111", busy=0, used=0),
    ]
    files = amdsysfs.machine(gpus)
    files |= {
        f"{KFD}/proc/{STRANGER}/vram_{number_of(gpus[0])}": f"{70_000_000_000 + tick}\n",
        f"{KFD}/proc/{STRANGER}/vram_{number_of(gpus[1])}": "0\n",
        f"{KFD}/proc/{child}/vram_{number_of(gpus[0])}": "1000000000\n",
        f"{KFD}/proc/{child}/vram_{number_of(gpus[1])}": "2000000000\n",
        f"{KFD}/proc/99/vram_{number_of(gpus[1])}": "17000000000\n",
        f"/proc/{STRANGER}/task/{STRANGER}/children": f"{child} ",
        f"/proc/{child}/task/{child}/children": "",
        f"/proc/{child}/fd/0": "/dev/null",
        f"/proc/{STRANGER}/fd/7": "/dev/kfd",
        f"/proc/{STRANGER}/fd/8": "/dev/dri/renderD128",
        f"/proc/{STRANGER}/fdinfo/8": _client(gpus[0], 4, 65_000_000, gfx=tick * 1000),
    }
    return at(tick, files)


def mi325x(tick: int) -> Fabricated:
    """An MI325X on Linux 6.19 with ``gpu_metrics`` 1.9: it is throttled by its power limit, then by its temperature."""
    metrics = attribute_table(
        {
            0: ("H", [71]),  # temperature of the hotspot
            7: ("Q", [5_000_000_000_000 + tick * 9_000 * 65_536]),
            9: ("Q", [400_000 + tick * 10_000]),
            10: ("Q", [7]),  # PROCHOT
            11: ("Q", [1_000 + 5_000 * min(tick, 1)]),  # PPT
            12: ("Q", [40 + 8_000 * max(0, tick - 1)]),  # socket temperature
            13: ("Q", [0]),
            14: ("Q", [0]),
            29: ("Q", [3_000_000 + tick * 60_000] * 7 + [(1 << 64) - 1]),
            30: ("Q", [4_000_000 + tick * 70_000] * 7 + [(1 << 64) - 1]),
            16: ("H", [16]),  # lanes
            17: ("H", [320 if tick else 25]),  # speed, in 0.1 GT/s
            35: ("H", [1500, 29, 29, 29]),  # clocks of the video engines
            41: ("H", [20] * 32 + [0xFFFF] * 8),  # JPEG engines, 40 on the next generation
            42: ("H", [60, 0, 0, 0]),  # video engines
        }
    )
    gpu = Gpu(
        device="74A5",
        product="AMD Instinct MI325X OAM",
        edge=None,
        power_file="power1_input",
        power=900 * 10**6,
        cap=1000 * 10**6,
        total=274_861_129_728,
        used=190_000_000_000,
        graphics=2100,
        clock=1500,
        busy=100,
        memory_busy=44,
        junction=88_000,
        memory=77_000,
        metrics=metrics,
    )
    return at(tick, amdsysfs.machine([gpu]))


def mi210(tick: int) -> Fabricated:
    """Three MI210: one is being reset at the second tick, one is gone at the third.

    On Aldebaran the driver fills in no activity of the video engines.
    """
    metrics = table(3, energy=62_929_744_071_539 + tick * 410 * 65_536, hbm=[43, 39, 42, 43], status=1 << 36)
    gpus = [
        Gpu(metrics=metrics, busy=10 + tick),
        Gpu(1, "0000:a3:00.0", unique="43cc8cc8af246701", bad_pages="0x00000001 : 0x00001000 : P\n"),
        Gpu(2, "0000:c9:00.0", unique="43cc8cc8af246702", ras={"umc": "ue: 2\nce: 9\nde: 1\n"}),
    ]
    files = amdsysfs.machine(gpus)
    for gpu, when, error in ((gpus[1], 1, BUSY), (gpus[2], 2, GONE)):
        if tick == when:
            files |= {name: error for name in files if name.startswith(gpu.folder) and not name.endswith("status")}
    files[f"{gpus[0].folder}/mem_busy_percent"] = DENIED
    return at(tick, files)


def laptop(tick: int) -> Fabricated:
    """A Radeon on which the program renders, in a container, and a second one that is suspended until the last tick."""
    board = Gpu(
        device="73DF",
        unique=None,
        serial="0",
        total=12_868_124_672,
        used=1_572_745_216,
        rpm=0 if tick == 0 else 1200,
        pwm=0 if tick == 0 else 102,
        power=6_000_000,
        cap=211_000_000,
        ras={},
        bad_pages=None,
        metrics=table(
            3, energy=123_456, video=[25], status=0b1 << 16, clock=1200, pcie=(8, 160), voltages=[925, 793, 1350]
        ),
    )
    sleeper = replace(board, number=1, bdf="0000:07:00.0", asleep=tick < 2, metrics=None, rpm=None, pwm=None)
    files = amdsysfs.machine([board, sleeper])
    files |= {"/usr/share/libdrm/amdgpu.ids": "1.0.0\n# names\n73DF,\t02,\tAMD Radeon RX 6700 XT\n740F,\t02,\tother\n"}
    files |= {
        **CONTAINER,
        f"/proc/{STRANGER}/fd/7": "/dev/dri/renderD128",
        f"/proc/{STRANGER}/fd/8": "/dev/dri/renderD128",
        f"/proc/{STRANGER}/fd/9": "/dev/dri/card0",
        f"/proc/{STRANGER}/fdinfo/7": _client(board, 4, 65_536, gfx=tick * 4_000, compute=tick * 500, dec=tick * 1000),
        f"/proc/{STRANGER}/fdinfo/8": _client(board, 4, 65_536, gfx=tick * 4_000, compute=tick * 500, dec=tick * 1000),
        f"/proc/{STRANGER}/fdinfo/9": _client(board, 5, 1_024, gfx=tick * 100),
        f"{KFD}/proc/{STRANGER}/vram_{number_of(board)}": "17000000000\n",
    }
    return at(tick, files)


def hidden(tick: int) -> Fabricated:
    """A ROCm program in a container, where the pids in KFD's files cannot be attributed."""
    gpu = Gpu()
    files = amdsysfs.machine([gpu]) | CONTAINER
    files |= {f"/proc/{STRANGER}/fd/7": "/dev/kfd", f"{KFD}/proc/{STRANGER}/vram_{number_of(gpu)}": "17000000000\n"}
    return at(tick, files)


def none(tick: int) -> Fabricated:
    return at(
        tick, {"/sys/class/drm/card0/device/uevent": "DRIVER=i915\nPCI_ID=8086:3E92\nPCI_SLOT_NAME=0000:00:02.0\n"}
    )


def _client(gpu: Gpu, client: int, kib: int, **engines: int) -> str:
    """fdinfo of one open file: memory in KiB, and milliseconds of each engine."""
    lines = ["pos:\t0", "flags:\t02100002", "drm-driver:\tamdgpu", f"drm-client-id:\t{client}", f"drm-pdev:\t{gpu.bdf}"]
    lines += [f"drm-memory-vram:\t{kib} KiB", "drm-memory-gtt: \t2048 KiB"]
    lines += [f"drm-engine-{name}:\t{spent * 10**6} ns" for name, spent in engines.items()]
    return "\n".join([*lines, ""])


# -- rocm-smi

_BOARD: dict[str, str] = {
    "VBIOS version": "113-D65209-073",
    "Temperature (Sensor edge) (C)": "32.0",
    "Temperature (Sensor junction) (C)": "35.0",
    "Temperature (Sensor memory) (C)": "43.0",
    "sclk clock speed:": "(1700Mhz)",
    "mclk clock speed:": "(1600Mhz)",
    "sclk clock level:": "1",
    "Performance Level": "auto",
    "GPU use (%)": "10",
    "PCIe Replay Count": "147",
    "Voltage (mV)": "818",
    "VRAM Total Memory (B)": "68702699520",
    "VRAM Total Used Memory (B)": "10960896",
    "0": "8.0GT/s x16 *",
    "1": "495Mhz",
    "(Topology) Numa Node": "0",
}


def rocm(version: str, tick: int) -> dict[str, Any]:
    """Output of ``rocm-smi -a --showmeminfo vram --json`` on a board of two dies, the second one first."""
    if version.startswith("4"):
        own = {
            "GPU ID": "0x738c",
            "Card series": "Arcturus GL-XL",
            "Temperature (Sensor memory) (C)": "N/A",
            "sclk clock level": "1 (1502Mhz)",
            "sclk clock speed:": "Unknown",
            "GPU memory use (%)": "3",
            "Average Graphics Package Power (W)": "39.0",
            "Fan speed (level)": "76",
            "Fan speed (%)": "30",
            "Fan RPM": "900",
            "(Topology) Numa Affinity": "4294967295",
        }
    elif version.startswith("5"):
        own = {
            "GPU ID": "0x740c",
            "Card series": "AMD INSTINCT MI250 (MCM) OAM AC MBA",
            "GPU memory use (%)": "0",
            "Memory Activity": "2189510857",
            "Average Graphics Package Power (W)": "89.0",
            "Energy counter": str(62_929_744_071_539 + tick * 890 * 65_536),
            "Accumulated Energy (uJ)": "962825096297442.9",
            "Valid sclk range": "500Mhz - 1700Mhz",
            **{f"Temperature (Sensor HBM {stack}) (C)": f"{40 + stack}.0" for stack in range(4)},
        }
    else:
        own = {
            "Device Name": "Aqua Vanjaram [Instinct MI300X]",
            "Device ID": "0x74a1",
            "Card Series": "AMD Instinct MI300X OAM",
            "Temperature (Sensor edge) (C)": "N/A",
            "GPU Memory Allocated (VRAM%)": "15",
            "GPU Memory Read/Write Activity (%)": "12",
            "Avg. Memory Bandwidth": "0",
            "Current Socket Graphics Package Power (W)": "141.0",
        }
        del own["Device Name"]
    first = {**_BOARD, **own, "Max Graphics Package Power (W)": "560.0", "PCI Bus": "0000:2F:00.0"}
    second = {
        **first,
        "Average Graphics Package Power (W)": "N/A (Secondary die)",
        "Max Graphics Package Power (W)": "0.0",
        "PCI Bus": "0000:30:00.0",
        "VRAM Total Used Memory (B)": "0",  # it could not be read
        "GPU use (%)": "0",
    }
    second.pop("Current Socket Graphics Package Power (W)", None)
    second.pop("Energy counter", None)
    numbered = {"Unique ID": "0x719d230578348e8c", "Serial Number": "PCB052715-0065"}
    system = {"Driver version": "6.2.4", "PID4242": "python3, 1, 66256896, 0, unknown", "(Topology) Weight": "15"}
    return {"card1": {**second, **numbered}, "card0": {**first, **numbered}, "system": system}


def by_rocm_smi(version: str) -> Callable[[int], Fabricated]:
    warning = b"" if version[0] == "5" else b"WARNING: AMD GPU device(s) is/are in a low-power state. [power]\n"

    def story(tick: int) -> Fabricated:
        document = rocm(version, tick)
        if tick == 2:  # the driver lost them
            document = {"system": document["system"]}
        printed = (warning if tick < 2 else b"WARNING: No AMD GPUs specified\n") + json.dumps(document).encode() + b"\n"
        return radeon_host(amdsysfs.module(), {"rocm-smi": {ALL: printed}})

    return story


# -- amd-smi


def _unit(value: object, unit: str) -> object:
    return {"value": value, "unit": unit}


def _entry(number: int, tick: int) -> dict[str, Any]:
    return {
        "gpu": number,
        "usage": {
            "gfx_activity": _unit(88 + tick, "%"),
            "umc_activity": _unit(20, "%"),
            "mm_activity": "N/A",
            "vcn_activity": [_unit(30, "%"), "10 %", "N/A", "N/A"],
            "jpeg_activity": ["N/A"] * 32,
            "jpeg_busy": {"xcp_0": [_unit(50, "%"), _unit(0, "%")], "xcp_1": ["N/A"] * 2},
        },
        "power": {
            "socket_power": _unit(411, "W"),
            "gfx_voltage": _unit(820, "mV"),
            "soc_voltage": "N/A",
            "mem_voltage": _unit(1250, "mV"),
            "throttle_status": "UNTHROTTLED",
        },
        "clock": {
            "GFX_0": {"clk": _unit(2100, "MHz"), "min_clk": _unit(500, "MHz"), "max_clk": _unit(2100, "MHz")},
            "MEM_0": {"clk": _unit(1300, "MHz"), "max_clk": "N/A"},
            "vclk_0": {"clk": 29},
        },
        "temperature": {"edge": "N/A", "hotspot": _unit(61, "C"), "mem": "54 C"},
        "pcie": {
            "width": 16,
            "speed": _unit(32, "GT/s"),
            "replay_count": 4,
            "current_bandwidth_sent": _unit(0, "Mb/s"),
        },
        "ecc": {"total_correctable_count": 12, "total_uncorrectable_count": 0},
        "ecc_blocks": {
            "UMC": {"correctable_count": 11, "uncorrectable_count": 0, "deferred_count": 2},
            "SDMA": {"correctable_count": 3, "uncorrectable_count": 0, "deferred_count": 0},
            "GFX": {"correctable_count": 4, "uncorrectable_count": 1, "deferred_count": 0},
            "XGMI_WAFL": {"correctable_count": 5, "uncorrectable_count": 0, "deferred_count": "N/A"},
        },
        "fan": {"speed": "N/A", "max": "N/A", "rpm": "N/A", "usage": "N/A"},
        "energy": {"total_energy_consumption": _unit(4_000_000.5 + tick * 4110, "J")},
        "mem_usage": {"total_vram": _unit(196_592, "MB"), "used_vram": _unit(284, "MB"), "free_vram": _unit(1, "MB")},
    }


def by_amd_smi(version: int) -> Callable[[int], Fabricated]:
    def story(tick: int) -> Fabricated:
        entries = [_entry(0, tick)]
        absent = {"gpu": 1, "usage": "N/A", "power": "N/A", "temperature": {"edge": "N/A", "hotspot": _unit(0, "C")}}
        if tick < 2:
            entries.append({**_entry(1, tick), **absent} if tick else _entry(1, 0))
        board = {"market_name": "AMD Instinct MI300X", "asic_serial": "0x43CC8CC8AF246700", "device_id": "0x74a1"}
        limit: dict[str, Any] = {"max_power": _unit(750, "W"), "socket_power": _unit(700, "W")}
        if version >= 7:
            limit = {"ppt0": {"max_power_limit": _unit(750, "W"), "socket_power_limit": _unit(700, "W")}}
        limit |= {"slowdown_edge_temperature": "N/A", "slowdown_hotspot_temperature": _unit(100, "C")}
        limit |= {"shutdown_hotspot_temperature": _unit(110, "C"), "slowdown_vram_temperature": _unit(95, "C")}
        static = [
            {
                "gpu": number,
                "asic": {**board, "asic_serial": f"0x43CC8CC8AF24670{number}"},
                "bus": {"bdf": f"0000:{5 + 0x20 * number:02X}:00.0"},
                "vbios" if version < 7 else "ifwi": {"version": "022.040.003.043"},
                "limit": limit,
                "driver": {"name": "amdgpu", "version": "6.12.12"},
                "board": {"product_serial": f"69240800213{number}"},
            }
            for number in (0, 1)
        ]
        noise = (
            b"Failed to open file: /sys/class/drm//device/max_link_width \nWARNING: User is missing groups [render]\n"
        )
        metric, facts = (each if version < 7 else {"gpu_data": each} for each in (entries, static))
        prints = {
            "metric --json": noise + json.dumps(metric, indent=4).encode(),
            "static --json": json.dumps(facts).encode(),
        }
        return radeon_host(amdsysfs.module(), {"amd-smi": prints})

    return story


RADEONS = (
    Story("amd", "mi300x", "made up: two MI300X at work", mi300x, pid=STRANGER),
    Story("amd", "mi325x", "made up: an MI325X at work, on Linux 6.19", mi325x, pid=STRANGER),
    Story("amd", "mi210", "made up: three MI210, one is reset and one is removed", mi210, pid=STRANGER),
    Story("amd", "laptop", "made up: two Radeon, one sleeps, in a container", laptop, pid=STRANGER),
    Story("amd", "hidden", "made up: a container whose program computes", hidden, pid=STRANGER),
    Story("amd", "none", "made up: a GPU of another vendor", none, pid=STRANGER),
    *(
        Story("amd", f"rocm-smi-{version}", f"made up: rocm-smi of ROCm {version}", by_rocm_smi(version), pid=STRANGER)
        for version in ("4.3", "5.7", "6.1")
    ),
    *(
        Story("amd", f"amd-smi-{version}", f"made up: amd-smi of ROCm {version}", by_amd_smi(version), pid=STRANGER)
        for version in (6, 7)
    ),
)
