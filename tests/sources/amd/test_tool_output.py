"""The output of amd-smi and rocm-smi: valid, broken and recorded."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.samples import samples

from opentelemetry.instrumentation.hardware.model import Rate, Series
from opentelemetry.instrumentation.hardware.sources.amd.fields import AMD_SMI, ROCM_SMI
from opentelemetry.instrumentation.hardware.sources.amd.tool_output import (
    GpuOutput,
    amd_smi_gpus,
    parse_amd_smi,
    parse_rocm_smi,
    rocm_smi_gpus,
)


def plausible(gpu: GpuOutput) -> dict[Series, float]:
    """The plausible values of a GPU."""
    found = {}
    for field, text in gpu.values.items():
        with suppress(ValueError):
            value = field.value(text)
            assert not isinstance(value, Rate)
            found[field.series] = value
    return found


@pytest.mark.parametrize(
    "printed",
    [
        *(b"", b"ERROR: no GPU", b"[" * 200_000, b'{"a":' * 100_000, b"{" * 10 + b"\xff" * 100),
        b'{"card0": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda printed: repr(printed[:12]),
)
def test_output_without_json_raises_value_error(printed: bytes) -> None:
    for parse in (parse_rocm_smi, parse_amd_smi):
        with pytest.raises(ValueError, match="printed no JSON document"):
            parse(printed)


def test_entry_without_the_number_of_a_gpu_is_left_out() -> None:
    numbers = (0, True, -1, 1 << 16, "1", 1.5, None, [2])
    entries = [*({"gpu": number, "power": 1} for number in numbers), {"power": 1}, 3]
    assert [*parse_amd_smi(json.dumps(entries).encode())] == [0]
    cards = {"card0": {"x": "1"}, "card1": None, "card2": [1], "cardx": {"x": "1"}, "system": {"x": "1"}}
    assert [*parse_rocm_smi(json.dumps(cards).encode())] == [0]


@pytest.mark.parametrize(
    ("text", "hertz"),
    [
        pytest.param("(1700Mhz)", 1_700_000_000, id="ROCm 5"),
        pytest.param("1 (1502Mhz)", 1_502_000_000, id="level and clock"),
        pytest.param("300Mhz", 300_000_000, id="clock alone"),
        pytest.param("(0Mhz)", 0, id="idle"),
        pytest.param("Unknown", None, id="unknown"),
        pytest.param("1 (fast)", None, id="no number"),
    ],
)
def test_clock_of_rocm_smi_is_read_in_every_spelling(text: str, hertz: int | None) -> None:
    (gpu,) = rocm_smi_gpus(parse_rocm_smi(json.dumps({"card0": {"sclk clock speed:": text}}).encode()))
    assert [*plausible(gpu).values()] == ([] if hertz is None else [hertz])


def test_first_plausible_value_of_several_keys_counts() -> None:
    texts = {
        "Current Socket Graphics Package Power (W)": "N/A",
        "Average Graphics Package Power (W)": "0.0",
        "Socket Graphics Package Power (W)": "41.0",
    }
    (gpu,) = rocm_smi_gpus({0: texts})
    assert [*gpu.values.values()] == ["41.0"]
    (gpu,) = rocm_smi_gpus({0: dict(list(texts.items())[:2])})
    assert [*gpu.values.values()] == ["N/A"], "the reason is that of the first key"


@pytest.mark.parametrize("text", ["0.001", "0.014"])
def test_power_of_a_few_milliwatts_is_unknown(text: str) -> None:
    (gpu,) = rocm_smi_gpus({0: {"Current Socket Graphics Package Power (W)": text, "GPU use (%)": "3"}})
    assert [*plausible(gpu).values()] == [0.03]


def test_engines_of_all_partitions_count() -> None:
    """amd-smi of ROCm 7 lists them in the entry of the first partition."""
    busy = {"xcp_0": [{"value": 20, "unit": "%"}, "N/A"], "xcp_1": [{"value": 40, "unit": "%"}, "N/A"], "xcp_2": "N/A"}
    metric = parse_amd_smi(json.dumps({"gpu_data": [{"gpu": 0, "usage": {"vcn_busy": busy}}]}).encode())
    (gpu,) = amd_smi_gpus(metric, {})
    assert plausible(gpu) == {AMD_SMI["usage/vcn_activity"].series: 0.3}


# -- recorded output

# Values of the cards in base units, by the tool's key.
RECORDED: dict[str, list[dict[str, float]]] = {
    "rocm-smi_telegraf_mi100_rocm571.json": [
        {
            "GPU use (%)": 0,
            "GPU memory use (%)": 0,
            "Average Graphics Package Power (W)": 39,
            "Max Graphics Package Power (W)": 290,
            "Temperature (Sensor edge) (C)": 31,
            "Temperature (Sensor memory) (C)": 30,
            "VRAM Total Used Memory (B)": 6_782_976,
            "VRAM Total Memory (B)": 34_342_961_152,
            "sclk clock speed:": 300e6,
            "mclk clock speed:": 1200e6,
            "Voltage (mV)": 0.662,
            "PCIe Replay Count": 0,
        },
        {"Average Graphics Package Power (W)": 37, "Temperature (Sensor memory) (C)": 38},
    ],
    "rocm-smi_telegraf_rx6700xt_rocm612.json": [
        {
            "GPU use (%)": 0,
            "Average Graphics Package Power (W)": 6,
            "Max Graphics Package Power (W)": 211,
            "Temperature (Sensor junction) (C)": 47,
            "sclk clock speed:": 0,
            "mclk clock speed:": 96e6,
            "VRAM Total Used Memory (B)": 1_572_745_216,
            "VRAM Total Memory (B)": 12_868_124_672,
            "Voltage (mV)": 0.006,
        },
    ],
    "rocm-smi_rocm5_mi250_2cards.json": [
        {
            "GPU use (%)": 0.1,
            "Average Graphics Package Power (W)": 89,
            "Max Graphics Package Power (W)": 560,
            "Temperature (Sensor HBM 1) (C)": 39,
            "PCIe Replay Count": 147,
            "Energy counter": 62_929_744_071_539 / 65_536,
            "Valid sclk range": 1700e6,
        },
        {"GPU use (%)": 0.2},
    ],
    "rocm-smi_rocm6_mi300x_minimal.json": [
        {"GPU use (%)": 0.1, "Average Graphics Package Power (W)": 89, "Temperature (Sensor memory) (C)": 43}
    ],
    "rocm-smi_6.1.2_fakesysfs_2gpu_a.json": [
        {"GPU use (%)": 0.42, "Average Graphics Package Power (W)": 41},
        {"GPU use (%)": 1.0},
    ],
    "rocm-smi_6.1.2_fakesysfs_card1_broken.json": [
        {"VRAM Total Used Memory (B)": 10_960_896, "Average Graphics Package Power (W)": 41},
        {"VRAM Total Memory (B)": 68_702_699_520},
    ],
    "rocm-smi_no-amd-gpus-specified.stdout.txt": [],
}


@pytest.mark.parametrize("path", samples(*(f"amd/{name}" for name in RECORDED)))
def test_recorded_rocm_smi_output_is_parsed(path: Path) -> None:
    gpus = rocm_smi_gpus(parse_rocm_smi(path.read_bytes()))
    if not RECORDED[path.name]:
        assert gpus == []
        return
    for gpu, expected in zip(gpus, RECORDED[path.name]):
        for key, value in expected.items():
            assert plausible(gpu)[ROCM_SMI[key].series] == pytest.approx(value), (gpu.number, key)
    if "broken" in path.name:
        assert ROCM_SMI["VRAM Total Used Memory (B)"].series not in plausible(gpus[1])
        assert ROCM_SMI["Average Graphics Package Power (W)"].series not in plausible(gpus[1])


@pytest.mark.parametrize("path", samples("amd/amd-smi_6.1.2_fakesysfs_metric.json.txt"))
def test_recorded_amd_smi_output_is_parsed(path: Path) -> None:
    gpus = amd_smi_gpus(parse_amd_smi(path.read_bytes()), {})
    assert len(gpus) == 2
    assert plausible(gpus[0]) == {
        AMD_SMI[path].series: value
        for path, value in {
            "temperature/edge": 33,
            "temperature/hotspot": 35,
            "temperature/mem": 46,
            "mem_usage/used_vram": 10 << 20,
            "mem_usage/total_vram": 65_520 << 20,
        }.items()
    }
