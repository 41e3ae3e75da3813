"""Made-up machines with GPUs and NPUs that the kernel's files describe: of small computers, laptops and Intel.

The formats are those of the kernel's documentation and source; the values are invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from errno import EACCES, ENODEV

from tests.sources.machines import STRANGER, Files, Story
from tests.sources.npus import CHILD, CONTAINER, HOST, npu_host, program
from tests.sources.tree import Fabricated, Speaking, Tree

DRM = "/sys/class/drm"
ACCEL = "/sys/class/accel"
KERNEL = {"/proc/sys/kernel/osrelease": "6.17.0-5-generic\n"}
GONE = OSError(ENODEV, "No such device")
DENIED = PermissionError(EACCES, "Permission denied")


def fdinfo(driver: str, client: int, address: str = "", **values: object) -> str:
    """What the kernel writes about an open device file: ``engine_render="7 ns"`` is ``drm-engine-render``."""
    lines = ["pos:\t0", "flags:\t02100002", "mnt_id:\t25", "ino:\t903", f"drm-driver:\t{driver}"]
    lines += [f"drm-pdev:\t{address}"] if address else []
    lines += [f"drm-client-id:\t{client}", *(f"drm-{key.replace('_', '-')}:\t{text}" for key, text in values.items())]
    return "\n".join([*lines, ""])


def amdgpu(address: str, tick: int) -> str:
    """A newer kernel, with both names of the memory."""
    engines = {"engine_gfx": f"{tick * 3_000_000_000} ns", "engine_dec": f"{tick * 500_000_000} ns"}
    return fdinfo("amdgpu", 4, address, memory_vram="2048 KiB", resident_vram="2 MiB", resident_gtt="9 MiB", **engines)


def i915(address: str, tick: int) -> str:
    """An integrated GPU, whose memory is that of the host. It has two video engines."""
    return fdinfo(
        "i915",
        51,
        address,
        resident_system0=f"{2048 + tick} KiB",
        resident_stolen_system0="0",
        engine_render=f"{tick * 4_000_000_000} ns",
        engine_copy=f"{tick * 1_000_000_000} ns",
        engine_video=f"{tick * 10_000_000_000} ns",
        engine_capacity_video="2",
        engine_video_enhance="0 ns",
    )


def xe(address: str, tick: int, vram: str | None = "512 MiB") -> str:
    """A GPU that counts cycles. It has four compute engines, and perhaps memory of its own."""
    total = 7_655_183_225 + tick * 192_000_000
    memory = {"resident_system": "0", "resident_gtt": "192 KiB", **({} if vram is None else {"resident_vram0": vram})}
    cycles = {
        f"{kind}_{engine}": busy if kind == "cycles" else total
        for engine, busy in {
            "rcs": tick * 48_000_000,
            "ccs": tick * 384_000_000,
            "bcs": tick * 19_200_000,
            "vcs": 0,
        }.items()
        for kind in ("cycles", "total-cycles")
    }
    return fdinfo("xe", 3, address, **memory, **cycles, engine_capacity_ccs=4, engine_capacity_vcs=2)


def msm(address: str, tick: int) -> str:
    """Adreno: time and cycles of its only engine."""
    busy = {"engine_gpu": f"{tick * 7_000_000_000} ns", "cycles_gpu": tick * 99, "maxfreq_gpu": "710000000 Hz"}
    return fdinfo("msm", 3, address, **busy, resident_memory="32 MiB")


# By driver, what it writes about an open device file, for a PCI address and a tick of ten seconds.
EXAMPLES = {"amdgpu": amdgpu, "i915": i915, "xe": xe, "msm": msm}


def opened(pid: int, number: int, node: str, text: str) -> Files:
    """A device file that a process has open."""
    return {f"/proc/{pid}/fd/{number}": node, f"/proc/{pid}/fdinfo/{number}": text}


def below(folder: str, files: Mapping[str, object]) -> Files:
    """Files of a folder. None stands for a missing one."""
    return {
        f"{folder}/{name}": content if isinstance(content, (str, OSError)) else f"{content}\n"
        for name, content in files.items()
        if content is not None
    }


def at(tick: int, files: Files) -> Fabricated:
    return Fabricated(Tree(KERNEL | files, up=1000.0 + 10 * tick), {"psutil": {}})


# -- small computers


def board(tick: int) -> Fabricated:
    """A board with Mali. The program and its child share a client; another program has one of its own."""
    gpu = f"{DRM}/card1/device"
    ours = fdinfo(
        "panthor",
        42,
        engine_panthor=f"{tick * 6_000_000_000} ns",
        cycles_panthor=tick * 4_000_000,
        maxfreq_panthor="1000000000 Hz",
        total_memory=f"{8192 + tick} KiB",
        resident_memory=f"{4096 + tick} KiB",
    )
    child = fdinfo("panthor", 44, engine_panthor=f"{tick * 1_500_000_000} ns", resident_memory="1 MiB")
    files = below(
        gpu,
        {
            "uevent": "DRIVER=panthor\nOF_NAME=gpu\nOF_COMPATIBLE_0=rockchip,rk3588-mali\nOF_COMPATIBLE_N=2\n",
            "drm/card1/dev": "226:1",
            "drm/renderD128/dev": "226:128",
            "devfreq/fb000000.gpu/cur_freq": (300_000_000, 1_000_000_000, 700_000_000)[tick],
            "devfreq/fb000000.gpu/max_freq": 1_000_000_000,
            "power/runtime_status": "active",
        },
    )
    files |= {gpu: "../../../fb000000.gpu", f"{DRM}/card0/device/uevent": "DRIVER=rockchip-drm\n"}
    files |= HOST | program(CHILD)
    files |= opened(STRANGER, 7, "/dev/dri/renderD128", ours) | opened(STRANGER, 8, "/dev/dri/renderD128", ours)
    files |= opened(STRANGER, 9, "/dev/dri/card0", fdinfo("rockchip", 3))
    files |= opened(CHILD, 7, "/dev/dri/renderD128", ours) | opened(CHILD, 8, "/dev/dri/renderD128", child)
    return at(tick, files | opened(4242, 5, "/dev/dri/renderD128", fdinfo("panthor", 43, resident_memory="7 MiB")))


def raspberry(tick: int) -> Fabricated:
    """A Raspberry Pi in a container, without the files of the device; at the last tick a count falls for a while."""
    busy = (0, 9_000_000_000, 8_999_000_000)[tick]
    text = fdinfo("v3d", 5, engine_bin="0 ns", engine_render=f"{busy} ns", v3d_jobs_render="9 jobs", engine_tfu="9 ns")
    folder = f"{DRM}/card0/device"
    files = below(folder, {"uevent": "DRIVER=v3d\nOF_COMPATIBLE_0=brcm,2712-v3d\n", "drm/renderD128/dev": "226:128"})
    files |= {folder: "../../../1002000000.v3d"}
    return at(tick, CONTAINER | files | program() | opened(STRANGER, 4, "/dev/dri/renderD128", text))


def desktop(tick: int) -> Fabricated:
    """A GeForce with nouveau, which is suspended at the second tick and removed at the third."""
    folder = f"{DRM}/card0/device"
    files = below(
        folder,
        {
            "uevent": "DRIVER=nouveau\nPCI_CLASS=30000\nPCI_ID=10DE:1380\nPCI_SLOT_NAME=0000:01:00.0\n",
            "drm/card0/dev": "226:0",
            "power/runtime_status": "suspended" if tick == 1 else "active",
            "hwmon/hwmon3/name": "nouveau",
            "hwmon/hwmon3/temp1_input": 41_000,
            "hwmon/hwmon3/temp1_max": 95_000,
            "hwmon/hwmon3/temp1_crit": 105_000,
            "hwmon/hwmon3/fan1_input": 0,
            "hwmon/hwmon3/in0_input": 950,
            "hwmon/hwmon3/power1_input": 0,
        },
    )
    return at(tick, HOST | program() | ({} if tick == 2 else files))


# -- NPUs of laptops


def laptop(tick: int) -> Fabricated:
    """Intel's NPU, which the program uses. Its counter begins again at the last tick."""
    folder = f"{ACCEL}/accel0/device"
    files = below(
        folder,
        {
            "uevent": "DRIVER=intel_vpu\nPCI_CLASS=48000\nPCI_ID=8086:7D1D\nPCI_SLOT_NAME=0000:00:0b.0\n",
            "npu_busy_time_us": (5_000_000, 9_000_000, 1_000)[tick],
            "npu_current_frequency_mhz": (0, 1400, 1400)[tick],
            "npu_max_frequency_mhz": 1400,
            "npu_memory_utilization": 300_000_000 + tick,
            "accel/accel0/dev": "261:0",
            "power/runtime_status": "active",
            "hwmon/hwmon2/temp1_input": 45_000,
            "hwmon/hwmon2/power1_input": 2_500_000,
        },
    )
    text = fdinfo("intel_vpu", 9, "0000:00:0b.0", resident_memory=f"{1000 + tick} KiB")
    return at(tick, HOST | files | program() | opened(STRANGER, 6, "/dev/accel/accel0", text))


