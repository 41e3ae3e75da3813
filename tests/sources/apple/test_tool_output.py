"""The output of apple_gpu_stats, macmon and ioreg: recorded, implausible and broken."""

from __future__ import annotations

import json
import plistlib
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.sources.macs import MACMONS, agx, plist, second_generation
from tests.sources.macs import accelerator as registered
from tests.support.samples import SAMPLES, needs_samples, samples

from opentelemetry.instrumentation.hardware.model import Rate, Unavailable
from opentelemetry.instrumentation.hardware.sources.apple.tool_output import (
    Output,
    mean,
    parse_ioreg,
    parse_macmon,
    parse_stats,
)

# -- recorded output

# By file, its values, checked by hand.
RECORDED = {
    "apple_gpu_stats_v1_objc_legacy.json": {
        "gpu0": {
            "hw.gpu.utilization general": 0.3,
            "hw.gpu.memory.utilization": 0.12,
            "hw.temperature gpu": 42.5,
            "hw.power": 7.3,
        }
    },
    "apple_gpu_stats_v2_swift_m1max.json": {
        "gpu0": {
            "hw.gpu.utilization general": 0.29,
            "hw.gpu.utilization renderer": 0.0,
            "hw.gpu.utilization tiler": 0.0,
            "hw.gpu.memory.usage": 698499072,
            "hw.gpu.memory.allocated": 3188637696,
            "hw.temperature gpu": (57.583431243896484 + 58.314537048339844 + 55.276527404785156 + 55.203269958496094)
            / 4,
            "hw.errors recovery": 0,
        },
        "host": {"hw.host.power": 19.56780242919922},
    },
    "macmon_v0.6.1_pipe.json": {
        "gpu0": {
            "hw.gpu.utilization scaled": 0.021497859,
            "hw.gpu.frequency graphics": 461_000_000,
            "hw.temperature gpu": 36.95167,
            "hw.power": 0.017451683,
        },
        "gpu0/sram": {"hw.power": 0.0009615385},
        "cpu": {"hw.power": 0.20486385, "hw.temperature cpu": 43.73614},
        "ane": {"hw.power": 0.0},
        "memory": {"hw.power": 0.11635789},
        "host": {"hw.host.power": 5.876533},
        "ecpu": {"hw.cpu.speed": 1_181_000_000},
        "pcpu": {"hw.cpu.speed": 1_974_000_000},
    },
    "macmon_v0.8.2_pipe.json": {
        "gpu0": {
            "hw.gpu.utilization general": 0.09,
            "hw.gpu.utilization scaled": 0.021497859,
            "hw.gpu.frequency graphics": 461_000_000,
            "hw.temperature gpu": 36.95167,
            "hw.power": 0.017451683,
        },
        "gpu0/sram": {"hw.power": 0.0009615385},
        "cpu": {"hw.power": 0.20486385, "hw.temperature cpu": 43.73614},
        "ane": {"hw.power": 0.0},
        "memory": {"hw.power": 0.11635789},
        "host": {"hw.host.power": 5.876533},
        "ecpu": {"hw.cpu.speed": 1_100_000_000},
        "pcpu": {"hw.cpu.speed": 1_800_000_000},
        "fan0": {"hw.fan.speed": 999, "hw.fan.speed_ratio": 999 / 4900},
        "fan1": {"hw.fan.speed": 1200, "hw.fan.speed_ratio": 1200 / 5200},
    },
    "ioreg_IOAccelerator_M1Pro_macOS12.6.txt": {
        "gpu0": {
            "hw.gpu.utilization general": 0.02,
            "hw.gpu.utilization renderer": 0.02,
            "hw.gpu.utilization tiler": 0.02,
            "hw.gpu.memory.usage": 340983808,
            "hw.gpu.memory.allocated": 1214005248,
            "hw.errors recovery": 0,
        }
    },
}


def parse(name: str, text: bytes) -> Output:
    if name.startswith("ioreg"):
        return parse_ioreg(text)
    return parse_stats(text) if name.startswith("apple_gpu_stats") else parse_macmon(text)


