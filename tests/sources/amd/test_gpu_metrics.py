"""``gpu_metrics``: every revision of the binary table, valid and broken."""

from __future__ import annotations

import struct

import pytest
from tests.tools.amdsysfs import attribute_table

from opentelemetry.instrumentation.hardware.sources.amd.gpu_metrics import LAYOUTS, GpuMetrics, revision

UNAVAILABLE = (1 << 64) - 1


def unavailable_table(form: int, content: int) -> bytearray:
    """A table of a fixed layout in which every field is all ones."""
    size = LAYOUTS[form, content].sizes[-1]
    table = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", table, 0, size, form, content)
    return table


@pytest.mark.parametrize("which", LAYOUTS)
def test_table_of_all_ones_has_no_values(which: tuple[int, int]) -> None:
    metrics, table = GpuMetrics(), bytes(unavailable_table(*which))
    assert metrics.decode(table) == {}
    assert metrics.decode(table) == {}
    assert revision(table) == which


ENERGY = {(1, 1): 24, (1, 2): 24, (1, 3): 24, (1, 4): 24, (1, 5): 88, (1, 6): 16, (1, 7): 24, (1, 8): 24}


@pytest.mark.parametrize("which", ENERGY)
def test_energy_counts_in_15_microjoules(which: tuple[int, int]) -> None:
    table = unavailable_table(*which)
    struct.pack_into("<Q", table, ENERGY[which], 62_929_744_071_539)
    if which < (1, 4):
        assert "energy" not in GpuMetrics().decode(bytes(table)), "a board without HBM counts in another unit"
        struct.pack_into("<H", table, 88, 41)
        assert GpuMetrics().decode(bytes(table))["hbm0"] == 41
    assert GpuMetrics().decode(bytes(table))["energy"] == pytest.approx(960_231_690.5, abs=1)
    struct.pack_into("<Q", table, ENERGY[which], 0)
    assert "energy" not in GpuMetrics().decode(bytes(table))


