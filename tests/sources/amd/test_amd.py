"""AMD GPUs: sysfs files, gpu_metrics, fdinfo and the output of AMD's tools, valid and broken."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import struct
from collections.abc import Mapping
from contextlib import suppress
from errno import EBUSY, EIO, ENODEV, ENOENT, EPERM
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.samples import samples
from tests.sources.machines import STRANGER
from tests.sources.playing import playing
from tests.sources.radeons import Equipped, by_amd_smi, hidden, laptop, mi210, mi300x, rocm
from tests.sources.reading import all_of, opened, series_of
from tests.tools import amdsysfs
from tests.tools.amdsysfs import KFD, Files, Gpu, number_of, table

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import QUANTITIES
from opentelemetry.instrumentation.hardware.model import CounterRatio, Metric, Rate, Series, Unavailable, Value
from opentelemetry.instrumentation.hardware.sources.amd import amd_smi, rocm_smi
from opentelemetry.instrumentation.hardware.sources.amd.card import Card as BoardCard
from opentelemetry.instrumentation.hardware.sources.amd.metrics import LAYOUTS, Metrics, revision
from opentelemetry.instrumentation.hardware.sources.amd.reading import Card

SLOWLY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def plain(value: Value) -> float:
    if isinstance(value, Rate):
        return value.per_second
    assert not isinstance(value, CounterRatio)
    return value


def read(files: Files, **chosen: Any) -> dict[Series, Value]:
    with opened("amd", Equipped(files), STRANGER, **chosen) as source:
        return all_of(source)


def of(found: Mapping[Series, Value], row: Metric, **beside: str) -> list[float]:
    """The values of the series of a metric that have these attribute values."""
    return [
        plain(value)
        for series, value in series_of(dict(found), row).items()
        if set(beside.values()) <= {str(word) for word in series.attributes.values()}
    ]


# -- gpu_metrics


def blank(form: int, content: int) -> bytearray:
    size = LAYOUTS[form, content].size[-1]
    made = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", made, 0, size, form, content)
    return made


@pytest.mark.parametrize("which", LAYOUTS)
def test_gpu_metrics_of_all_ones_has_no_values(which: tuple[int, int]) -> None:
    metrics = Metrics()
    assert metrics.read(bytes(blank(*which))) == {}
    assert metrics.read(bytes(blank(*which))) == {}
    assert revision(bytes(blank(*which))) == which


ENERGY = {(1, 1): 24, (1, 2): 24, (1, 3): 24, (1, 4): 24, (1, 5): 88, (1, 6): 16, (1, 7): 24, (1, 8): 24}


@pytest.mark.parametrize("which", ENERGY)
def test_gpu_metrics_energy_counts_in_15_microjoules(which: tuple[int, int]) -> None:
    made = blank(*which)
    struct.pack_into("<Q", made, ENERGY[which], 62_929_744_071_539)
    if which < (1, 4):
        assert "energy" not in Metrics().read(bytes(made)), "a board without HBM counts otherwise"
        struct.pack_into("<H", made, 88, 41)
        assert Metrics().read(bytes(made))["temperature.hbm0"] == 41
    assert Metrics().read(bytes(made))["energy"] == pytest.approx(960_231_690.5, abs=1)
    struct.pack_into("<Q", made, ENERGY[which], 0)
    assert "energy" not in Metrics().read(bytes(made))


@pytest.mark.parametrize(
    ("which", "offset", "count", "percent", "task"),
    [
        ((1, 1), 20, 1, 100, "video"),
        ((1, 3), 20, 1, 100, "video"),
        ((1, 4), 16, 4, 100, "video"),
        ((1, 5), 16, 4, 100, "video"),
        ((1, 5), 24, 32, 100, "jpeg"),
        ((2, 4), 30, 1, 10_000, "video"),
        ((3, 0), 44, 1, 100, "video"),
    ],
)
def test_gpu_metrics_engine_utilization_is_the_mean_of_valid_engines(
    which: tuple[int, int], offset: int, count: int, percent: int, task: str
) -> None:
    made = blank(*which)
    struct.pack_into("<H", made, offset, percent * 3 // 10)
    assert Metrics().read(bytes(made)) == {f"utilization.{task}": pytest.approx(0.3)}
    if count > 1:
        struct.pack_into("<H", made, offset + 2 * count - 2, percent // 10)
        assert Metrics().read(bytes(made)) == {f"utilization.{task}": pytest.approx(0.2)}
    struct.pack_into(f"<{count}H", made, offset, *([percent + 1] * count))
    assert Metrics().read(bytes(made)) == {}


@pytest.mark.parametrize(("which", "offset"), [((1, 3), 112), ((2, 2), 120), ((2, 3), 120), ((2, 4), 120)])
def test_gpu_metrics_throttle_status_bits_map_to_reasons(which: tuple[int, int], offset: int) -> None:
    held = {0: "power_cap", 7: "power_cap", 16: "current_cap", 22: "current_cap", 32: "thermal_sw", 47: "thermal_hw"}
    for bit, reason in held.items():
        made = blank(*which)
        struct.pack_into("<Q", made, offset, 1 << bit)
        found = {name: value for name, value in Metrics().read(bytes(made)).items() if value == Rate(1.0)}
        assert list(found) == [f"throttle.{reason}"]
    struct.pack_into("<Q", made, offset, 0)
    assert set(Metrics().read(bytes(made)).values()) == {Rate(0.0)}


@pytest.mark.parametrize(("which", "offset"), [((1, 6), 32), ((1, 7), 40), ((1, 8), 40)])
def test_gpu_metrics_residency_counters_become_shares_of_the_interval(which: tuple[int, int], offset: int) -> None:
    metrics, made = Metrics(), blank(*which)
    top = (1 << 32) - 100
    struct.pack_into("<6I", made, offset, top, 5, 10, 20, 30, 40)
    assert metrics.read(bytes(made)) == {}, "one table alone says nothing of the time before it"
    struct.pack_into("<6I", made, offset, (top + 1000) % (1 << 32), 5, 260, 20, 130, 540)
    assert metrics.read(bytes(made)) == {
        "throttle.thermal_hw": Rate(0.0),
        "throttle.power_cap": Rate(0.25),
        "throttle.thermal_sw": Rate(0.5),
    }
    assert metrics.read(bytes(made)) == {}, "the same table again says nothing"


@pytest.mark.parametrize(
    ("which", "offset"), [((1, 4), 104), ((1, 5), 176), ((1, 6), 128), ((1, 7), 136), ((1, 8), 136)]
)
def test_gpu_metrics_xgmi_counters_are_in_kib(which: tuple[int, int], offset: int) -> None:
    made = blank(*which)
    struct.pack_into("<16Q", made, offset, *[3] * 7, (1 << 64) - 1, *[0] * 8)
    assert Metrics().read(bytes(made)) == {"io.xgmi.receive": 21 * 1024, "io.xgmi.transmit": 0}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"", "0 bytes"),
        (b"\x01\x02", "2 bytes"),
        (struct.pack("<HBB", 96, 1, 9) + b"\xff" * 92, "unknown revision 1.9"),
        (struct.pack("<HBB", 96, 4, 0) + b"\xff" * 92, "unknown revision 4.0"),
        (bytes(blank(1, 3))[:100], "100 bytes long, not 120"),
        (struct.pack("<HBB", 96, 1, 3) + b"\xff" * 116, "96 bytes long, not 120"),
    ],
)
def test_gpu_metrics_of_unknown_revision_or_size_is_refused(said: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Metrics().read(said)


@given(st.sampled_from(sorted(LAYOUTS)), st.binary(max_size=3400), st.integers(0, 1))
@SLOWLY
def test_gpu_metrics_of_random_bytes_has_only_finite_values(which: tuple[int, int], rest: bytes, cut: int) -> None:
    size = LAYOUTS[which].size[0]
    said = struct.pack("<HBB", size, *which) + (rest * (size // max(1, len(rest)) + 1))[: size - 4 - cut]
    metrics = Metrics()
    for _ in range(2):
        try:
            found = metrics.read(said)
        except ValueError:
            continue
        for quantity, value in found.items():
            assert quantity in QUANTITIES
            assert math.isfinite(plain(value))
            assert plain(value) >= 0


# -- sysfs


ERRORS = st.sampled_from([EBUSY, EPERM, EIO, ENODEV, ENOENT]).map(lambda code: OSError(code, os.strerror(code)))
WORDS = st.one_of(
    st.sampled_from(["", "\n", "N/A\n", "-1\n", "nan\n", "inf", "0x10", "1e9", "4294967295\n", "65535\n", "0\n", "²"]),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.text(max_size=12),
    st.binary(max_size=12),
)


def spelled_zeros(files: Files) -> bool:
    return any(
        not isinstance(said, OSError) and (said if isinstance(said, bytes) else said.encode()).strip() == b"0"
        for said in files.values()
    )


@st.composite
def broken(draw: st.DrawFn) -> Files:
    """Two cards, some of whose files are unreadable or have other content."""
    metrics = table(6, energy=1 << 50, residency=(1, 2, 3, 4, 5, 6), xgmi=[5] * 16)
    files = amdsysfs.machine([Gpu(rpm=900, pwm=9, metrics=metrics), Gpu(1, "0000:c9:00.0", unique=None)])
    for name in draw(st.lists(st.sampled_from(sorted(files)), max_size=12, unique=True)):
        files[name] = draw(st.one_of(ERRORS, WORDS))
    return files


ZERO_IS_MADE = ("hw.status", "hw.gpu.time", "hw.gpu.throttle.time", "hw.errors")
"""Metrics whose 0 is not the text of a file: a state that does not hold, a flag, or a count in ``ue: 0``."""


@given(broken())
@SLOWLY
def test_random_sysfs_files_raise_nothing_and_give_plausible_values(files: Files) -> None:
    try:
        found = read(files)
    except Unavailable:
        return
    zeros = spelled_zeros(files)
    for series, value in found.items():
        assert math.isfinite(plain(value)), series
        assert plain(value) > 0 or zeros or series.metric.name in ZERO_IS_MADE, series
        if series.metric.unit == "1" and series.metric is not c.HW_POWER_UTILIZATION:
            assert 0 <= plain(value) <= 1, series
        if series.metric is c.HW_TEMPERATURE:
            assert 0 < plain(value) <= 150, series


@pytest.mark.parametrize("file", ["gpu_busy_percent", "mem_info_vram_used", "hwmon/hwmon3/power1_average"])
@pytest.mark.parametrize("said", ["-5\n", "101%\n", "", "nonsense", "99999999999999999999999"])
def test_invalid_sysfs_value_drops_only_its_own_metrics(file: str, said: str) -> None:
    gpu = Gpu()
    found = read(amdsysfs.machine([gpu]) | {f"{gpu.folder}/{file}": said})
    whole = read(amdsysfs.machine([gpu]))
    lacking = {series.metric.name for series in whole} - {series.metric.name for series in found}
    assert lacking
    assert (
        lacking
        <= {
            "gpu_busy_percent": {"hw.gpu.utilization.peak"},
            "mem_info_vram_used": {
                "hw.gpu.memory.usage",
                "hw.gpu.memory.peak",
                "hw.gpu.memory.utilization",
                "hw.gpu.memory.limit",
            },
            "hwmon/hwmon3/power1_average": {"hw.power", "hw.power.peak", "hw.power.utilization", "hw.energy"},
        }[file]
    )


def test_zero_temperature_and_zero_power_are_dropped() -> None:
    found = read(amdsysfs.machine([Gpu(edge=0, power=0, busy=0)]))
    assert not of(found, c.HW_POWER)
    assert not of(found, c.HW_TEMPERATURE, at="edge")
    assert of(found, c.HW_TEMPERATURE, at="junction") == [35]
    assert of(found, c.HW_GPU_UTILIZATION, task="general") == [0], "an idle device is idle"


@pytest.mark.parametrize(
    ("pwm", "largest", "ratio"),
    [
        pytest.param(102, "255\n", ["0.4"], id="255 as amdgpu has it"),
        pytest.param(40, "100\n", ["0.4"], id="100"),
        pytest.param(100, "100\n", ["1.0"], id="full speed"),
        pytest.param(101, "100\n", [], id="above the largest"),
        pytest.param(102, None, ["0.4"], id="no pwm1_max, so 255 as hwmon documents"),
        pytest.param(102, "0\n", [], id="0"),
        pytest.param(102, "", [], id="empty"),
    ],
)
def test_fan_speed_ratio_is_pwm1_by_pwm1_max(pwm: int, largest: str | None, ratio: list[str]) -> None:
    gpu = Gpu(rpm=1200, pwm=pwm)
    files = amdsysfs.machine([gpu])
    if largest is None:
        del files[f"{gpu.monitor}/pwm1_max"]
    else:
        files[f"{gpu.monitor}/pwm1_max"] = largest
    with playing(lambda source: Equipped(files), {"sources": ["amd"]}, STRANGER) as stage:
        exported = [line for line in stage.tick() if line.startswith("hw.fan.speed_ratio{")]
    assert [line.rsplit(" ", 3)[1] for line in exported] == ratio


def test_gpu_index_follows_the_pci_address() -> None:
    found = read(amdsysfs.machine([Gpu(0, "0000:c9:00.0", unique="2" * 16), Gpu(10, "0000:03:00.0", unique="1" * 16)]))
    indices = {series.attributes[c.HW_ID]: series.attributes[c.GPU_INDEX] for series in series_of(found, c.HW_GPU_INFO)}
    assert indices == {"1" * 16: 0, "2" * 16: 1}


def test_second_die_with_same_unique_id_is_identified_by_pci_address() -> None:
    found = read(amdsysfs.machine([Gpu(0, "0000:03:00.0"), Gpu(1, "0000:c9:00.0")]))
    assert {series.attributes[c.HW_ID] for series in series_of(found, c.HW_POWER)} == {
        "43cc8cc8af246700",
        "0000:c9:00.0",
    }


def test_drm_connectors_and_other_vendors_are_ignored() -> None:
    files = amdsysfs.machine([Gpu(1)])
    files |= {"/sys/class/drm/card1-HDMI-A-1/status": "connected\n", "/sys/class/drm/renderD128/dev": "226:128\n"}
    files |= {"/sys/class/drm/card0/device/uevent": "DRIVER=nouveau\nPCI_ID=10DE:1234\nPCI_SLOT_NAME=0000:01:00.0\n"}
    assert len(series_of(read(files), c.HW_GPU_INFO)) == 1


def test_unreadable_energy_counter_is_not_replaced_by_an_estimate() -> None:
    gpu = Gpu(metrics=table(6, energy=1 << 40))
    files = amdsysfs.machine([gpu])
    drivers = Equipped(files)
    with opened("amd", drivers, STRANGER) as source:
        first = all_of(source)
        assert drivers.tree is not None
        drivers.tree.files[f"{gpu.folder}/gpu_metrics"] = OSError(EBUSY, "busy")
        second = all_of(source)
        assert of(first, c.HW_ENERGY) == of(second, c.HW_ENERGY) == [float(1 << 24)]
        assert source.unsupported == ["gpu_metrics: busy"]


def test_unreadable_memory_total_is_read_again() -> None:
    gpu = Gpu()
    drivers = Equipped(amdsysfs.machine([gpu]) | {f"{gpu.folder}/mem_info_vram_total": OSError(EBUSY, "busy")})
    with opened("amd", drivers, STRANGER) as source:
        assert not of(all_of(source), c.HW_GPU_MEMORY_USAGE), "what is used of an unknown whole is not believed"
        assert drivers.tree is not None
        drivers.tree.files[f"{gpu.folder}/mem_info_vram_total"] = "68702699520\n"
        assert of(all_of(source), c.HW_GPU_MEMORY_USAGE) == [10_960_896_000]
        assert source.unsupported == []


def test_memory_total_is_read_again_after_a_card_comes_back() -> None:
    gpu = Gpu()
    drivers = Equipped(amdsysfs.machine([gpu]))
    assert drivers.tree is not None
    files = drivers.tree.files
    with opened("amd", drivers, STRANGER) as source:
        assert of(all_of(source), c.HW_GPU_MEMORY_LIMIT) == [68_702_699_520]
        well = {path: said for path, said in files.items() if path.startswith(gpu.folder)}
        files.update(dict.fromkeys(well, OSError(ENODEV, "No such device")))
        all_of(source)
        files.update(well | {f"{gpu.folder}/mem_info_vram_total": "34351349760\n"})
        assert of(all_of(source), c.HW_GPU_MEMORY_LIMIT) == [34_351_349_760]


def test_process_memory_of_gpu_partitions_is_summed() -> None:
    """KFD has a node for each partition, all at one PCI address; the sysfs files are those of the whole GPU."""
    gpu = Gpu()
    files = amdsysfs.machine([gpu])
    for part in (1, 2):
        folder = f"{KFD}/topology/nodes/{part + 1}"
        files |= {
            f"{folder}/gpu_id": f"{7000 + part}\n",
            f"{folder}/properties": files[f"{KFD}/topology/nodes/1/properties"],
        }
        files[f"{KFD}/proc/{STRANGER}/vram_{7000 + part}"] = f"{part}000\n"
    files[f"{KFD}/proc/{STRANGER}/vram_{number_of(gpu)}"] = "500\n"
    assert used(Equipped(files)) == {"43cc8cc8af246700": 3500}


def test_only_runtime_status_of_a_suspended_card_is_read() -> None:
    gpu = Gpu(asleep=True)
    drivers = Equipped(amdsysfs.machine([gpu]))
    with opened("amd", drivers, STRANGER) as source:
        assert all_of(source) == {}
        assert drivers.tree is not None
        asked = {name.removeprefix(gpu.folder) for name in drivers.tree.asked if name.startswith(gpu.folder)}
        assert asked == {"/uevent", "/power/runtime_status"}


@pytest.mark.parametrize(
    ("gpu", "pace"),
    [
        (Gpu(busy=0, control="auto"), 6.0),
        (Gpu(busy=3, control="auto"), 0.0),
        (Gpu(busy=0, control="on"), 0.0),
        (Gpu(busy=0), 0.0),
        (Gpu(asleep=True, control="auto"), 0.0),
    ],
)
def test_idle_card_with_runtime_pm_is_polled_slower_than_its_autosuspend_delay(gpu: Gpu, pace: float) -> None:
    with opened("amd", Equipped(amdsysfs.machine([gpu])), STRANGER) as source:
        all_of(source)
        assert source.min_interval == pace


@pytest.mark.parametrize("said", [OSError(EIO, "not supported"), "0\n", "N/A\n"])
def test_power_falls_back_to_power1_input(said: OSError | str) -> None:
    gpu = Gpu(power_file="power1_input", power=97_000_000)
    files = amdsysfs.machine([gpu]) | {f"{gpu.monitor}/power1_average": said}
    assert of(read(files), c.HW_POWER) == [97]


def test_job_member_reports_only_process_memory() -> None:
    drivers = mi300x(0)
    with opened("amd", drivers, STRANGER) as source:
        source.context = source.context._replace(is_reporter=False)
        rows = {series.metric for series in all_of(source)}
    assert rows == {c.PROCESS_GPU_MEMORY_USAGE}


# -- processes


def used(drivers: Any) -> dict[str, float]:
    with opened("amd", drivers, STRANGER) as source:
        found = all_of(source)
    return {
        str(series.attributes[c.HW_ID]): plain(value)
        for series, value in series_of(found, c.PROCESS_GPU_MEMORY_USAGE).items()
    }


def test_process_memory_includes_child_processes() -> None:
    assert used(mi300x(0)) == {"43cc8cc8af246700": 71_000_000_000, "43cc8cc8af246701": 2_000_000_000}


def test_kfd_pids_are_ignored_in_a_pid_namespace() -> None:
    assert used(hidden(0)) == {}
    assert used(laptop(0)) == {"0000:63:00.0": (65_536 + 1_024) << 10}, "open files are certainly ours"


@pytest.mark.parametrize(
    ("lines", "memory"),
    [
        ("drm-memory-vram:\t12 KiB\n", 12 << 10),
        ("drm-resident-vram:\t3 MiB\ndrm-memory-vram:\t12 KiB\n", 3 << 20),
        ("drm-resident-vram:\t0\ndrm-total-vram:\t12 KiB\n", 0),
        ("drm-memory-vram:\t4096\n", 4096),
        ("drm-memory-vram:\t12 KB\n", None),
        ("drm-total-vram:\t12 KiB\n", None),
    ],
)
def test_fdinfo_memory_is_read_from_old_and_new_keys(lines: str, memory: int | None) -> None:
    head = "drm-driver:\tamdgpu\ndrm-client-id:\t4\ndrm-pdev:\t0000:63:00.0\n"
    opens = {f"/proc/{STRANGER}/fd/7": "/dev/dri/renderD128", f"/proc/{STRANGER}/fdinfo/7": head + lines}
    assert used(Equipped(amdsysfs.machine([Gpu(unique=None)]) | opens)) == (
        {} if memory is None else {"0000:63:00.0": memory}
    )


def test_unused_card_has_no_process_memory() -> None:
    assert used(mi210(0)) == {}


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "drm-driver",
                "drm-pdev",
                "drm-client-id",
                "drm-memory-vram",
                "drm-resident-vram",
                "drm-engine-gfx",
                "drm-engine-dec",
            ]
        ),
        st.one_of(
            WORDS.filter(lambda word: isinstance(word, str)),
            st.sampled_from(["amdgpu", "0000:63:00.0", "7", "12 KiB", "9 ns", "1 XiB"]),
        ),
    ),
    ERRORS | st.none(),
)
@SLOWLY
def test_random_fdinfo_raises_nothing(said: dict[str, str], error: OSError | None) -> None:
    gpu = Gpu()
    text = "".join(f"{name}:\t{value}\n" for name, value in said.items())
    files = amdsysfs.machine([gpu]) | {
        f"/proc/{STRANGER}/fd/7": error or "/dev/dri/renderD128",
        f"/proc/{STRANGER}/fdinfo/7": text.encode("utf-8", "surrogatepass"),
        f"{KFD}/proc/{STRANGER}/vram_{number_of(gpu)}": said.get("drm-pdev", "").encode("utf-8", "surrogatepass"),
    }
    for value in used(Equipped(files)).values():
        assert isinstance(value, int)
        assert value >= 0


# -- the tools


def believable(cards: list[Card], texts: Mapping[int, Mapping[str, str]], table: Mapping[str, Any]) -> None:
    """Assert that all values are plausible, and that each 0 was printed as one."""
    for card in cards:
        for quantity, number in card.numbers.items():
            assert quantity in QUANTITIES
            assert math.isfinite(number)
            assert number >= 0
            if number == 0:
                assert not quantity.startswith(("temperature", "power", "energy", "memory", "voltage"))
                said = [texts[card.number][name] for name in table[quantity][1] if name in texts[card.number]]
                assert any(re.fullmatch("[^1-9]*0[^1-9]*", text.partition(" (")[2] or text) for text in said), said
            if quantity.startswith("utilization."):
                assert number <= 1


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
@SLOWLY
def test_random_rocm_smi_output_gives_plausible_values(version: str, data: st.DataObject) -> None:
    document = rocm(version, 0)
    for card in ("card0", "card1"):
        for key in data.draw(st.lists(st.sampled_from(sorted(document[card])), max_size=8)):
            document[card][key] = data.draw(JUNK)
    text = json.dumps(document).encode()
    cut = data.draw(st.integers(0, len(text)))
    printed = data.draw(st.binary(max_size=20)) + (text if data.draw(st.booleans()) else text[:cut])
    with suppress(ValueError):
        believable(rocm_smi.parse(printed)[1], rocm_smi.said(printed)[1], rocm_smi.NUMBERS)


@given(st.sampled_from([6, 7]), st.data())
@SLOWLY
def test_random_amd_smi_output_gives_plausible_values(version: int, data: st.DataObject) -> None:
    printed = by_amd_smi(version)(0).tools["amd-smi"].said["metric"]
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
        believable(amd_smi.parse(noise + text), amd_smi.facts(noise + text), amd_smi.NUMBERS)


@given(
    st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
)
@SLOWLY
def test_output_without_json_raises_value_error(printed: bytes) -> None:
    for parse in (rocm_smi.parse, amd_smi.parse, amd_smi.facts):
        with pytest.raises(ValueError, match="there is no document"):
            parse(printed)


@pytest.mark.parametrize(
    "printed", [b"[" * 200_000, b'{"a":' * 100_000, b"{" * 10 + b"\xff" * 100, b'{"card0": ' + b"9" * 5000 + b"}"]
)
def test_deeply_nested_json_raises_value_error(printed: bytes) -> None:
    with pytest.raises(ValueError, match="there is no document"):
        rocm_smi.parse(printed)
    with pytest.raises(ValueError, match="there is no document"):
        amd_smi.parse(printed)


# -- recorded output

RECORDED: dict[str, list[dict[str, float]]] = {
    "rocm-smi_telegraf_mi100_rocm571.json": [
        {
            "utilization.general": 0,
            "utilization.memory": 0,
            "power": 39,
            "power.limit.enforced": 290,
            "temperature.edge": 31,
            "temperature.memory": 30,
            "memory.used": 6_782_976,
            "memory.total": 34_342_961_152,
            "frequency.graphics": 300e6,
            "frequency.memory": 1200e6,
            "voltage.gpu": 0.662,
            "errors.pcie_replay": 0,
        },
        {"power": 37, "temperature.memory": 38},
    ],
    "rocm-smi_telegraf_rx6700xt_rocm612.json": [
        {
            "utilization.general": 0,
            "power": 6,
            "power.limit.enforced": 211,
            "temperature.junction": 47,
            "frequency.graphics": 0,
            "frequency.memory": 96e6,
            "memory.used": 1_572_745_216,
            "memory.total": 12_868_124_672,
            "voltage.gpu": 0.006,
        },
    ],
    "rocm-smi_rocm5_mi250_2cards.json": [
        {
            "utilization.general": 0.1,
            "power": 89,
            "power.limit.enforced": 560,
            "temperature.hbm1": 39,
            "errors.pcie_replay": 147,
            "energy": 62_929_744_071_539 / 65_536,
            "frequency.limit.graphics": 1700e6,
        },
        {"utilization.general": 0.2},
    ],
    "rocm-smi_rocm6_mi300x_minimal.json": [{"utilization.general": 0.1, "power": 89, "temperature.memory": 43}],
    "rocm-smi_6.1.2_fakesysfs_2gpu_a.json": [{"utilization.general": 0.42, "power": 41}, {"utilization.general": 1.0}],
    "rocm-smi_6.1.2_fakesysfs_card1_broken.json": [
        {"memory.used": 10_960_896, "power": 41},
        {"memory.total": 68_702_699_520},
    ],
    "rocm-smi_no-amd-gpus-specified.stdout.txt": [],
}


@pytest.mark.parametrize("path", samples(*(f"amd/{name}" for name in RECORDED)))
def test_recorded_rocm_smi_output_is_parsed(path: Path) -> None:
    document = path.read_bytes()
    _, cards = rocm_smi.parse(document)
    if not RECORDED[path.name]:
        assert cards == []
        return
    for card, expected in zip(cards, RECORDED[path.name]):
        for quantity, number in expected.items():
            assert card.numbers[quantity] == pytest.approx(number), (card.number, quantity)
    believable(cards, rocm_smi.said(document)[1], rocm_smi.NUMBERS)
    if "broken" in path.name:
        assert "memory.used" not in cards[1].numbers
        assert "power" not in cards[1].numbers


@pytest.mark.parametrize("path", samples("amd/amd-smi_6.1.2_fakesysfs_metric.json.txt"))
def test_recorded_amd_smi_output_is_parsed(path: Path) -> None:
    cards = amd_smi.parse(path.read_bytes())
    assert len(cards) == 2
    assert cards[0].numbers == {
        "temperature.edge": 33,
        "temperature.junction": 35,
        "temperature.memory": 46,
        "memory.used": 10 << 20,
        "memory.total": 65_520 << 20,
    }


def test_lost_card_and_its_recovery_are_logged_once_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu = Gpu()
    drivers = Equipped(amdsysfs.machine([gpu]))
    assert drivers.tree is not None
    files = drivers.tree.files
    with caplog.at_level(logging.INFO), opened("amd", drivers, STRANGER) as source:
        all_of(source)
        well = {path: said for path, said in files.items() if path.startswith(gpu.folder)}
        for now in (dict.fromkeys(well, OSError(ENODEV, "No such device")), well):
            files.update(now)
            all_of(source)
            all_of(source)
    assert [record.getMessage() for record in caplog.records] == [
        f"GPU 0 ({gpu.bdf}): No such device; its numbers are missing until it answers",
        f"GPU 0 ({gpu.bdf}) answers again",
    ]


def test_card_without_a_sysfs_folder_raises_file_not_found() -> None:
    drivers = Equipped({})
    card = BoardCard(drivers.files(), "card7", "0000:03:00.0", 0, "1002:740F")
    with pytest.raises(OSError, match="No such file"):
        card.find(set(), {}, None)