def values(output: Output) -> dict[str, dict[str, float]]:
    """The values of each part in base units, by metric and attributes."""
    found: dict[str, dict[str, float]] = {}
    for part, numbers in output.values.items():
        for field, number in numbers.items():
            value = field.value(number)
            assert not isinstance(value, Rate)
            name = " ".join([field.series.metric.name, *map(str, field.series.attributes.values())])
            found.setdefault(part, {})[name] = value
    return found


@pytest.mark.parametrize("path", samples("apple/*"))
def test_recorded_tool_output_is_parsed(path: Path) -> None:
    text = path.read_bytes()
    output = parse(path.name, _as_plist(text.decode()) if path.suffix == ".txt" else text)
    assert values(output) == RECORDED[path.name]


def _as_plist(text: str) -> bytes:
    """The output of ``ioreg -a`` made from that of ``ioreg``: the class, and the driver's statistics."""
    kind = re.search(r"<class (\w+),", text)
    rows = re.search(r'"PerformanceStatistics" = \{(.*)\}', text)
    assert kind is not None
    assert rows is not None
    numbers = {name: int(number) for name, number in re.findall(r'"([^"]+)"=(\d+)', rows[1])}
    return plistlib.dumps([{"IOObjectClass": kind[1], "PerformanceStatistics": numbers}])


@needs_samples
def test_every_recorded_apple_file_has_a_test() -> None:
    assert SAMPLES is not None
    assert {path.name for path in (SAMPLES / "apple").iterdir()} == set(RECORDED)


# -- plausibility


def plausible(tool: str, document: dict[str, object]) -> Mapping[str, Mapping[str, float]]:
    """The accepted values of a document."""
    try:
        return values(parse(tool, json.dumps(document).encode()))
    except ValueError:
        return {}


@pytest.mark.parametrize(
    ("document", "gpu"),
    [
        (
            {"mem_used": 12.0, "utilization": 0.0},
            {"hw.gpu.memory.utilization": 0.12, "hw.gpu.utilization general": 0.0},
        ),
        ({"mem_used": 0.0, "utilization": 0.0, "temperature": 0, "power": 0}, None),
        ({"mem_used": 0.0, "utilization": 7.0}, {"hw.gpu.utilization general": 0.07}),
        ({"temperature": 40.5, "utilization": 0}, {"hw.temperature gpu": 40.5, "hw.gpu.utilization general": 0.0}),
        ({"utilization": 101, "power": 3.5}, {"hw.power": 3.5}),
        ({"utilization": True, "mem_used": "12", "temperature": 151, "power": -1}, None),
        ({"inUseSystemMemory": 0, "allocatedSystemMemory": 0, "utilization": 0, "recoveryCount": 0}, None),
        (
            {"inUseSystemMemory": 0, "allocatedSystemMemory": 9, "utilization": 0, "recoveryCount": 0},
            {"hw.gpu.utilization general": 0.0, "hw.errors recovery": 0, "hw.gpu.memory.allocated": 9},
        ),
        (
            {"inUseSystemMemory": 5, "m1Gpu1": 0, "m3Gpu8": 30.0, "m9Gpu1": 90.0},
            {"hw.gpu.memory.usage": 5, "hw.temperature gpu": 30.0},
        ),
        ({"inUseSystemMemory": 5.5, "gpuPower": 2}, {"hw.power": 2}),
        (
            {"inUseSystemMemory": 5, "m2Gpu1": 4.625, "m2Gpu2": 48.5},
            {"hw.gpu.memory.usage": 5, "hw.temperature gpu": 48.5},
        ),
    ],
)
def test_apple_gpu_stats_values_that_were_not_measured_are_dropped(
    document: dict[str, object], gpu: dict[str, float] | None
) -> None:
    assert plausible("apple_gpu_stats", document) == ({"gpu0": gpu} if gpu else {})


SLOW = {"hw.gpu.frequency graphics": 338_000_000}


