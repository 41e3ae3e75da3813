"""AMD GPUs by the files of amdgpu: valid, broken, suspended, gone."""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from errno import EBUSY, EIO, ENODEV, ENOENT, EPERM
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sources.machines import STRANGER
from tests.sources.playing import playing
from tests.sources.radeons import ALL, DENIED, by_amd_smi, radeon_host
from tests.sources.reading import all_of, by_id, opened, series_of
from tests.sources.tree import Fabricated
from tests.tools import amdsysfs
from tests.tools.amdsysfs import Files, Gpu, table

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import CounterRatio, Metric, Rate, Series, Unavailable, Value
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext
from opentelemetry.instrumentation.hardware.sources.amd import Amd


def plain(value: Value) -> float:
    if isinstance(value, Rate):
        return value.per_second
    assert not isinstance(value, CounterRatio)
    return value


def read(files: Files, **settings: Any) -> dict[Series, Value]:
    """Open the source, and read it once."""
    with opened("amd", radeon_host(files), STRANGER, **settings) as source:
        return all_of(source)


def values(points: Mapping[Series, Value], metric: Metric, **attributes: str) -> list[float]:
    """The values of the series of a metric that have these attribute values."""
    return [
        plain(value)
        for series, value in series_of(dict(points), metric).items()
        if set(attributes.values()) <= {str(word) for word in series.attributes.values()}
    ]


ERRORS = st.sampled_from([EBUSY, EPERM, EIO, ENODEV, ENOENT]).map(lambda code: OSError(code, os.strerror(code)))
WORDS = st.one_of(
    st.sampled_from(["", "\n", "N/A\n", "-1\n", "nan\n", "inf", "0x10", "1e9", "4294967295\n", "65535\n", "0\n", "²"]),
    st.integers(-(1 << 70), 1 << 70).map(str),
    st.text(max_size=12),
    st.binary(max_size=12),
)


def has_zero(files: Files) -> bool:
    return any(
        not isinstance(content, OSError)
        and (content if isinstance(content, bytes) else content.encode()).strip() == b"0"
        for content in files.values()
    )


@st.composite
def broken(draw: st.DrawFn) -> Files:
    """Two cards, some of whose files are unreadable or have other content."""
    metrics = table(6, energy=1 << 50, residency=(1, 2, 3, 4, 5, 6), xgmi=[5] * 16)
    files = amdsysfs.machine([Gpu(rpm=900, pwm=9, metrics=metrics), Gpu(1, "0000:c9:00.0", unique=None)])
    for name in draw(st.lists(st.sampled_from(sorted(files)), max_size=12, unique=True)):
        files[name] = draw(st.one_of(ERRORS, WORDS))
    return files


# Metrics with a 0 that is not the content of a file: a state that does not hold, or a count in ``ue: 0``.
ZERO_IS_DERIVED = ("hw.status", "hw.gpu.time", "hw.gpu.throttle.time", "hw.errors")


