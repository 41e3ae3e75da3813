"""Made-up Macs: the output of their tools, in every version of its format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tests.sources.machines import SPARSE, Story
from tests.sources.tree import Fabricated, Speaking


def fake_macmon(version: str, lines: list[bytes] | Exception) -> Speaking:
    """A version of macmon."""
    soc = ["--soc-info"] if tuple(map(int, version.split("."))) >= (0, 6, 1) else []
    printed = {"--version": f"macmon {version}\n".encode()}
    return Speaking(lines, prints=printed, expects=["pipe", "-i", "5000", *soc])


def mac(system: str = "Darwin", **tools: Speaking) -> Fabricated:
    """A Mac with some tools."""
    return Fabricated(None, {"platform": {"system": system}}, tools)


# -- apple_gpu_stats


def first_generation(tick: int) -> Mapping[str, Any]:
    return {
        "name": "Apple M1",
        "vendor": "Apple ",
        "utilization": (41.0, 0.0, 97.0)[tick],
        "cpu_wait_ms": 0.0,
        "mem_used": (23.5, 22.0, 61.25)[tick],
        "temperature": (51.5, 47.25, 0)[tick],
        "power": (6.75, 0, 11.5)[tick],
    }


SENSORS = {
    **{f"m1Gpu{number}": 0 for number in range(1, 5)},
    **{f"m2Gpu{number}": 0 for number in range(1, 3)},
    **{f"m3Gpu{number}": 0 for number in range(1, 9)},
}


def second_generation(tick: int) -> Mapping[str, Any]:
    """An M2 Pro with two temperature sensors; it reports the power of the machine, at the last tick also of the GPU."""
    return {
        **SENSORS,
        "m2Gpu1": (48.5, 61.0, 70.25)[tick],
        "m2Gpu2": (49.5, 62.5, 71.75)[tick],
        "vendor": "sppci_vendor_Apple",
        "name": "Apple M2 Pro",
        "vram": "Unknown",
        "cores": 19,
        "utilization": (0, 64, 100)[tick],
        "renderUtilization": (0, 60, 98)[tick],
        "tilerUtilization": (0, 12, 20)[tick],
        "allocatedSystemMemory": 4_000_000_000,
        "inUseSystemMemory": (500_000_000, 1_200_000_000, 3_000_000_000)[tick],
        "recoveryCount": (0, 0, 1)[tick],
        "gpuPower": (0, 0, 17.5)[tick],
        **dict.fromkeys(("gpuPowerPMVR", "gpuPowerPGTR", "gpuPowerPG0R", "gpuVoltage", "gpuCurrent"), 0),
        **dict.fromkeys(("PC10", "PC12", "PC20", "PC22", "PC40"), 0),
        "systemPower": (9.25, 31.0, 44.5)[tick],
    }


# -- macmon


def _rest(tick: int, line: int) -> dict[str, Any]:
    """Values that every version has; a little higher in the later line of a tick."""
    return {
        "temp": {"cpu_temp_avg": 44.0 + 10 * tick + line, "gpu_temp_avg": 38.0 + 10 * tick + line},
        "memory": {"ram_total": 34359738368, "ram_usage": 20985479168, "swap_total": 0, "swap_usage": 0},
        "cpu_power": 2.0 + 4 * tick + line,
        "gpu_power": (0.0, 5.0, 12.0)[tick] + line * tick,
        "ane_power": (0.0, 0.0, 1.5)[tick],
        "all_power": 2.0 + 9 * tick,
        "sys_power": (8.0, 22.0, 0.0)[tick],
        "ram_power": 0.5 + tick,
    }


def _pairs(tick: int) -> dict[str, Any]:
    return {
        "ecpu_usage": [(1020, 1800, 2424)[tick], 0.0625 + 0.25 * tick],
        "pcpu_usage": [(0, 2200, 3504)[tick], 0.03125 + 0.25 * tick],
        "gpu_usage": [(444, 900, 1398)[tick], (0.0, 0.3125, 0.9375)[tick]],
    }


def _named(tick: int) -> dict[str, Any]:
    core = {"die_id": 0, "core_id": 0, "freq_mhz": 1600, "scaled_ratio": 0.14, "active_ratio": 0.24}
    return {
        "cpu_scaled_ratio": 0.05 + 0.25 * tick,
        "cpu_active_ratio": 0.1 + 0.25 * tick,
        "ecpu_freq_mhz": (1020, 1800, 2592)[tick],
        "ecpu_scaled_ratio": 0.0625 + 0.25 * tick,
        "ecpu_active_ratio": 0.125 + 0.25 * tick,
        "pcpu_freq_mhz": (1260, 2200, 4512)[tick],
        "pcpu_scaled_ratio": 0.03125 + 0.25 * tick,
        "pcpu_active_ratio": 0.0625 + 0.25 * tick,
        "ecpu_cores": [core],
        "pcpu_cores": [core],
        "gpu_freq_mhz": (338, 900, 1578)[tick],
        "gpu_scaled_ratio": (0.0, 0.3125, 0.9375)[tick],
        "gpu_active_ratio": (0.0, 0.5, 1.0)[tick],
    }


STAMP: dict[str, Any] = {"timestamp": "2026-03-03T14:05:59.427569+00:00"}
FANS: dict[str, Any] = {
    "fans": [{"name": "fan0", "rpm": 0, "max_rpm": 5777}, {"name": "fan1", "rpm": 2888.5, "max_rpm": 5777}]
}


def _soc(chip: str, *labels: str) -> dict[str, Any]:
    """The chip; since 0.7.0 with the kinds of its slower and faster cores."""
    soc = {"mac_model": "Mac15,6", "chip_name": chip, "memory_gb": 32, "gpu_cores": 18}
    return {"soc": soc | dict(zip(("ecpu_label", "pcpu_label"), labels))}


def macmon(version: str, document: Callable[[int, int], Mapping[str, Any]]) -> Callable[[int], Fabricated]:
    """A Mac with macmon, which prints one line at the first tick and two at the others."""

    def story(tick: int) -> Fabricated:
        lines = [json.dumps(document(tick, line)).encode() for line in ((0, 1) if tick else (0,))]
        return mac(macmon=fake_macmon(version, lines))

    return story


# By version, the document of a tick and line. 0.8.1 and later print the old keys too, which are not read.
MACMONS: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "0.5.1": lambda tick, line: _rest(tick, line) | _pairs(tick),
    "0.6.0": lambda tick, line: STAMP | _rest(tick, line) | _pairs(tick),
    "0.6.1": lambda tick, line: _rest(tick, line) | _pairs(tick) | _soc("Apple M3 Pro") | STAMP,
    "0.7.2": lambda tick, line: (
        {"cpu_usage_pct": 0.05} | _rest(tick, line) | _pairs(tick) | _soc("Apple M3 Pro", "E", "P") | STAMP
    ),
    "0.8.0": lambda tick, line: (
        _rest(tick, line)
        | {"gpu_ram_power": 0.25 * tick}
        | FANS
        | _named(tick)
        | _soc("Apple M4 Max", "E", "P")
        | STAMP
    ),
    "0.8.2": lambda tick, line: (
        _rest(tick, line)
        | {"gpu_ram_power": 0.0}
        | FANS
        | _named(tick)
        | _pairs(tick)
        | _soc("Apple M5 Max", "P", "S")
        | STAMP
    ),
}


# -- ioreg


def plist(*entries: str) -> bytes:
    """A property list of accelerators."""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">\n'
        '<plist version="1.0">\n<array>\n' + "\n".join(entries) + "\n</array>\n</plist>\n"
    ).encode()


def accelerator(kind: str, model: str, statistics: Mapping[str, int]) -> str:
    """One accelerator."""
    rows = "".join(f"<key>{name}</key><integer>{value}</integer>" for name, value in statistics.items())
    return (
        f"<dict><key>IOClass</key><string>{kind}</string><key>IOObjectClass</key><string>{kind}</string>\n"
        f"<key>IOObjectRetainCount</key><integer>24</integer><key>vendor-id</key><data>axAAAA==</data>\n"
        f"<key>model</key><string>{model}</string><key>gpu-core-count</key><integer>16</integer>\n"
        "<key>AGCInfo</key><dict><key>fLastSubmissionPID</key><integer>390</integer></dict>\n"
        f"<key>PerformanceStatistics</key><dict>{rows}</dict><key>IOMatchedAtBoot</key><true/></dict>"
    )


def _ioreg(printed: bytes) -> Speaking:
    return Speaking(prints={"-a -r -d 1 -w 0 -c IOAccelerator": printed})


def registry(kind: str, model: str, document: Callable[[int], Mapping[str, int]]) -> Callable[[int], Fabricated]:
    return lambda tick: mac(ioreg=_ioreg(plist(accelerator(kind, model, document(tick)))))


def agx(tick: int) -> Mapping[str, int]:
    return {
        "TiledSceneBytes": 1572864,
        "Alloc system memory": 1_600_000_000,
        "Tiler Utilization %": (0, 8, 30)[tick],
        "recoveryCount": (0, 0, 2)[tick],
        "Renderer Utilization %": (0, 35, 99)[tick],
        "Device Utilization %": (0, 36, 100)[tick],
        "In use system memory": (300_000_000, 900_000_000, 1_500_000_000)[tick],
    }


def intel(tick: int) -> Mapping[str, int]:
    return {"Device Utilization %": 240, "vramUsedBytes": 1_000_000, "In use system memory": 5_000_000}


def broken(tick: int) -> Fabricated:
    """A macmon that does not support this chip; ioreg works."""
    sentence = "macmon exited: thread 'main' panicked at src/sources.rs: no such voltage-states5-sram"
    ended = ChildProcessError(sentence)
    return mac(
        macmon=fake_macmon("0.6.1", ended),
        ioreg=_ioreg(plist(accelerator("AGXAcceleratorG17P", "Apple M5", agx(tick)))),
    )


def stats(arguments: str, document: Callable[[int], Mapping[str, Any]]) -> Callable[[int], Fabricated]:
    return lambda tick: mac(apple_gpu_stats=Speaking(prints={arguments: json.dumps(document(tick)).encode() + b"\n"}))


def elsewhere(tick: int) -> Fabricated:
    """A Linux machine with a program named ioreg."""
    return mac("Linux", ioreg=_ioreg(b""))


def placed(tick: int) -> Fabricated:
    """A machine that is not a Mac, with the path of a tool in the settings."""
    return mac("Linux", ioreg=_ioreg(plist(accelerator("AGXAcceleratorG13X", "Apple M1 Pro", agx(tick)))))


MACS = (
    Story("apple", "stats-1", "made up: apple_gpu_stats of wandb 0.16 on an M1", stats("--json", first_generation)),
    Story("apple", "stats-2", "made up: apple_gpu_stats of wandb 0.17 on an M2 Pro", stats("", second_generation)),
    *(
        Story("apple", f"macmon-{version}", f"made up: macmon {version}", macmon(version, document))
        for version, document in MACMONS.items()
    ),
    Story("apple", "ioreg", "made up: a Mac without tools", registry("AGXAcceleratorG13X", "Apple M1 Pro", agx)),
    Story(
        "apple", "ioreg-intel", "made up: a Mac with an Intel GPU", registry("IntelAccelerator", "Intel Iris", intel)
    ),
    Story("apple", "macmon-broken", "made up: an M5 with an older macmon", broken),
    Story("apple", "no-mac", "made up: not a Mac", elsewhere),
    Story("apple", "placed", "made up: ioreg by its path", placed, settings=SPARSE | {"ioreg": "/made/up/ioreg"}),
    Story(
        "apple",
        "off",
        "made up: a Mac with all tools switched off",
        registry("AGXAcceleratorG13X", "Apple M1 Pro", agx),
        settings=SPARSE | {"ioreg": "off", "macmon": "off", "apple_gpu_stats": "off"},
    ),
)