def ryzen(tick: int) -> Fabricated:
    """AMD's NPU, of which the kernel only knows the time of each process."""
    folder = f"{ACCEL}/accel0/device"
    uevent = "DRIVER=amdxdna\nPCI_CLASS=118000\nPCI_ID=1022:17F0\nPCI_SLOT_NAME=0000:c4:00.1\n"
    files = below(folder, {"uevent": uevent, "fw_version": "1.0.0.63", "accel/accel0/dev": "261:0"})
    engine = {"engine_npu-amdxdna": f"{tick * 2_500_000_000} ns"}
    engine |= {"total_memory": "64 MiB", "shared_memory": "0", "active_memory": "0"}
    text = fdinfo("amdxdna_accel_driver", 2, "0000:c4:00.1", **engine)
    return at(tick, HOST | files | program() | opened(STRANGER, 6, "/dev/accel/accel0", text))


def none(tick: int) -> Fabricated:
    uevent = "DRIVER=ast\nPCI_ID=1A03:2000\nPCI_SLOT_NAME=0000:03:00.0\n"
    return at(tick, {**HOST, f"{DRM}/card0/device/uevent": uevent})


# -- Intel


def arc(tick: int) -> Fabricated:
    """An Arc B580 with xe, behind the switch of its card. It throttles at the second tick."""
    folder, address = f"{DRM}/card1/device", "0000:03:00.0"
    sensors = {
        "name": "xe",
        "energy1_input": 9_000_000_000 + tick * 1_500_000_000,
        "energy2_input": 8_000_000_000 + tick * 1_200_000_000,
        "energy1_label": "card",
        "power1_max": 190_000_000,
        "power1_rated_max": 0,
        "power1_cap": 230_000_000,
        "temp2_input": 61_000 + 1000 * tick,
        "temp2_label": "pkg",
        "temp2_crit": 100_000,
        "temp2_emergency": 105_000,
        "temp3_input": 58_000,
        "temp3_label": "vram",
        "fan1_input": 1200,
        "fan2_input": 0,
        "in1_input": 870,
    }
    gt = {
        "gtidle/name": "gt0-rc",
        "gtidle/idle_residency_ms": (40_000, 42_500, 52_500)[tick],
        "freq0/act_freq": (0, 2850, 2400)[tick],
        "freq0/rp0_freq": 2900,
        "freq0/throttle/status": int(tick == 1),
        "freq0/throttle/reason_pl1": int(tick == 1),
        "freq0/throttle/reason_pl2": 0,
        "freq0/throttle/reason_pl4": 0,
        "freq0/throttle/reason_thermal": 0,
        "freq0/throttle/reason_prochot": 0,
    }
    media = {
        "gtidle/name": "gt1-mc",
        "gtidle/idle_residency_ms": 90_000 + tick * 9_000,
        "freq0/act_freq": 1500,
        "freq0/rp0_freq": 1500,
        "freq0/throttle/status": 0,
        "freq0/throttle/reason_pl1": 0,
    }
    files = below(
        folder,
        {
            "uevent": f"DRIVER=xe\nPCI_CLASS=30000\nPCI_ID=8086:E20B\nPCI_SLOT_NAME={address}\n",
            "drm/card1/dev": "226:1",
            "drm/renderD129/dev": "226:129",
            "power/runtime_status": "active",
            "current_link_speed": "2.5 GT/s PCIe",
            "current_link_width": 1,
            "tile0/vram0/total_bytes": 12_813_598_720,
            "tile0/vram0/used_bytes": 4_000_000_000 + tick,
            **{f"hwmon/hwmon5/{name}": content for name, content in sensors.items()},
            **{f"tile0/gt0/{name}": content for name, content in gt.items()},
            **{f"tile0/gt1/{name}": content for name, content in media.items()},
        },
    )
    bridge = "/sys/bus/pci/devices/0000:01:00.0"
    files |= below(bridge, {"vendor": "0x8086", "current_link_speed": "16.0 GT/s PCIe", "current_link_width": 8})
    files[f"{DRM}/card1"] = f"../../devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/{address}/drm/card1"
    files |= program(CHILD) | opened(STRANGER, 7, "/dev/dri/renderD129", xe(address, tick))
    files |= opened(CHILD, 3, "/dev/dri/renderD129", xe(address, tick))  # the same client
    return at(tick, HOST | files)