@given(broken())
@settings(max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_random_sysfs_files_raise_nothing_and_give_plausible_values(files: Files) -> None:
    try:
        found = read(files)
    except Unavailable:
        return
    zeros = has_zero(files)
    for series, value in found.items():
        assert math.isfinite(plain(value)), series
        assert plain(value) > 0 or zeros or series.metric.name in ZERO_IS_DERIVED, series
        if series.metric.unit == "1" and series.metric is not c.HW_POWER_UTILIZATION:
            assert 0 <= plain(value) <= 1, series
        if series.metric is c.HW_TEMPERATURE:
            assert 0 < plain(value) <= 150, series


@pytest.mark.parametrize("file", ["gpu_busy_percent", "mem_info_vram_used", "hwmon/hwmon3/power1_average"])
@pytest.mark.parametrize("content", ["-5\n", "101%\n", "", "nonsense", "99999999999999999999999"])
def test_invalid_sysfs_value_drops_only_its_own_metrics(file: str, content: str) -> None:
    gpu = Gpu()
    found = read(amdsysfs.machine([gpu]) | {f"{gpu.folder}/{file}": content})
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
    assert not values(found, c.HW_POWER)
    assert not values(found, c.HW_TEMPERATURE, at="edge")
    assert values(found, c.HW_TEMPERATURE, at="junction") == [35]
    assert values(found, c.HW_GPU_UTILIZATION, task="general") == [0], "an idle GPU has a utilization of 0"


@pytest.mark.parametrize(
    ("gpu", "metric"),
    [
        pytest.param(Gpu(rpm=0xFFFF), c.HW_FAN_SPEED, id="speed of a fan that is unknown or absent"),
        pytest.param(Gpu(power=1_000), c.HW_POWER, id="power of Picasso"),
        pytest.param(Gpu(power=12_000), c.HW_POWER, id="power of Granite Ridge"),
        pytest.param(Gpu(instant=12_000), c.HW_POWER_INSTANT, id="power at the moment"),
    ],
)
def test_number_that_stands_for_an_unknown_value_is_none(gpu: Gpu, metric: Metric) -> None:
    assert not values(read(amdsysfs.machine([gpu])), metric)


def integrated(form: int = 3, **changes: Any) -> Gpu:
    """The GPU of a CPU, which has 512 MiB of its own and 64 GiB of the host's memory (GTT)."""
    size = {2: 120, 3: 264}[form]
    metrics = struct.pack("<HBB", size, form, {2: 1, 3: 0}[form]) + b"\xff" * (size - 4)
    return Gpu(device="1586", used=400 << 20, total=512 << 20, metrics=metrics, **changes)


def with_gtt(gpu: Gpu, used: str | OSError = f"{30 << 30}\n") -> Files:
    sizes: Files = {f"{gpu.folder}/mem_info_gtt_total": f"{64 << 30}\n", f"{gpu.folder}/mem_info_gtt_used": used}
    return amdsysfs.machine([gpu]) | sizes


@pytest.mark.parametrize("form", [2, 3])
def test_memory_of_an_integrated_gpu_is_its_own_and_what_it_has_of_the_host(form: int) -> None:
    """The kernel gives ROCm memory of the larger part, and graphics that of both."""
    files = with_gtt(integrated(form))
    found = read(files)
    assert values(found, c.HW_GPU_MEMORY_USAGE) == [(400 << 20) + (30 << 30)]
    assert values(found, c.HW_GPU_MEMORY_LIMIT) == [(512 << 20) + (64 << 30)]
    with in_rank(radeon_host(files), is_reporter=False) as source:
        assert values(for_spans(source), c.HW_GPU_MEMORY_USAGE) == [(400 << 20) + (30 << 30)]


@pytest.mark.parametrize("used", [OSError(EIO, "Input/output error"), "N/A\n", ""])
def test_memory_of_an_integrated_gpu_is_unknown_if_a_part_is(used: str | OSError) -> None:
    found = read(with_gtt(integrated(), used))
    assert not values(found, c.HW_GPU_MEMORY_USAGE)
    assert values(found, c.HW_GPU_UTILIZATION)


@pytest.mark.parametrize("gpu", [Gpu(metrics=table(3)), Gpu(device="74A0", metrics=table(6))], ids=["card", "MI300A"])
def test_memory_of_other_gpus_is_their_own(gpu: Gpu) -> None:
    found = read(with_gtt(gpu))
    assert values(found, c.HW_GPU_MEMORY_USAGE) == [gpu.used]
    assert values(found, c.HW_GPU_MEMORY_LIMIT) == [gpu.total]


def test_type_is_known_from_a_table_of_unknown_revision() -> None:
    """Vega 20 has revision 1.0, also with new kernels."""
    found = read(amdsysfs.machine([Gpu(metrics=struct.pack("<HBB", 80, 1, 0) + bytes(76))]))
    (info,) = series_of(found, c.HW_GPU_INFO)
    assert info.attributes[c.GPU_TYPE] == "discrete"


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
    with playing(lambda source: radeon_host(files), {"sources": ["amd"]}, STRANGER) as stage:
        exported = [line for line in stage.tick() if line.startswith("hw.fan.speed_ratio{")]
    assert [line.rsplit(" ", 3)[1] for line in exported] == ratio


def test_gpu_index_follows_the_pci_address() -> None:
    found = read(amdsysfs.machine([Gpu(0, "0000:c9:00.0", unique="2" * 16), Gpu(10, "0000:03:00.0", unique="1" * 16)]))
    indices = {series.attributes[c.HW_ID]: series.attributes[c.GPU_INDEX] for series in series_of(found, c.HW_GPU_INFO)}
    assert indices == {"1" * 16: 0, "2" * 16: 1}


def test_second_die_with_same_unique_id_is_identified_by_pci_address() -> None:
    found = read(amdsysfs.machine([Gpu(0, "0000:03:00.0"), Gpu(1, "0000:c9:00.0")]))
    assert by_id(found, c.HW_POWER).keys() == {"43cc8cc8af246700", "0000:c9:00.0"}


@pytest.mark.parametrize("number", [0x43CC8CC8AF246700, 0x003C8CC8AF246700, 0xFFCC8CC8AF246700], ids=hex)
def test_card_has_the_same_id_whichever_way_it_is_read(number: int) -> None:
    """The kernel prints sixteen digits, the tools hexadecimal and decimal numbers."""

    def ids(drivers: Fabricated, **settings: Any) -> set[object]:
        with playing(lambda name: drivers, {"sources": ["amd"], **settings}, STRANGER) as stage:
            return {word for line in stage.tick() for word in re.findall(r"hw.id=([^,}/]+)", line)}

    def amd_smi(serial: str) -> Fabricated:
        metric = [{"gpu": 0, "usage": {"gfx_activity": 5}}]
        static = [{"gpu": 0, "asic": {"asic_serial": serial}, "bus": {"bdf": "0000:63:00.0"}}]
        outputs = {"metric --json": json.dumps(metric).encode(), "static --json": json.dumps(static).encode()}
        return radeon_host(amdsysfs.module(), {"amd-smi": outputs})

    card = {"Unique ID": f"{number:#x}", "PCI Bus": "0000:63:00.0", "GPU use (%)": "5"}
    rocm_smi = radeon_host(amdsysfs.module(), {"rocm-smi": {ALL: json.dumps({"card0": card}).encode()}})
    by_tool = {"amdgpu": "off"}
    expected = {f"{number:016x}"}
    assert ids(radeon_host(amdsysfs.machine([Gpu(unique=f"{number:016x}")]))) == expected
    assert ids(rocm_smi, **by_tool) == expected
    assert ids(amd_smi(f"0x{number:016X}"), **by_tool) == expected
    assert ids(amd_smi(f"0x{number}"), **by_tool) == expected, "ROCm 6.1"


@pytest.mark.parametrize("serial", ["0x0", "N/A", "0xFFFFFFFFFFFFFFFF"])
def test_gpu_without_a_number_is_identified_by_pci_address(serial: str) -> None:
    card = {"Unique ID": serial, "PCI Bus": "0000:63:00.0", "GPU use (%)": "5"}
    drivers = radeon_host(amdsysfs.module(), {"rocm-smi": {ALL: json.dumps({"card0": card}).encode()}})
    with opened("amd", drivers, STRANGER, amdgpu="off") as source:
        (series,) = series_of(all_of(source), c.HW_GPU_UTILIZATION)
    assert series.attributes[c.HW_ID] == "0000:63:00.0"


def test_gpu_of_which_all_sections_are_unavailable_has_status_ok() -> None:
    """amd-smi prints N/A in place of a whole section."""
    sections = ("usage", "power", "clock", "temperature", "pcie", "ecc", "ecc_blocks", "fan", "energy", "mem_usage")
    metric = json.dumps([{"gpu": 0, **dict.fromkeys(sections, "N/A")}]).encode()
    static = json.dumps([{"gpu": 0, "asic": {"asic_serial": "0x43CC8CC8AF246700"}}]).encode()
    drivers = radeon_host(amdsysfs.module(), {"amd-smi": {"metric --json": metric, "static --json": static}})
    with opened("amd", drivers, STRANGER, amdgpu="off") as source:
        for _ in range(2):
            found = all_of(source)
            assert values(found, c.HW_STATUS, state="ok") == [1]
            assert values(found, c.HW_STATUS, state="failed") == [0]
        assert any("the driver reports 'N/A'" in sentence for sentence in source.unsupported)


def test_drm_connectors_and_other_vendors_are_ignored() -> None:
    files = amdsysfs.machine([Gpu(1)])
    files |= {"/sys/class/drm/card1-HDMI-A-1/status": "connected\n", "/sys/class/drm/renderD128/dev": "226:128\n"}
    files |= {"/sys/class/drm/card0/device/uevent": "DRIVER=nouveau\nPCI_ID=10DE:1234\nPCI_SLOT_NAME=0000:01:00.0\n"}
    assert len(series_of(read(files), c.HW_GPU_INFO)) == 1


def test_unreadable_memory_total_is_read_again() -> None:
    gpu = Gpu()
    drivers = radeon_host(amdsysfs.machine([gpu]) | {f"{gpu.folder}/mem_info_vram_total": OSError(EBUSY, "busy")})
    with opened("amd", drivers, STRANGER) as source:
        assert not values(all_of(source), c.HW_GPU_MEMORY_USAGE), (
            "the usage of a memory of unknown size may be anything"
        )
        drivers.tree.files[f"{gpu.folder}/mem_info_vram_total"] = "68702699520\n"
        assert values(all_of(source), c.HW_GPU_MEMORY_USAGE) == [10_960_896_000]
        assert source.unsupported == []


def test_memory_total_is_read_again_after_a_card_comes_back() -> None:
    gpu = Gpu()
    drivers = radeon_host(amdsysfs.machine([gpu]))
    files = drivers.tree.files
    with opened("amd", drivers, STRANGER) as source:
        assert values(all_of(source), c.HW_GPU_MEMORY_LIMIT) == [68_702_699_520]
        healthy = {path: content for path, content in files.items() if path.startswith(gpu.folder)}
        files.update(dict.fromkeys(healthy, OSError(ENODEV, "No such device")))
        all_of(source)
        files.update(healthy | {f"{gpu.folder}/mem_info_vram_total": "34351349760\n"})
        assert values(all_of(source), c.HW_GPU_MEMORY_LIMIT) == [34_351_349_760]


@pytest.mark.parametrize(
    ("gpu", "interval"),
    [
        (Gpu(busy=0, control="auto"), 6.0),
        (Gpu(busy=3, control="auto"), 0.0),
        (Gpu(busy=0, control="on"), 0.0),
        (Gpu(busy=0), 0.0),
        (Gpu(asleep=True, control="auto"), 0.0),
    ],
)
def test_idle_card_with_runtime_pm_is_polled_slower_than_its_autosuspend_delay(gpu: Gpu, interval: float) -> None:
    with opened("amd", radeon_host(amdsysfs.machine([gpu])), STRANGER) as source:
        all_of(source)
        assert source.readings()[0].apart == interval


@contextmanager
def in_rank(drivers: Fabricated, is_reporter: bool) -> Iterator[Amd]:
    """The source in a process of a job, which reports the devices or leaves them to another one."""
    source = Amd(SourceContext(Config.read({}, {}), drivers, STRANGER, is_reporter, {}))
    source.open()
    with closing(source):
        yield source


def for_spans(source: Source) -> dict[Series, Value]:
    """What only spans need."""
    return dict(point for reading in source.readings() if reading.for_spans for point in reading.read())


@pytest.mark.parametrize(
    ("metrics", "energy"), [(None, Rate(41.0)), (table(6), Rate(41.0)), (table(6, energy=1 << 40), float(1 << 24))]
)
@pytest.mark.parametrize("is_reporter", [True, False])
def test_spans_get_energy_busy_time_and_memory(metrics: bytes | None, energy: Value, is_reporter: bool) -> None:
    drivers = radeon_host(amdsysfs.machine([Gpu(metrics=metrics)]))
    with in_rank(drivers, is_reporter) as source:
        found = for_spans(source)
    assert series_of(found, c.HW_ENERGY).popitem()[1] == energy
    assert isinstance(series_of(found, c.HW_GPU_TIME).popitem()[1], Rate)
    assert values(found, c.HW_GPU_MEMORY_USAGE)[0] > 0


def test_card_that_is_read_for_spans_may_suspend_while_it_is_idle() -> None:
    gpu = Gpu(busy=0, control="auto")
    drivers = radeon_host(amdsysfs.machine([gpu]))
    with in_rank(drivers, is_reporter=False) as source:
        (device,) = source.devices
        assert [*device.read_energy()]
        drivers.tree.up += 5.9
        assert not [*device.read_energy(), *device.read_memory()], "it would stay awake"
        drivers.tree.up += 0.2
        drivers.tree.files[f"{gpu.folder}/gpu_busy_percent"] = "50\n"
        assert [*device.read_energy()]
        drivers.tree.up += 0.1
        assert [*device.read_energy()], "it is busy"


@pytest.mark.parametrize("is_reporter", [True, False])
def test_suspended_card_is_not_read_for_spans(is_reporter: bool) -> None:
    gpu = Gpu()
    drivers = radeon_host(amdsysfs.machine([gpu]))
    with in_rank(drivers, is_reporter) as source:
        assert for_spans(source)
        drivers.tree.files[f"{gpu.folder}/power/runtime_status"] = "suspended\n"
        assert for_spans(source) == {}


@pytest.mark.parametrize("average", [OSError(EIO, "not supported"), "0\n", "N/A\n"])
def test_power_falls_back_to_power1_input(average: OSError | str) -> None:
    gpu = Gpu(power_file="power1_input", power=97_000_000)
    files = amdsysfs.machine([gpu]) | {f"{gpu.monitor}/power1_average": average}
    assert values(read(files), c.HW_POWER) == [97]


def test_instant_power_is_read_beside_the_average() -> None:
    found = read(amdsysfs.machine([Gpu(instant=55_000_000)]))
    assert values(found, c.HW_POWER) == [41.0]
    assert values(found, c.HW_POWER_INSTANT) == [55.0]
    for gpu in (Gpu(), Gpu(power_file="power1_input"), Gpu(instant=0)):
        assert values(read(amdsysfs.machine([gpu])), c.HW_POWER_INSTANT) == []


def test_card_without_a_folder_has_status_failed() -> None:
    gpu = Gpu()
    files = amdsysfs.machine([gpu])
    drivers = radeon_host({path: content for path, content in files.items() if not path.startswith(gpu.folder)})
    drivers.tree.files[f"{gpu.folder}/uevent"] = files[f"{gpu.folder}/uevent"]
    with opened("amd", drivers, STRANGER) as source:
        del drivers.tree.files[f"{gpu.folder}/uevent"]
        assert values(all_of(source), c.HW_STATUS, state="failed") == [1]
        assert source.unsupported == ["GPU 0 does not respond: it is gone"]


def test_power_is_integrated_again_after_a_reset_in_which_gpu_metrics_cannot_be_read() -> None:
    gpu = Gpu(metrics=table(6))
    drivers = radeon_host(amdsysfs.machine([gpu]))
    files = drivers.tree.files
    with opened("amd", drivers, STRANGER) as source:
        all_of(source)
        healthy = {path: content for path, content in files.items() if path.startswith(gpu.folder)}
        busy = OSError(EBUSY, "busy")
        for now in (dict.fromkeys(healthy, busy), healthy | {f"{gpu.folder}/gpu_metrics": busy}, healthy):
            files.update(now)
            found = series_of(all_of(source), c.HW_ENERGY)
    assert [*found.values()] == [Rate(41.0)]


def test_busy_gpu_metrics_at_the_start_may_have_an_energy_counter() -> None:
    gpu = Gpu(metrics=table(6, energy=1 << 40))
    drivers = radeon_host(amdsysfs.machine([gpu]) | {f"{gpu.folder}/gpu_metrics": OSError(EBUSY, "busy")})
    with opened("amd", drivers, STRANGER) as source:
        assert values(all_of(source), c.HW_ENERGY) == []
        drivers.tree.files[f"{gpu.folder}/gpu_metrics"] = table(6, energy=1 << 40)
        assert values(all_of(source), c.HW_ENERGY) == [float(1 << 24)]


def test_error_counter_does_not_shrink_when_one_block_cannot_be_read() -> None:
    gpu = Gpu(ras={"umc": "ue: 0\nce: 7\n", "gfx": "ue: 1\nce: 2\n", "sdma": "ue: 0\nce: 5\n"})
    drivers = radeon_host(amdsysfs.machine([gpu]))
    with opened("amd", drivers, STRANGER) as source:
        assert values(all_of(source), c.HW_ERRORS, type="sram_corrected") == [7]
        drivers.tree.files[f"{gpu.folder}/ras/sdma_err_count"] = OSError(EBUSY, "busy")
        assert values(all_of(source), c.HW_ERRORS, type="sram_corrected") == [7]
        assert source.unsupported == ["hw.errors (sdma_err_count): busy"]
        drivers.tree.files[f"{gpu.folder}/ras/sdma_err_count"] = "ue: 0\nce: 6\n"
        assert values(all_of(source), c.HW_ERRORS, type="sram_corrected") == [8]
        assert source.unsupported == []


def test_card_that_suspends_before_it_is_identified_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(asleep=True)
    with opened("amd", radeon_host(amdsysfs.machine([gpu])), STRANGER) as source:
        assert isinstance(source, Amd)
        states = iter([False, True])
        monkeypatch.setattr(source.devices[0], "check_suspended", lambda: next(states))
        assert [*source.read()] == []


def test_restricted_container_without_pci_addresses_reports_all_gpus() -> None:
    properties = {path: DENIED for path in amdsysfs.topology([Gpu()]) if path.endswith("nodes/1/properties")}
    drivers = by_amd_smi(7)(0)
    drivers.tree.files |= amdsysfs.topology([Gpu()]) | properties
    drivers.tools["amd-smi"].prints = {**drivers.tools["amd-smi"].prints, "static --json": b"[]"}
    with opened("amd", drivers, STRANGER, devices="visible", amdgpu="off") as source:
        assert by_id(all_of(source), c.HW_POWER).keys() == {"gpu0", "gpu1"}
        assert (
            "this container has some GPUs: the tool does not report the PCI address of a GPU, so ROCm's order of the "
            "GPUs is unknown; all are reported" in source.unsupported
        )