@pytest.mark.parametrize(
    ("document", "parts"),
    [
        ({"cpu_power": 0.0, "gpu_power": 0.0, "ane_power": 0.0, "sys_power": 0.0, "ram_power": 0.0}, {}),
        (
            {"cpu_power": 0.5, "gpu_power": 0.0, "ane_power": 0.0, "ram_power": 0.0},
            {"cpu": {"hw.power": 0.5}, "gpu0": {"hw.power": 0.0}, "ane": {"hw.power": 0.0}},
        ),
        ({"cpu_power": 0.0, "gpu_power": 2.5}, {"gpu0": {"hw.power": 2.5}}),
        ({"gpu_usage": [0, 0.0], "gpu_active_ratio": 0.0}, {}),
        ({"gpu_usage": [338, 0.0]}, {"gpu0": {"hw.gpu.utilization scaled": 0.0, **SLOW}}),
        ({"gpu_usage": [338, 0.5, 1], "pcpu_usage": 4}, {}),
        ({"gpu_freq_mhz": 338, "gpu_usage": [1, 1]}, {"gpu0": {"hw.gpu.utilization scaled": 1, **SLOW}}),
        ({"gpu_freq_mhz": 338, "gpu_active_ratio": 1.00001}, {"gpu0": {"hw.gpu.utilization general": 1.0, **SLOW}}),
        ({"gpu_active_ratio": 1.5, "gpu_freq_mhz": 1}, {"gpu0": {"hw.gpu.frequency graphics": 1_000_000}}),
        ({"temp": {"cpu_temp_avg": 0.0, "gpu_temp_avg": 150.5}}, {}),
        # Of an M2 Ultra, M3 Ultra and M4 in warm rooms, while the sensors of the GPU are off.
        ({"temp": {"cpu_temp_avg": 44.0, "gpu_temp_avg": 5.91}}, {"cpu": {"hw.temperature cpu": 44.0}}),
        ({"temp": {"cpu_temp_avg": 9.8, "gpu_temp_avg": -4.7}}, {}),
        (
            {"fans": [{"rpm": 0, "max_rpm": 0}, {"rpm": 0, "max_rpm": 5}]},
            {"fan1": {"hw.fan.speed": 0, "hw.fan.speed_ratio": 0.0}},
        ),
        ({"temp": [], "fans": [7], "soc": 3, "cpu_power": None}, {}),
        (  # 0.8.0 and 0.8.1
            {"gpu_freq_mhz": 338, "gpu_usage_ratio": 0.5, "gpu_active_ratio": 0.75},
            {"gpu0": {"hw.gpu.utilization general": 0.75, "hw.gpu.utilization scaled": 0.5, **SLOW}},
        ),
        # The first fan cannot be read, and the highest speed of the second one is unknown.
        ({"fans": [{"name": "fan1", "rpm": 1200, "max_rpm": None}]}, {"fan1": {"hw.fan.speed": 1200}}),
    ],
)  # fmt: skip
def test_measured_values_of_macmon_are_read_and_others_dropped(
    document: dict[str, object], parts: dict[str, dict[str, float]]
) -> None:
    assert plausible("macmon", document) == parts


# The output of macmon while the GPU is off: the frequency is a mean of the time in which it is on.
OFF = {"cpu_power": 0.5, "gpu_freq_mhz": 0, "gpu_scaled_ratio": 0.0, "gpu_active_ratio": 0.0, "gpu_power": 0.0}


# The same since macOS 27, where the counters of the energy of CPU and Neural Engine stand still.
OFF_27 = {**OFF, "cpu_power": 0.0, "ane_power": 0.0, "ecpu_freq_mhz": 972}


@pytest.mark.parametrize(
    ("idle", "tasks"),
    [
        (OFF, ["general", "scaled"]),
        ({"cpu_power": 0.5, "gpu_usage": [0, 0.0], "gpu_power": 0.0}, ["scaled"]),
        (OFF_27, ["general", "scaled"]),
    ],
)
def test_macmon_utilization_and_power_of_a_gpu_that_is_off_are_zero(idle: dict[str, object], tasks: list[str]) -> None:
    busy = {**idle, "gpu_freq_mhz": 1000, "gpu_scaled_ratio": 0.5, "gpu_active_ratio": 0.75, "gpu_power": 8.0}
    off = plausible("macmon", idle)
    assert off["gpu0"] == {f"hw.gpu.utilization {task}": 0.0 for task in tasks} | {"hw.power": 0}
    assert "ane" not in off
    both = values(mean([parse_macmon(json.dumps(document).encode()) for document in (idle, busy)]))
    assert both["gpu0"]["hw.gpu.utilization scaled"] == 0.25
    assert both["gpu0"]["hw.power"] == 4