def integrated(tick: int) -> Fabricated:
    """The GPU of a laptop's CPU with i915, and a suspended Arc A770 beside it; the counter wraps at the last tick."""
    gpu = f"{DRM}/card0"
    uevent = "DRIVER={}\nPCI_CLASS=30000\nPCI_ID=8086:{}\nPCI_SLOT_NAME={}\n"
    files = below(
        gpu,
        {
            "device/uevent": uevent.format("i915", "A7A0", "0000:00:02.0"),
            "device/drm/renderD128/dev": "226:128",
            "device/power/runtime_status": "active",
            "gt/gt0/rps_act_freq_mhz": (0, 1300, 300)[tick],
            "gt/gt0/rps_RP0_freq_mhz": 1500,
            "gt/gt0/rc6_residency_ms": (4_294_960_000, 4_294_967_000, 704)[tick],
            "gt/gt0/throttle_reason_status": 0,
            "gt/gt0/throttle_reason_pl1": 0,
            "gt/gt0/throttle_reason_thermal": 0,
        },
    )
    files |= below(
        f"{DRM}/card1/device",
        {
            "uevent": uevent.format("xe", "56A0", "0000:03:00.0"),
            "drm/renderD129/dev": "226:129",
            "power/runtime_status": "suspended",
            "hwmon/hwmon5/name": "xe",
            "hwmon/hwmon5/energy1_input": 1,
        },
    )
    files |= program() | opened(STRANGER, 7, "/dev/dri/renderD128", i915("0000:00:02.0", tick))
    return at(tick, HOST | files)


