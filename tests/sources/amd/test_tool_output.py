"""The output of amd-smi and rocm-smi: valid, broken, random and recorded."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.sources.radeons import by_amd_smi, rocm
from tests.support.samples import samples

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Rate, Series
from opentelemetry.instrumentation.hardware.sources.amd.fields import AMD_SMI, ROCM_SMI
from opentelemetry.instrumentation.hardware.sources.amd.tool_output import (
    GpuOutput,
    amd_smi_gpus,
    parse_amd_smi,
    parse_rocm_smi,
    rocm_smi_gpus,
)

RANDOM = settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def plausible(gpu: GpuOutput) -> dict[Series, float]:
    """The plausible values of a GPU."""
    found = {}
    for field, text in gpu.values.items():
        with suppress(ValueError):
            value = field.value(text)
            assert not isinstance(value, Rate)
            found[field.series] = value
    return found


ZERO_IS_PLAUSIBLE = (
    c.HW_GPU_UTILIZATION, c.HW_GPU_FREQUENCY, c.HW_ERRORS, c.HW_FAN_SPEED, c.HW_FAN_SPEED_RATIO,
    c.HW_GPU_MEMORY_OVERDRIVE_RATIO, c.HW_GPU_MEMORY_UTILIZATION,  # in whole percent
)  # fmt: skip


def check(gpus: Sequence[GpuOutput]) -> None:
    """Assert that the values are finite, not negative, and 0 only where 0 is plausible."""
    for gpu in gpus:
        for series, value in plausible(gpu).items():
            assert math.isfinite(value)
            assert value > 0 or (value == 0 and series.metric in ZERO_IS_PLAUSIBLE), series
            assert series.metric is not c.HW_GPU_UTILIZATION or value <= 1


JUNK = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=8),
        st.sampled_from(["N/A", "0", "0.0", "-1", "nan", "1e999", "(0Mhz)", "4294967295", "999999999999999999999"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(["4.3", "5.7", "6.1"]), st.data())
@RANDOM
def test_random_rocm_smi_output_gives_plausible_values(version: str, data: st.DataObject) -> None:
    document = rocm(version, 0)
    for card in ("card0", "card1"):
        for key in data.draw(st.lists(st.sampled_from(sorted(document[card])), max_size=8)):
            document[card][key] = data.draw(JUNK)
    text = json.dumps(document).encode()
    cut = data.draw(st.integers(0, len(text)))
    printed = data.draw(st.binary(max_size=20)) + (text if data.draw(st.booleans()) else text[:cut])
    with suppress(ValueError):
        check(rocm_smi_gpus(parse_rocm_smi(printed)))


@given(st.sampled_from([6, 7]), st.data())
@RANDOM
def test_random_amd_smi_output_gives_plausible_values(version: int, data: st.DataObject) -> None:
    printed = by_amd_smi(version)(0).tools["amd-smi"].outputs["metric"]
    document = json.loads(printed[printed.index(b"[render]\n") + len(b"[render]\n") :])
    entries = document if version == 6 else document["gpu_data"]
    for entry in entries:
        for section in data.draw(st.lists(st.sampled_from(sorted(entry)), max_size=4)):
            inner = entry[section]
            if isinstance(inner, dict) and inner and data.draw(st.booleans()):
                inner[data.draw(st.sampled_from(sorted(inner)))] = data.draw(JUNK)
            else:
                entry[section] = data.draw(JUNK)
    text = json.dumps(document).encode()
    noise = data.draw(st.sampled_from([b"", b"Failed to open file: /sys \n", b"[ERROR] {half\n", b"[]{}"]))
    with suppress(ValueError):
        check(amd_smi_gpus(parse_amd_smi(noise + text), {}))


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
)
@example(b"[" * 200_000)
@example(b'{"a":' * 100_000)
@example(b"{" * 10 + b"\xff" * 100)
@example(b'{"card0": ' + b"9" * 5000 + b"}")
@RANDOM
def test_output_without_json_raises_value_error(printed: bytes) -> None:
    for parse in (parse_rocm_smi, parse_amd_smi):
        with pytest.raises(ValueError, match="printed no JSON document"):
            parse(printed)


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
    check(gpus)
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