def test_macmon_power_of_a_gpu_that_runs_is_never_zero() -> None:
    assert plausible("macmon", {**OFF_27, "gpu_freq_mhz": 338, "gpu_active_ratio": 0.5})["gpu0"] == {
        "hw.gpu.utilization general": 0.5,
        "hw.gpu.utilization scaled": 0.0,
        **SLOW,
    }


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(MACMONS["0.8.2"](2, 0), id="macmon"),
        pytest.param(second_generation(1), id="apple_gpu_stats"),
    ],
)
def test_nan_infinity_and_huge_integers_in_json_are_refused(document: dict[str, object]) -> None:
    parse = parse_macmon if "cpu_power" in document else parse_stats
    text = json.dumps(document)
    for number in ("NaN", "Infinity", "-Infinity"):
        broken = re.sub(r'("sys_power"|"systemPower"): [0-9.]+', rf"\1: {number}", text).encode()
        assert broken != text.encode()
        with pytest.raises(ValueError, match="which is not JSON"):
            parse(broken)
    huge = re.sub(r'("sys_power"|"systemPower"): [0-9.]+', r"\1: 1" + "0" * 400_000, text).encode()
    assert "host" not in parse(huge).values
    assert parse(huge).values["gpu0"]


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        (b"{}", Unavailable, "apple_gpu_stats reports no GPU"),
        (b'{"vendor": "sppci_vendor_amd", "utilization": 3}', Unavailable, "another vendor: 'sppci_vendor_amd'"),
        (b"", ValueError, "the tool printed nothing"),
        (b"Error serializing stats: too deep", ValueError, "the tool printed 'Error serializing stats: too deep'"),
        (b'{"vendor": "Apple ", "uti', ValueError, "which is not JSON"),
        (b"[1, 2]", ValueError, "the tool printed"),
        (b"{" * 100_000, ValueError, "which is not JSON"),
        (b'{"a":' * 100_000, ValueError, "which is not JSON"),
    ],
)
def test_invalid_apple_gpu_stats_output_raises_its_error(text: bytes, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        parse_stats(text)


BOMB = (
    b'<!DOCTYPE plist [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;">]>'
    b"<plist><array><string>&b;</string></array></plist>"
)


@pytest.mark.parametrize(
    ("text", "error", "sentence"),
    [
        (b" \n", Unavailable, "ioreg reports no GPU"),
        (plist(), Unavailable, "ioreg reports no Apple GPU, only an empty list"),
        (plist(registered("IntelAccelerator", "x", {})), Unavailable, "only 'IntelAccelerator'"),
        (plist("<integer>3</integer>"), Unavailable, "only an empty list"),
        (plist("<dict><key>IOClass</key><string>AGXAccelerator</string></dict>"), ValueError, "no Performance"),
        (plist(registered("AGXAcceleratorG13X", "x", {})), ValueError, "no plausible number"),
        (b"usage: ioreg [-abfilrtx]", ValueError, "no property list"),
        (plist(registered("AGXAcceleratorG13X", "x", agx(1)))[:700], ValueError, "no property list"),
        (BOMB, ValueError, "no property list"),
        (b"bplist00\xd1\x01\x02", ValueError, "no property list"),
        (b"<plist>" + b"<array>" * 50_000, ValueError, "no property list"),
    ],
)  # fmt: skip
def test_invalid_ioreg_output_raises_its_error(text: bytes, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=re.escape(sentence)):
        parse_ioreg(text)


def test_ioreg_ignores_a_second_gpu_of_another_vendor() -> None:
    other = registered("AMDRadeonX6000_AMDNavi21GraphicsAccelerator", "AMD", {"Device Utilization %": 77})
    own = registered("AGXAcceleratorG13X", "Apple M1", {"Device Utilization %": 7})
    output = parse_ioreg(plist(other, own))
    assert (output.model, values(output)) == ("Apple M1", {"gpu0": {"hw.gpu.utilization general": 0.07}})


def test_long_property_list_is_refused_unparsed() -> None:
    """The parser takes a time that grows with the square of the length of a text."""
    with pytest.raises(ValueError, match="more than 1 MiB"):
        parse_ioreg(b"<" + b"x" * (1 << 20))