def old_kernel(tick: int) -> Fabricated:
    """An A770 with i915 of Linux 6.2, without the folder of GTs, and a DG1 without any file but its device's."""
    uevent = "DRIVER=i915\nPCI_CLASS=30000\nPCI_ID=8086:{}\nPCI_SLOT_NAME={}\n"
    files = below(
        f"{DRM}/card0",
        {
            "device/uevent": uevent.format("56A0", "0000:03:00.0"),
            "device/current_link_speed": "16.0 GT/s PCIe",
            "device/current_link_width": 16,
            "device/hwmon/hwmon4/name": "i915",
            "device/hwmon/hwmon4/energy1_input": 70_000_000 + 45_000_000 * tick,
            "device/hwmon/hwmon4/in0_input": 700,
            "device/hwmon/hwmon4/power1_max": 0,
            "device/hwmon/hwmon4/power1_rated_max": 190_000_000,
            "gt_act_freq_mhz": 600,
            "gt_RP0_freq_mhz": 2400,
            "power/rc6_residency_ms": 7_000 + 9_950 * tick,
        },
    )
    files |= below(
        f"{DRM}/card1",
        {"device/uevent": uevent.format("4905", "0000:04:00.0"), "gt_act_freq_mhz": DENIED if tick else 300},
    )
    return at(tick, HOST | program() | files)


# -- Tenstorrent

TT = "/sys/class/tenstorrent"