@pytest.mark.parametrize(
    ("which", "offset", "count", "full", "task"),
    [
        ((1, 1), 20, 1, 100, "video"),
        ((1, 3), 20, 1, 100, "video"),
        ((1, 4), 16, 4, 100, "video"),
        ((1, 5), 16, 4, 100, "video"),
        ((1, 5), 24, 32, 100, "jpeg"),
        ((2, 4), 30, 1, 10_000, "video"),
    ],
)
def test_engine_utilization_is_the_mean_of_valid_engines(
    which: tuple[int, int], offset: int, count: int, full: int, task: str
) -> None:
    table = unavailable_table(*which)
    struct.pack_into("<H", table, offset, full * 3 // 10)
    assert GpuMetrics().decode(bytes(table)) == {task: pytest.approx(0.3)}
    if count > 1:
        struct.pack_into("<H", table, offset + 2 * count - 2, full // 10)
        assert GpuMetrics().decode(bytes(table)) == {task: pytest.approx(0.2)}
    struct.pack_into(f"<{count}H", table, offset, *([full + 1] * count))
    assert GpuMetrics().decode(bytes(table)) == {}


def test_video_utilization_of_a_board_with_hbm_is_left_out() -> None:
    """Older drivers for MI200 report 0, although the chip does not measure it."""
    table = unavailable_table(1, 3)
    struct.pack_into("<H", table, 20, 0)
    assert GpuMetrics().decode(bytes(table)) == {"video": 0}
    struct.pack_into("<4H", table, 88, 41, 42, 43, 44)
    assert "video" not in GpuMetrics().decode(bytes(table))


@pytest.mark.parametrize(
    ("celsius", "other", "thermal"),
    [(37, 0, 0), (89, 0, 0), (90, 0, 1), (0xFFFF, 0, 1), (0, 0, 1), (37, 1 << 34, 1)],
    ids=["cool", "warm", "hot", "unknown", "not measured", "the memory is the reason"],
)
def test_hotspot_that_is_cool_is_no_reason_for_throttling(celsius: int, other: int, thermal: float) -> None:
    """RDNA 3 and 4 always set its bit."""
    table = unavailable_table(1, 3)
    struct.pack_into("<Q", table, 112, 1 << 36 | other)
    struct.pack_into("<H", table, 6, celsius)
    assert GpuMetrics().decode(bytes(table))["thermal_sw"] == thermal


def test_video_utilization_of_unknown_unit_is_left_out() -> None:
    """Strix has 1/100 of a percent at the offset that is documented as percent."""
    table = unavailable_table(3, 0)
    struct.pack_into("<H", table, 44, 87)
    assert GpuMetrics().decode(bytes(table)) == {}


@pytest.mark.parametrize(
    ("which", "size", "offset", "stride", "count"),
    [
        ((1, 6), 1664, 312, 168, 32),
        ((1, 7), 2208, 344, 232, 32),
        ((1, 8), 3360, 344, 376, 40),
        ((1, 8), 3872, 344, 440, 40),
    ],
)
def test_engine_utilization_of_partitions_is_the_mean_of_valid_engines(
    which: tuple[int, int], size: int, offset: int, stride: int, count: int
) -> None:
    """The offsets are those of the kernel's structures; MI300 has up to eight partitions."""
    table = bytearray(struct.pack("<HBB", size, *which) + b"\xff" * (size - 4))
    struct.pack_into("<8I", table, offset, *[90] * 8)  # compute dies
    struct.pack_into("<HH", table, offset + 32, 10, 30)
    struct.pack_into("<H", table, offset + 32 + 2 * count, 50)
    assert GpuMetrics().decode(bytes(table)) == {"jpeg": pytest.approx(0.2), "video": 0.5}
    struct.pack_into("<H", table, offset + 7 * stride + 32 + 2 * count - 2, 80)  # the last engine of the last partition
    struct.pack_into("<H", table, offset + 7 * stride + 32 + 2 * count + 6, 100)
    assert GpuMetrics().decode(bytes(table)) == {"jpeg": pytest.approx(0.4), "video": 0.75}
    struct.pack_into("<I", table, size - 8, 0)  # the counter after the partitions
    assert GpuMetrics().decode(bytes(table) + b"\0" * 64) == {"jpeg": pytest.approx(0.4), "video": 0.75}


@pytest.mark.parametrize(("which", "offset"), [((1, 3), 112), ((2, 2), 120), ((2, 3), 120), ((2, 4), 120)])
def test_throttle_status_bits_map_to_reasons(which: tuple[int, int], offset: int) -> None:
    reasons = {0: "power_cap", 7: "power_cap", 16: "current_cap", 22: "current_cap", 32: "thermal_sw", 47: "thermal_hw"}
    table = unavailable_table(*which)
    for bit, reason in reasons.items():
        struct.pack_into("<Q", table, offset, 1 << bit)
        assert [name for name, value in GpuMetrics().decode(bytes(table)).items() if value == 1] == [reason]
    struct.pack_into("<Q", table, offset, 0)
    assert set(GpuMetrics().decode(bytes(table)).values()) == {0}


@pytest.mark.parametrize(("which", "offset"), [((1, 6), 32), ((1, 7), 40), ((1, 8), 40)])
def test_residency_counters_become_shares_of_the_interval(which: tuple[int, int], offset: int) -> None:
    metrics, table = GpuMetrics(), unavailable_table(*which)
    top = (1 << 32) - 100
    struct.pack_into("<6I", table, offset, top, 5, 10, 20, 30, 40)
    assert metrics.decode(bytes(table)) == {}, "one table alone has no interval"
    struct.pack_into("<6I", table, offset, (top + 1000) % (1 << 32), 5, 260, 20, 130, 540)
    assert metrics.decode(bytes(table)) == {"thermal_hw": 0.0, "power_cap": 0.25, "thermal_sw": 0.5}
    assert metrics.decode(bytes(table)) == {}, "no time has passed in the same table"


def test_residency_that_is_the_elapsed_time_was_not_counted() -> None:
    """Of an idle MI300X with AMD's driver 6.10: its power, and the temperatures of socket and HBM."""
    metrics, table = GpuMetrics(), unavailable_table(1, 6)
    shares = []
    for now in (10_657_785, 10_662_785):
        struct.pack_into("<6I", table, 32, now, 7, now, now, now // 5, now)
        shares.append(metrics.decode(bytes(table)))
    assert shares == [{}, {"thermal_hw": 0.0, "thermal_sw": 0.2}]


@pytest.mark.parametrize(
    ("which", "offset"), [((1, 4), 104), ((1, 5), 176), ((1, 6), 128), ((1, 7), 136), ((1, 8), 136)]
)
def test_xgmi_counters_are_in_kib(which: tuple[int, int], offset: int) -> None:
    table = unavailable_table(*which)
    struct.pack_into("<16Q", table, offset, *[3] * 7, UNAVAILABLE, *[0] * 8)
    metrics = GpuMetrics()
    assert metrics.decode(bytes(table)) == {"xgmi.receive": 21 * 1024, "xgmi.transmit": 0}
    struct.pack_into("<2Q", table, offset, 8, UNAVAILABLE)
    found = metrics.decode(bytes(table))["xgmi.receive"]
    assert found == 26 * 1024, "a link that is not available for a moment keeps its count"


CLOCKS = {(1, 1): 60, (1, 2): 60, (1, 3): 60, (1, 4): 264, (1, 5): 336, (1, 6): 288, (1, 7): 320, (1, 8): 320}


@pytest.mark.parametrize("which", CLOCKS)
def test_clock_of_the_video_engine_is_in_megahertz(which: tuple[int, int]) -> None:
    table = unavailable_table(*which)
    struct.pack_into("<H", table, CLOCKS[which], 1500)
    assert GpuMetrics().decode(bytes(table)) == {"clock.video": 1500}


PCIE = {(1, 1): 74, (1, 2): 74, (1, 3): 74, (1, 4): 48, (1, 5): 112, (1, 6): 60, (1, 7): 68, (1, 8): 68}


@pytest.mark.parametrize("which", PCIE)
def test_speed_of_the_pcie_link_is_its_generation(which: tuple[int, int]) -> None:
    table = unavailable_table(*which)
    for speed, generation in ((25, 1), (50, 2), (80, 3), (160, 4), (320, 5), (640, 6)):
        struct.pack_into("<2H", table, PCIE[which], 16, speed)
        assert GpuMetrics().decode(bytes(table)) == {"pcie.generation": generation, "pcie.width": 16}
    for lanes, speed in ((6, 4), (16, 0), (0, 160), (0xFFFF, 160)):  # indices of tables
        struct.pack_into("<2H", table, PCIE[which], lanes, speed)
        assert GpuMetrics().decode(bytes(table)) == {}


def test_voltages_of_soc_and_memory_are_in_millivolts() -> None:
    table = unavailable_table(1, 3)
    struct.pack_into("<3H", table, 104, 925, 793, 1350)
    assert GpuMetrics().decode(bytes(table)) == {"voltage.soc": 925, "voltage.memory": 1350}
    struct.pack_into("<3H", table, 104, 0, 793, 0)
    assert GpuMetrics().decode(bytes(table)) == {}


# -- revision 1.9


@pytest.mark.parametrize(
    ("total", "counter"),
    [
        pytest.param("I", "I", id="32 bits"),
        pytest.param("Q", "I", id="the total has 64 bits"),
        pytest.param("Q", "Q", id="64 bits"),
    ],
)
def test_attributes_are_found_by_their_ids(total: str, counter: str) -> None:
    def table(elapsed: int, *throttled: int) -> bytes:
        return attribute_table(
            {
                0: ("H", [47]),  # temperature of the hotspot, which is in hwmon
                7: ("Q", [9_000 << 16]),
                9: (total, [elapsed]),
                **{10 + number: (counter, [value]) for number, value in enumerate(throttled)},
                30: ("Q", [1, 1, UNAVAILABLE, 0]),
                29: ("Q", [2, 2]),
                35: ("H", [29, 0xFFFF]),
                36: ("H", [0xFFFF] * 4),
                41: ("H", [10] * 32 + [0xFFFF] * 8),
                42: ("H", [0, 60, 0xFFFF, 0xFFFF]),
            }
        )

    metrics = GpuMetrics()
    links = {
        "clock.video": 29,
        "video": pytest.approx(0.3),
        "jpeg": pytest.approx(0.1),
        "energy": 9_000,
        "xgmi.receive": 4096,
        "xgmi.transmit": 2048,
    }
    assert metrics.decode(table(1000, 5, 10, 20, 30, 40)) == links
    shares = {"thermal_hw": 0.0, "power_cap": 0.25, "thermal_sw": 0.5}
    assert metrics.decode(table(2000, 5, 260, 20, 130, 540)) == {**links, **shares}
    assert revision(table(1, 2, 3, 4, 5, 6)) == (1, 9)


def test_residency_is_missing_without_all_of_its_attributes() -> None:
    metrics = GpuMetrics()
    for elapsed in (1000, 2000):
        assert metrics.decode(attribute_table({9: ("Q", [elapsed]), 10: ("Q", [0]), 7: ("Q", [UNAVAILABLE])})) == {}


# -- broken tables


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (b"", "0 bytes"),
        (b"\x01\x02", "2 bytes"),
        (struct.pack("<HBB", 96, 1, 10) + b"\xff" * 92, "unknown revision 1.10"),
        (struct.pack("<HBB", 96, 4, 0) + b"\xff" * 92, "unknown revision 4.0"),
        (bytes(unavailable_table(1, 3))[:100], "100 bytes long, not 120"),
        (struct.pack("<HBB", 96, 1, 3) + b"\xff" * 116, "96 bytes long, not 120"),
        (attribute_table({7: ("Q", [1])})[:-1], "23 bytes long, not 24"),
        (struct.pack("<HBBi", 8, 1, 9, 1), "truncated"),
        (struct.pack("<HBBiQQ", 24, 1, 9, 1, 15 << 20 | 7 << 10 | 1, 0), "unknown type"),
        (struct.pack("<HBBiQQ", 24, 1, 9, 1, 6 << 20 | 7 << 10 | 2, 0), "truncated"),
    ],
)
def test_table_of_unknown_revision_or_size_is_refused(table: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        GpuMetrics().decode(table)