def tenstorrent(number: int, address: str, tick: int, **more: object) -> Files:
    """The files of a Blackhole card with tt-kmd 2."""
    counters = {
        "mst_posted_wr_data_word_sent": 1_000_000 * tick,
        "mst_nonposted_wr_data_word_sent": 0,
        "slv_rd_data_word_sent": (4_294_967_000 + 400 * tick) % (1 << 32),
        "mst_rd_data_word_received": 7 + tick,
        "slv_posted_wr_data_word_received": 2_000 * tick,
        "slv_nonposted_wr_data_word_received": 0,
    }
    files = {
        "device/uevent": f"DRIVER=tenstorrent\nPCI_CLASS=120000\nPCI_ID=1E52:B140\nPCI_SLOT_NAME={address}\n",
        "tt_aiclk": 800 + 550 * min(tick, 1),
        "tt_axiclk": 960,
        "tt_arcclk": 800,
        "tt_serial": f"000004613192406{number}",
        "tt_card_type": "p150a",
        "tt_asic_id": f"FCF9BCF9E3C8B89{number}",
        "tt_fw_bundle_ver": "19.4.2.0",
        "tt_heartbeat": 43_874 + 20 * tick,
        "tt_therm_trip_count": 0,
        "device/hwmon/hwmon4/name": "blackhole",
        "device/hwmon/hwmon4/temp1_input": 41_500 + 1000 * tick,
        "device/hwmon/hwmon4/temp1_label": "asic_temp",
        "device/hwmon/hwmon4/in0_input": 720,
        "device/hwmon/hwmon4/curr1_input": 31_000,
        "device/hwmon/hwmon4/power1_input": 38_000_000 + 5_000_000 * tick,
        "device/hwmon/hwmon4/fan1_input": 1_500,
        **{f"pcie_perf_counters/{name}0": count for name, count in counters.items()},
        **{f"pcie_perf_counters/{name}1": 0 for name in counters},
        **more,
    }
    return below(f"{TT}/tenstorrent!{number}", files)


def workstation(tick: int) -> Fabricated:
    """Two Blackhole cards: the firmware of the second one stops, and a counter of the first one wraps."""
    stopped = {"tt_heartbeat": 99, "device/hwmon/hwmon4/fan1_input": 4_294_967_295, "tt_therm_trip_count": 2}
    files = tenstorrent(0, "0000:01:00.0", tick) | tenstorrent(1, "0000:02:00.0", tick, **stopped)
    files |= {"/sys/module/tenstorrent/version": "2.4.1\n"}
    machine = at(tick, HOST | program() | files)
    machine.tree.up = 1000.0 + 4 * tick
    return machine


def old_wormhole(tick: int) -> Fabricated:
    """A Wormhole card whose firmware reports little, in tt-kmd without counters; it is removed at the last tick."""
    files = below(
        f"{TT}/tenstorrent!0",
        {
            "device/uevent": "DRIVER=tenstorrent\nPCI_ID=1E52:401E\nPCI_SLOT_NAME=0000:01:00.0\n",
            "tt_aiclk": 500,
            "tt_card_type": "unknown",
            "tt_serial": "0" * 16,
            "device/hwmon/hwmon1/name": "wormhole",
            "device/hwmon/hwmon1/temp1_input": 0,
            "device/hwmon/hwmon1/temp1_max": 75_000,
            "device/hwmon/hwmon1/power1_input": 20_000_000,
            "device/hwmon/hwmon1/power1_max": 85_000_000,
        },
    )
    return at(tick, {**HOST, **program(), **(files if tick < 2 else {})})


# -- Gaudi

HL_HELP = b"-Q, --query-aip <types>\n  index, uuid, name, power.draw, power.max, clocks.current.soc, clocks.max.soc\n"
HL_COLUMNS = (
    "index, module_id, uuid, bus_id, name, serial, driver_version, utilization.aip [%], memory.total [MiB], "
    "memory.used [MiB], power.draw [W], power.max [W], temperature.aip [C], clocks.current.soc [MHz]"
)


def hl_smi(*rows: str, heading: str = HL_COLUMNS, printed: bytes = HL_HELP) -> Speaking:
    return Speaking([line.encode() for line in (heading, *rows)], prints={"-h": printed})


def gaudi3(number: int, tick: int, **more: str) -> str:
    """A line about a Gaudi 3."""
    cells = {
        "index": str(number),
        "module": str(7 - number),
        "uuid": f"01P4-HL3090A0-18-U4V193-22-07-0{number}",
        "bus": f"0000:{0x43 + number:02x}:00.0",
        "name": "HL-325L",
        "serial": f"AN4100000{number}",
        "driver": "1.22.1-97ec1a4",
        "utilization": f"{(0, 62, 97)[tick]} %",
        "total": "131072 MiB",
        "used": f"{(672, 90_000, 91_000)[tick]} MiB",
        "power": f"{226 + 200 * tick} W",
        "limit": "850 W",
        "temperature": f"{36 + tick} C",
        "clock": "1600 MHz",
        **more,
    }
    return ", ".join(cells.values())


HABANA = {"/sys/module/habanalabs/initstate": "live\n"}


def accel(number: int) -> Files:
    uevent = f"DRIVER=habanalabs\nPCI_SLOT_NAME=0000:{0x43 + number:02x}:00.0\n"
    return {f"{ACCEL}/accel{number}/device/uevent": uevent}


def server(tick: int) -> Fabricated:
    """Two Gaudi 3; the program uses the first one, and the second one is not listed from the second tick on."""
    rows = [gaudi3(0, tick)] + ([gaudi3(1, 0, utilization="N/A", power="0 W")] if not tick else [])
    files = {**HABANA, **accel(0), **accel(1), **program(CHILD), f"/proc/{CHILD}/fd/4": "/dev/accel/accel0"}
    return npu_host({**HOST, **files}, hl_smi(*rows), 1000.0 + 40 * tick)


def old_gaudi(tick: int) -> Fabricated:
    """A Gaudi 2 with a tool of 2023 that prints a warning; at the last tick it knows little."""
    heading = ", ".join([*HL_COLUMNS.split(", ")[:11], "temperature.aip [C]"])
    cells = gaudi3(0, tick, name="HL-225", serial="N/A").split(", ")[:11]
    if tick == 2:
        cells[7:] = ["N/A"] * 4
    output = hl_smi("WARNING: firmware is old", ", ".join([*cells, "40 C"]), heading=heading, printed=b"-Q <types>\n")
    return npu_host({**HOST, **HABANA, **program()}, output, 1000.0 + 10 * tick)


def no_tool(tick: int) -> Fabricated:
    return npu_host({**HOST, **HABANA, **program()}, None, 1000.0 + 10 * tick)


CARDS = (
    Story("drm", "board", "made up: a board with Mali-G610", board, pid=STRANGER),
    Story("drm", "raspberry-pi", "made up: a Raspberry Pi 5, in a container", raspberry, pid=STRANGER),
    Story("drm", "desktop", "made up: a GeForce with nouveau", desktop, pid=STRANGER),
    Story("drm", "laptop", "made up: a laptop with Intel's NPU", laptop, pid=STRANGER),
    Story("drm", "ryzen", "made up: a laptop with AMD's NPU", ryzen, pid=STRANGER),
    Story("intel", "arc", "made up: a machine with an Arc B580", arc, pid=STRANGER),
    Story("intel", "integrated", "made up: a laptop with two GPUs of Intel", integrated, pid=STRANGER),
    Story("intel", "old-kernel", "made up: an Arc A770 and an Iris Xe MAX on Linux 6.2", old_kernel, pid=STRANGER),
    Story("intel", "none", "made up: a server with a display", none, pid=STRANGER),
    Story(
        "tenstorrent",
        "workstation",
        "made up: a workstation with two Blackhole cards",
        workstation,
        (0.0, 4.0, 8.0),
        {"sample_interval": 4},
        pid=STRANGER,
    ),
    Story("tenstorrent", "old-wormhole", "made up: a Wormhole card with an old driver", old_wormhole, pid=STRANGER),
    Story("tenstorrent", "none", "made up: a server with a display", none, pid=STRANGER),
    Story(
        "gaudi",
        "server",
        "made up: a server with two Gaudi 3",
        server,
        (0.0, 40.0, 80.0),
        {"sample_interval": 40},
        pid=STRANGER,
    ),
    Story("gaudi", "old-tool", "made up: a Gaudi 2 with an old tool", old_gaudi, pid=STRANGER),
    Story("gaudi", "no-tool", "made up: a server without hl-smi", no_tool, pid=STRANGER),
    Story("gaudi", "none", "made up: a server with a display", none, pid=STRANGER),
    Story("drm", "none", "made up: a server with a display", none, pid=STRANGER),
)
