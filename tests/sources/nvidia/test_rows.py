"""The metrics of simulated GPUs: names, attributes, units and values."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from tests.sources.nvidia_gpus import START, Exported, simulated_gpus
from tests.tools.nvml import (
    ALL_LINKS,
    MIB,
    NOT_AVAILABLE,
    Gpu,
    a100,
    b200,
    geforce,
    gh200,
    h100,
    listed,
    mig,
    moving,
    orin,
    p100,
    refused,
    still,
    t4,
    unified,
    vgpu,
    wsl,
)

from opentelemetry.instrumentation.hardware.accelerators.device import TIMED

GIB = 1024 * MIB

# Whether the binding has the fan speed in RPM. The oldest does not.
REVOLUTIONS = hasattr(pynvml, "nvmlDeviceGetFanSpeedRPM")


def values_of(exported: Exported) -> dict[tuple[str, str], float]:
    """The exported values by metric and attribute values, without `hw.gpu.info`."""
    found: dict[tuple[str, str], float] = {}
    for (name, pairs), value in exported.points.items():
        about = dict(pairs)
        fan = [about["hw.id"].rpartition("/")[2]] if "fan" in about.get("hw.id", "") else []
        words = [about[key] for key in sorted(about) if key not in ("hw.id", "hw.name", "hw.type", "hw.parent")]
        if not name.startswith("otel_hardware.") and name != "hw.gpu.info":
            found[name, " ".join(fan + words)] = value
    return found


def rows_of(exported: Exported) -> set[str]:
    """The exported rows with their attribute values, without :data:`FOLLOWING`; fans, and Xids, count as one row."""
    one = re.compile(r"^fan\d ?|(?<=^xid) .*")
    found = {(name, one.sub("", words)) for name, words in values_of(exported)}
    return {f"{name} {words}".strip() for name, words in found if not name.startswith(FOLLOWING)}


# Metrics that are derived from others.
FOLLOWING = (
    *("hw.gpu.time", "hw.gpu.utilization.peak", "hw.gpu.memory.peak", "hw.gpu.memory.utilization", "hw.status"),
    *("hw.power.peak", "hw.power.utilization", "hw.temperature.peak"),
)

MOST = (b200, gh200, h100, a100, p100, t4, geforce, vgpu, wsl, unified, orin)


# By GPU, its exported rows, and its sentences about missing ones.
Everything = dict[Callable[[], Gpu], tuple[set[str], list[str]]]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Everything:
    found: Everything = {}
    for make in MOST:
        with simulated_gpus(tmp_path_factory.mktemp("all"), make()) as machine:
            machine.tick(0)
            found[make] = rows_of(machine.tick(2)), machine.unsupported()
    return found


@pytest.mark.parametrize("make", MOST, ids=lambda make: make.__name__)
def test_missing_rows_are_exactly_those_not_exported(make: Callable[[], Gpu], everything: Everything) -> None:
    known = set().union(*(rows for rows, _ in everything.values()))
    assert len(known) > 50
    exported, unsupported = everything[make]
    sentences = [sentence.rpartition(": ")[0] for sentence in unsupported]
    missing = set()
    for row, words in re.findall(r"((?:hw|process)\.[a-z._]+)(?: \(([^)]*)\))?", "; ".join(sentences)):
        missing |= {" ".join([row, *sorted(word.split())]) for word in words.split(", ")} if words else {row}
    of_processes = {row for row in missing if row.startswith("process.")}
    assert {" ".join(sorted(row.split())) for row in known - exported} == {
        " ".join(sorted(row.split())) for row in missing - of_processes
    }


def test_jetson_is_exported_with_name_and_status_only(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, orin()) as machine:
        now = machine.tick(0)
        assert now.names() == {"hw.gpu.info", "hw.status"}
        (pairs,) = now.of("hw.gpu.info")
        about = dict(pairs)
        assert (about["hw.id"], about["hw.model"]) == (orin()["UUID"], "Orin (nvgpu)")
        assert about["hw.gpu.type"] == "integrated"
        assert now.one("hw.status", hw_state="ok") == 1
        assert machine.up()


# -- Means, integrals and peaks of a window.


def test_energy_counter_and_integrated_power_are_never_mixed(tmp_path: Path) -> None:
    counted, integrated = a100(0), p100(1)
    fails = {"gpu0.FieldValues.83": refused(10), "gpu1.FieldValues.83": "ullong 9000000000"}
    with simulated_gpus(tmp_path, counted, integrated) as machine:
        machine.tick(0)
        machine.tick(2, {"gpu1.PowerUsage": 300_000})
        now = machine.tick(2, {"gpu1.PowerUsage": 100_000})
        assert now.one("hw.energy", hw_name="GPU 0") == pytest.approx(5_000_000 + 4 * 312.34)
        assert now.one("hw.energy", hw_name="GPU 1") == pytest.approx(2 * 300 + 2 * 100)
        assert now.one("hw.power", hw_name="GPU 1") == pytest.approx(100)
        now = machine.tick(2, fails)
        assert now.of("hw.energy", hw_name="GPU 0") == {}, "an integral would not continue from the counter"
        assert now.one("hw.energy", hw_name="GPU 1") == pytest.approx(2 * 300 + 4 * 100), "a late counter is not used"
        now = machine.tick(2, {"gpu0.FieldValues.83": f"ullong {moving(5_000_000_000, 312_340, START)}"})
        assert now.one("hw.energy", hw_name="GPU 0") == pytest.approx(5_000_000 + 8 * 312.34)
        assert machine.up()


# By field, the metric, its attributes, and its increase per second on an A100.
COUNTED: dict[int, tuple[str, dict[str, str], float]] = {
    83: ("hw.energy", {}, 312.34),
    74: ("hw.gpu.throttle.time", {"hw_gpu_throttle_reason": "power_cap"}, 0.125),
    76: ("hw.gpu.throttle.time", {"hw_gpu_throttle_reason": "sync_boost"}, 0),
}


@pytest.mark.parametrize("failing", ["gpu0.FieldValues", *(f"gpu0.FieldValues.{field}" for field in COUNTED)])
@pytest.mark.parametrize("code", [6, 10, 19, 21, 999])
def test_counter_that_fails_at_first_is_exported_once_it_answers(tmp_path: Path, failing: str, code: int) -> None:
    affected = [each for field, each in COUNTED.items() if failing in ("gpu0.FieldValues", f"gpu0.FieldValues.{field}")]
    value = still(a100(), START).get(failing.removeprefix("gpu0."), "")
    with simulated_gpus(tmp_path, a100(), lines={failing: refused(code, 2, value)}) as machine:
        now = machine.tick(2)
        for name, about, _ in affected:
            assert now.of(name, **about) == {}, "no integral, which would take the place of the counter for good"
        now = machine.ticks(8)  # a failed batch of fields is read again after some readings
        for name, about, rate in affected:
            counted = {"hw.energy": 5_000_000, "power_cap": 90, "sync_boost": 0}
            least = counted[about.get("hw_gpu_throttle_reason", name)]
            assert now.one(name, **about) == pytest.approx(least + (machine.stage.clock.now - START) * rate)
        assert not machine.unsupported("hw.energy")
        assert machine.up()


@pytest.mark.parametrize(("version", "is_counted"), [("580.95.05", True), ("575.57.08", False), ("", False)])
def test_driver_since_580_counts_thermal_throttling(tmp_path: Path, version: str, is_counted: bool) -> None:
    counts: Gpu = {f"gpu0.FieldValues.{field}": f"ullong {field * 10**9}" for field in (269, 270, 271)}
    with simulated_gpus(tmp_path, a100(), lines={**counts, "DriverVersion": version}) as machine:
        now = machine.tick(2)
    found = {
        reason: now.one("hw.gpu.throttle.time", hw_gpu_throttle_reason=reason)
        for reason in ("thermal_sw", "thermal_hw", "power_brake")
    }
    assert found == (dict(zip(found, (269, 270, 271))) if is_counted else dict.fromkeys(found, 0))


def test_power_of_three_times_the_highest_limit_is_none(tmp_path: Path) -> None:
    """Driver 610 reports some 588 W of laptop GPUs of 35 W, for good (open-gpu-kernel-modules, issue 1236)."""
    limits: Gpu = {"PowerManagementLimitConstraints": (5_000, 95_000), "EnforcedPowerLimit": 35_000}
    lines: Gpu = {**geforce(), **limits, "PowerUsage": 588_120, "FieldValues.83": refused(3)}
    with simulated_gpus(tmp_path, lines) as machine:
        machine.tick(0)
        now = machine.tick(2)
        for name in ("hw.power", "hw.power.peak", "hw.power.utilization", "hw.energy"):
            assert now.of(name) == {}
        assert machine.unsupported("hw.power: the driver reports 588.12 W, and 95 W as the most that it allows")
        assert machine.tick(2, {"gpu0.PowerUsage": 110_000}).one("hw.power") == 110, "a moment above all limits"
        assert not machine.unsupported("hw.power:")


@pytest.mark.parametrize(("version", "expected"), [("615.10", 71), ("610.43", None)])
def test_hottest_part_since_615(tmp_path: Path, version: str, expected: int | None) -> None:
    with simulated_gpus(tmp_path, h100(), lines={"DriverVersion": version, "gpu0.TemperatureV.1": 71}) as machine:
        found = machine.tick(2).of("hw.temperature", hw_sensor_location="junction")
    assert [*found.values()] == ([expected] if expected else [])


@pytest.mark.parametrize("code", [3, 10, 999])
def test_throttle_time_is_integrated_if_its_counter_never_answers(tmp_path: Path, code: int) -> None:
    lines: Gpu = {"gpu0.FieldValues.76": refused(code), "gpu0.CurrentClocksEventReasons": 0x10}
    with simulated_gpus(tmp_path, a100(), lines=lines) as machine:
        machine.tick(0)
        for _ in range(35):
            machine.sample(2)
        before = machine.collect().one("hw.gpu.throttle.time", hw_gpu_throttle_reason="sync_boost")
        now = machine.tick(2)
        assert now.one("hw.gpu.throttle.time", hw_gpu_throttle_reason="sync_boost") - before == pytest.approx(2)


@pytest.mark.parametrize("code", [10, 21, 999])
def test_energy_counter_that_answers_late_continues_the_integral(tmp_path: Path, code: int) -> None:
    with simulated_gpus(tmp_path, a100(), lines={"gpu0.FieldValues.83": refused(code)}) as machine:
        machine.tick(0)
        for _ in range(10):
            machine.sample(2)
        before = machine.collect().one("hw.energy")
        assert before > 0, "it is not absent for long"
        counted = {"gpu0.FieldValues.83": f"ullong {moving(5_000_000_000, 100_000, machine.stage.clock.now)}"}
        assert machine.tick(2, counted).one("hw.energy") - before <= 2 * 312.34, "no leap to the device's total"
        before = machine.collect().one("hw.energy")
        assert machine.tick(2).one("hw.energy") - before == pytest.approx(2 * 100), "the counter, not the integral"
        now = machine.tick(2, {"gpu0.FieldValues.83": refused(code)})
        assert now.of("hw.energy") == {}, "a counter that exists is not replaced by an integral"


@pytest.mark.parametrize("failing", ["gpu0.FieldValues.83", "gpu0.FieldValues"])
def test_energy_is_integrated_if_the_counter_never_answers(tmp_path: Path, failing: str) -> None:
    with simulated_gpus(tmp_path, a100(), lines={failing: refused(999)}) as machine:
        machine.tick(0)
        for _ in range(35):
            machine.sample(2)
        before = machine.collect().one("hw.energy")
        assert machine.tick(2).one("hw.energy") - before == pytest.approx(2 * 312.34)


def test_integrated_energy_is_not_replaced_by_a_counter_after_the_gpu_was_lost(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, p100()) as machine:
        machine.tick(0)
        before = machine.tick(2).one("hw.energy")
        machine.tick(2, {"gpu0": refused(15)})
        machine.fake.set_lines({"gpu0": None, "gpu0.FieldValues.83": "ullong 9000000000"})
        now = machine.ticks(4)
        assert before < now.one("hw.energy") < before + 10 * 142.7
        assert machine.up()


def test_gpu_time_grows_by_the_mean_utilization_of_each_window(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100()) as machine:
        before = machine.tick(0)
        for percents, seconds in (((10, 5), 2), ((95, 60), 3), ((0, 0), 2.5), ((100, 1), 1)):
            for part in percents:
                machine.sample(seconds, {"gpu0.UtilizationRates": (part, 2 * part // 3)})
            machine.runner.read(everything=True)  # nothing passes between two readings at one time
            now = machine.collect()
            for task, scale in (("general", 1.0), ("memory", 2 / 3)):
                mean = now.one("hw.gpu.utilization", hw_gpu_task=task)
                grown = now.one("hw.gpu.time", hw_gpu_task=task) - before.one("hw.gpu.time", hw_gpu_task=task)
                assert grown == pytest.approx(mean * 2 * seconds), (task, scale)
            assert now.one("hw.gpu.utilization.peak") == max(percents) / 100
            before = now


def test_peak_rows_are_the_highest_reading_of_the_window(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, a100()) as machine:
        machine.tick(0)
        machine.tick(2)
        for watts, celsius, gib in ((390, 80, 70), (100, 50, 10), (200, 60, 20)):
            changes: Gpu = {
                "PowerUsage": watts * 1000,
                "Temperature.0": celsius,
                "FieldValues.82": f"uint {celsius + 10}",
                "MemoryInfo": (81_920 * MIB, 693 * MIB, 0, gib * GIB),
            }
            machine.sample(2, {f"gpu0.{call}": value for call, value in changes.items()})
        now = machine.collect()
        assert now.one("hw.power.peak") == 390
        assert now.one("hw.power") == pytest.approx((390 + 100 + 200) / 3)
        assert now.one("hw.temperature.peak", hw_sensor_location="gpu") == 80
        assert now.one("hw.temperature.peak", hw_sensor_location="memory") == 90
        assert now.one("hw.gpu.memory.peak") == 70 * GIB
        assert now.one("hw.gpu.memory.usage") == 20 * GIB
        assert now.one("hw.power.utilization") == pytest.approx(now.one("hw.power") / 400)


# By bit of `nvmlClocksEventReasons`, the reason that it is exported as.
REASON_BITS: dict[int, str | None] = {
    0x001: None,  # GpuIdle: nothing runs
    0x002: "application_clocks",
    0x004: "power_cap",
    0x008: "slowdown_hw",
    0x010: "sync_boost",
    0x020: "thermal_sw",
    0x040: "thermal_hw",
    0x080: "power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
    0x800: None,  # not defined by NVML
}

REASONS = {reason for reason in REASON_BITS.values() if reason}


def throttled(exported: Exported) -> dict[str, float]:
    """The exported throttle seconds by reason."""
    found = exported.of("hw.gpu.throttle.time")
    return {dict(pairs)["hw.gpu.throttle.reason"]: seconds for pairs, seconds in found.items()}


@pytest.mark.parametrize("call", ["CurrentClocksEventReasons", "CurrentClocksThrottleReasons"])
def test_each_throttle_reason_bit_alone_is_its_reason_alone(tmp_path: Path, call: str) -> None:
    """On a card without throttle counters. A driver before 535 has the second call only."""
    absent = {"gpu0.CurrentClocksEventReasons": refused(13)} if call == "CurrentClocksThrottleReasons" else {}
    with simulated_gpus(tmp_path, geforce(), lines=absent) as machine:
        before = throttled(machine.tick(0))
        assert before == dict.fromkeys(REASONS, 0)
        for bit, reason in REASON_BITS.items():
            now = throttled(machine.tick(2, {f"gpu0.{call}": bit}))
            gained = {each: now[each] - before[each] for each in now if now[each] != before[each]}
            assert gained == ({reason: pytest.approx(2)} if reason else {}), hex(bit)
            before = now


def test_throttle_reason_bits_are_all_that_the_binding_knows() -> None:
    named = [value for name, value in vars(pynvml).items() if re.match("nvmlClocks(Event|Throttle)Reason[A-Z]", name)]
    known = {bit for bit in named if bit and bit & (bit - 1) == 0}
    assert len(known) >= 9
    assert known <= set(REASON_BITS) - {0x800}


def test_throttle_time_of_the_driver_is_preferred_to_the_reason_bits(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, a100()) as machine:
        machine.tick(0)
        machine.tick(2, {"gpu0.CurrentClocksEventReasons": 0x02 | 0x04 | 0x20 | 0x40})
        now = machine.tick(3, {"gpu0.CurrentClocksEventReasons": 0x08 | 0x10 | 0x80})
        assert throttled(now) == pytest.approx(
            {
                "application_clocks": 2,
                "power_cap": 90 + 5 * 0.125,  # the violation counter, in nanoseconds
                "thermal_sw": 2,
                "thermal_hw": 2,
                "slowdown_hw": 3,
                "sync_boost": 0,  # counted: none
                "power_brake": 3,
                **dict.fromkeys(("display_clocks", "board_limit", "reliability"), 0),
            }
        )


PCIE: dict[str, str] = {"hw_gpu_link_type": "pcie", "network_io_direction": "transmit"}


@pytest.mark.parametrize("rate", [50e6, 5e9, 60e9])
def test_pcie_bytes_are_those_of_gpm_at_any_rate(tmp_path: Path, rate: float) -> None:
    """The driver's own counters wrap at 4 GiB, at 60 GB/s many times between two samples."""
    wrapping: Gpu = {"FieldValues.197": f"uint {moving(4_200_000_000, rate)}", "GpmCounter.20": moving(0, rate / MIB)}
    with simulated_gpus(tmp_path, h100() | wrapping) as machine:
        machine.tick(0)
        before = machine.tick(2).one("hw.gpu.io", **PCIE)
        for seconds in (2, 1, 2.5, 2):
            machine.sample(seconds)
        assert machine.collect().one("hw.gpu.io", **PCIE) - before == pytest.approx(7.5 * rate, rel=1e-6)


def test_pcie_bytes_without_gpm_are_missing_with_the_reason(tmp_path: Path) -> None:
    """Ada has counters, but of 32 bits."""
    counted: Gpu = {f"FieldValues.{field}": f"uint {moving(0, 5e9)}" for field in (197, 198)}
    with simulated_gpus(tmp_path, geforce() | counted) as machine:
        machine.tick(0)
        now = machine.tick(2)
        assert now.of("hw.gpu.io", hw_gpu_link_type="pcie") == {}
        assert machine.unsupported("pcie transmit, pcie receive")


@pytest.mark.parametrize("start", [0.0, 4.0])
def test_link_counter_that_stays_at_zero_gives_way_to_a_rate_that_moves(tmp_path: Path, start: float) -> None:
    """NVIDIA's own simulated NVML has such counters beside GPM."""
    dead: Gpu = {f"FieldValues.{field}.{ALL_LINKS}": "ullong 0" for field in (138, 139)}
    rates: Gpu = {"GpmCounter.60": moving(0, 500, START + start), "GpmCounter.61": 0}
    with simulated_gpus(tmp_path, h100() | dead | rates) as machine:
        links = {"hw_gpu_link_type": "nvlink", "network_io_direction": "receive"}
        assert machine.tick(0).one("hw.gpu.io", **links) == 0
        for _ in range(4):
            machine.sample(2)
        before = machine.collect().one("hw.gpu.io", **links)
        now = machine.tick(2)
        assert now.one("hw.gpu.io", **links) - before == pytest.approx(2 * 500 * MIB)
        assert now.one("hw.gpu.io", hw_gpu_link_type="nvlink", network_io_direction="transmit") == 0
        late = {f"gpu0.FieldValues.139.{ALL_LINKS}": "ullong 900000000000"}
        after = machine.tick(2, late).one("hw.gpu.io", **links)
        assert after - before == pytest.approx(4 * 500 * MIB), "no jump to a counter that begins to count"


def samples(*pairs: tuple[float, int]) -> str:
    """The answer of `nvmlDeviceGetSamples`, of pairs of seconds and percent."""
    return f"uint {listed(*((int(at * 1e6), percent) for at, percent in pairs))}"


def test_driver_samples_since_the_last_reading_make_utilization_and_peak(
    tmp_path: Path,
) -> None:
    old = [(100 + at / 6, 100) for at in range(60)]
    with simulated_gpus(
        tmp_path, h100(), lines={"gpu0.Samples.1": samples(*old), "gpu0.UtilizationRates": (0, 0)}
    ) as machine:
        first = machine.tick(0)
        assert first.one("hw.gpu.utilization.peak") == 0
        # Busy for the first half of the window only.
        between = [(200 + at / 6, 90 if at < 6 else 0) for at in range(12)]
        now = machine.tick(2, {"gpu0.Samples.1": samples(*old, *between)})
        assert now.one("hw.gpu.utilization", hw_gpu_task="general") == pytest.approx(0.45)
        assert now.one("hw.gpu.utilization.peak") == 0.9
        assert now.one("hw.gpu.time", hw_gpu_task="general") == pytest.approx(0.9)
        # No new sample: the driver's current value is used.
        now = machine.tick(2, {"gpu0.UtilizationRates": (30, 0)})
        assert now.one("hw.gpu.utilization", hw_gpu_task="general") == pytest.approx(0.3)
        assert now.one("hw.gpu.time", hw_gpu_task="general") == pytest.approx(0.9 + 0.6)
        more = [(300 + at / 6, 12) for at in range(3)]
        now = machine.tick(2, {"gpu0.Samples.1": samples(*between, *more)})
        assert now.one("hw.gpu.utilization", hw_gpu_task="general") == pytest.approx(0.12)


def test_gpm_windows_lie_end_to_end_at_any_reading_interval(tmp_path: Path) -> None:
    gpu = h100()
    for field in (138, 139):
        del gpu[f"FieldValues.{field}.{ALL_LINKS}"]
    gpu["GpmCounter.60"] = 0
    with simulated_gpus(tmp_path, gpu) as machine:
        machine.tick(0)
        machine.tick(2, {"gpu0.GpmCounter.2": 0, "gpu0.GpmCounter.20": 0})  # the first has nothing to be compared with
        begun, units, mib = machine.stage.clock.now, 0.0, 0.0
        # A counter that stands still, leaps and runs, read at any distance: some so near that the library has nothing
        # to compare.
        for rate, seconds in ((0, 2), (80, 0.05), (5, 1.5), (100, 0.08), (40, 3), (0, 2), (66, 0.5)):
            now = machine.stage.clock.now
            moves = {2: moving(round(units), rate, now), 20: moving(round(mib), 10 * rate, now)}
            machine.fake.set_lines({f"gpu0.GpmCounter.{metric}": value for metric, value in moves.items()})
            machine.sample(seconds)
            units, mib = units + rate * seconds, mib + 10 * rate * seconds
        exported = machine.collect()
        sm = exported.one("hw.gpu.utilization", hw_gpu_task="sm") * (machine.stage.clock.now - begun)
        sent = exported.one("hw.gpu.io", hw_gpu_link_type="pcie", network_io_direction="transmit")
        assert sm == pytest.approx(units / 100, rel=0.03), "all that the device did"
        assert sent == pytest.approx(mib * MIB, rel=0.03)
        assert exported.one("hw.gpu.io", hw_gpu_link_type="nvlink", network_io_direction="receive") == 0
        assert machine.up()


def test_general_utilization_is_that_of_gpm_where_the_driver_has_no_other(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100() | {"UtilizationRates": refused(3), "GpmCounter.1": moving(0, 37)}) as machine:
        assert machine.tick(0).of("hw.gpu.utilization", hw_gpu_task="general") == {}
        assert machine.tick(2).one("hw.gpu.utilization", hw_gpu_task="general") == pytest.approx(0.37)
        assert not machine.unsupported("general")


def test_ratio_slightly_above_one_is_one(tmp_path: Path) -> None:
    rates = {"GpmCounter.2": moving(0, 100.0001), "GpmCounter.10": moving(0, 101)}
    with simulated_gpus(tmp_path, h100() | rates) as machine:
        machine.tick(0)
        now = machine.tick(2)
        assert now.one("hw.gpu.utilization", hw_gpu_task="sm") == 1
        assert now.of("hw.gpu.utilization", hw_gpu_task="dram") == {}, "that is no rounding error"


def test_metric_on_request_is_read_if_it_is_named(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(), include_metrics=["hw.gpu.nvlink.io"]) as machine:
        assert len(machine.tick(0).of("hw.gpu.nvlink.io")) == 36
        assert "hw.power.instant" not in machine.tick(2).names()
        assert not any("BAR1" in call for call in machine.fake.calls())


def test_power_of_memory_and_module_are_components(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, gh200()) as machine:
        machine.tick(0)
        now = machine.tick(2)
        gpu = gh200()["UUID"]
        memory = {"hw_id": f"{gpu}/memory", "hw_name": "GPU 0 memory", "hw_type": "memory", "hw_parent": str(gpu)}
        assert now.one("hw.power", **memory) == pytest.approx(97.69)
        assert now.one("hw.energy", **memory) == pytest.approx(2 * 97.69)
        assert now.one("hw.power", hw_id=f"{gpu}/module", hw_type="module") == 720
        assert now.one("hw.power", hw_type="gpu") == pytest.approx(512.6)
        machine.fake.set_lines({"gpu0.FieldValues.185.2": refused(10)})
        now = machine.tick(2)
        assert now.of("hw.power", **memory) == {}
        now = machine.tick(2, {"gpu0.FieldValues.185.2": "uint 90000"})
        assert now.one("hw.power", **memory) == 90


def test_energy_of_gh200_is_integrated(tmp_path: Path) -> None:
    """Its counter includes the CPU of the module."""
    counter = {"FieldValues.83": f"ullong {moving(10**9, 720_000, START)}"}
    with simulated_gpus(tmp_path, {**gh200(), **counter}) as machine:
        machine.tick(0)
        assert machine.tick(2).one("hw.energy", hw_type="gpu") == pytest.approx(2 * 512.6)
        assert machine.tick(2).one("hw.energy", hw_type="gpu") == pytest.approx(4 * 512.6)
        assert not machine.unsupported("hw.energy")


HEALTHY = 0b0001_10_10_10_10  # no fault, and a correct configuration


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        pytest.param((0, 0, 3, HEALTHY), "ok", id="healthy"),
        pytest.param((0, 7, 3, 0), "ok", id="health is not supported"),
        pytest.param((0, 0, 2, 0), "degraded", id="in progress"),
        pytest.param((0, 0, 1, 0), "degraded", id="not started"),
        pytest.param((999, 0, 3, HEALTHY), "failed", id="completed with an error"),
        pytest.param((0, 0, 3, HEALTHY ^ 0b11), "degraded", id="degraded bandwidth"),
        pytest.param((0, 0, 3, HEALTHY ^ 0b11_0000), "degraded", id="unhealthy route"),
        pytest.param((0, 0, 3, 0b0101_00_00_00_00), "degraded", id="too few NVLinks"),
        pytest.param((0, 0, 0, 0), "", id="not supported"),
    ],
)
def test_state_of_the_nvlink_fabric(tmp_path: Path, answer: tuple[int, ...], state: str) -> None:
    with simulated_gpus(tmp_path, h100() | {"GpuFabricInfoV": answer}) as machine:
        now = machine.tick(0)
        found = now.of("hw.status", hw_id=f"{h100()['UUID']}/fabric", hw_type="network").items()
        assert [dict(pairs)["hw.state"] for pairs, value in found if value] == [state] * bool(state)
        assert len(found) == 3 * bool(state)
        assert now.one("hw.status", hw_type="gpu", hw_state="ok") == 1


def test_temperature_is_read_where_the_old_call_is_gone(tmp_path: Path) -> None:
    for code in (13, 26):
        with simulated_gpus(tmp_path, h100() | {"Temperature.0": refused(code), "TemperatureV.0": 57}) as machine:
            assert machine.tick(0).one("hw.temperature", hw_sensor_location="gpu") == 57
            assert not machine.unsupported("hw.temperature (gpu)")


def test_pcie_link_is_read_once_a_minute(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100()) as machine:
        machine.tick(0)
        now = machine.tick(10, {"gpu0.CurrPcieLinkWidth": 8})
        assert now.one("hw.gpu.pcie.width") == 16
        now = machine.ticks(5, 10)
        assert (now.one("hw.gpu.pcie.width"), now.one("hw.gpu.pcie.width.limit")) == (8, 16)


# -- Error counters and fans.


def test_error_sum_with_a_missing_field_is_left_out(tmp_path: Path) -> None:
    gpu: Gpu = {**a100(), "FieldValues.22": "ullong 4", "FieldValues.23": "ullong 1"}
    with simulated_gpus(tmp_path, gpu) as machine:
        now = machine.tick(0)
        assert now.one("hw.errors", error_type="corrected") == 4, "of the device's memory, not of all that is protected"
        assert now.one("hw.errors", error_type="nvlink_crc") == 1
        assert now.one("hw.errors", error_type="row_remap") == 3
        failing = dict.fromkeys(("gpu0.FieldValues.22", "gpu0.FieldValues.45", "gpu0.FieldValues.143"), refused(10))
        now = machine.tick(10, failing)
        for kind in ("corrected", "nvlink_crc", "row_remap"):
            assert now.of("hw.errors", error_type=kind) == {}, kind
            assert [each for each in machine.unsupported(kind) if each.endswith("Timeout")], kind
        assert now.one("hw.errors", error_type="uncorrected") == 1
        back = {"gpu0.FieldValues.22": "ullong 5", "gpu0.FieldValues.45": "ullong 1", "gpu0.FieldValues.143": "uint 1"}
        now = machine.tick(10, back)
        assert now.one("hw.errors", error_type="corrected") == 5
        assert now.one("hw.errors", error_type="nvlink_crc") == 1
        assert now.one("hw.errors", error_type="row_remap") == 3
        assert not machine.unsupported("corrected")


@pytest.mark.parametrize(("field", "what"), [(31, "pages"), (144, "rows"), (145, "rows without a spare")])
def test_pending_page_or_row_repair_is_status_degraded(tmp_path: Path, field: int, what: str) -> None:
    with simulated_gpus(tmp_path, h100()) as machine:
        assert machine.tick(0).one("hw.status", hw_type="gpu", hw_state="degraded") == 0
        now = machine.tick(10, {f"gpu0.FieldValues.{field}": "uint 1"})
        states = {state: now.one("hw.status", hw_type="gpu", hw_state=state) for state in ("ok", "degraded", "failed")}
        assert states == {"ok": 0, "degraded": 1, "failed": 0}, what
        now = machine.tick(10, {f"gpu0.FieldValues.{field}": "uint 0"})
        assert now.one("hw.status", hw_type="gpu", hw_state="ok") == 1


@pytest.mark.parametrize(("version", "state"), [("615.23", "degraded"), ("610.43", "ok")])
def test_pending_bank_repair_is_status_degraded_since_615(tmp_path: Path, version: str, state: str) -> None:
    lines = {"DriverVersion": version, "gpu0.FieldValues.307": "uint 1"}
    with simulated_gpus(tmp_path, b200(), lines=lines) as machine:
        assert machine.tick(0).one("hw.status", hw_type="gpu", hw_state=state) == 1


@pytest.mark.parametrize(
    ("call", "flags"),
    [
        pytest.param("RepairStatus", (1, 0), id="channel"),
        pytest.param("RepairStatus", (0, 1), id="TPC"),
        pytest.param("UnrepairableMemoryFlag_v1", (1,), id="memory that cannot be repaired"),
        pytest.param("SramEccErrorStatus", (0,) * 11 + (1,), id="SRAM errors beyond the threshold"),
    ],
)
def test_flagged_repair_is_status_degraded(tmp_path: Path, call: str, flags: tuple[int, ...]) -> None:
    with simulated_gpus(tmp_path, h100(), lines={f"gpu0.{call}": flags}) as machine:
        assert machine.tick(0).one("hw.status", hw_type="gpu", hw_state="degraded") == 1
        machine.fake.set_lines({f"gpu0.{call}": (0,) * len(flags)})
        now = machine.ticks(6, 10)  # it is read once a minute
        assert now.one("hw.status", hw_type="gpu", hw_state="ok") == 1
        now = machine.tick(10, {f"gpu0.{call}": refused(3)})
        assert now.one("hw.status", hw_type="gpu", hw_state="ok") == 1


def test_counts_of_sram_errors_are_no_pending_repair(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100() | {"SramEccErrorStatus": (9,) * 11 + (0,)}) as machine:
        assert machine.tick(0).one("hw.status", hw_type="gpu", hw_state="ok") == 1


def error_counts(exported: Exported, prefix: str) -> dict[str, float]:
    found = exported.of("hw.errors").items()
    counts = {dict(pairs)["error.type"]: count for pairs, count in found}
    return {kind: count for kind, count in counts.items() if kind.startswith(prefix)}


# What each generation of NVLink counts.
NVLINK_ERRORS: dict[Callable[[], Gpu], dict[str, float]] = {
    a100: {"nvlink_crc": 0 + 1, "nvlink_replay": 2, "nvlink_recovery": 3},  # totals of all links
    h100: {"nvlink_crc": 18, "nvlink_replay": 2, "nvlink_recovery": 1},  # of each link
    b200: {"nvlink_recovery": 15, "nvlink_recovery_failed": 14, "nvlink_effective": 19},
}


@pytest.mark.parametrize("make", NVLINK_ERRORS, ids=lambda make: make.__name__)
def test_nvlink_errors_of_each_generation(tmp_path: Path, make: Callable[[], Gpu]) -> None:
    with simulated_gpus(tmp_path, make()) as machine:
        now = machine.tick(0)
        assert error_counts(now, "nvlink") == NVLINK_ERRORS[make]
        assert now.one("hw.gpu.nvlink.up") == (12 if make is a100 else 18)
        assert now.one("hw.status", hw_type="gpu", hw_state="ok") == 1
        now = machine.ticks(6, 10, {"gpu0.FieldValues.163.5": "ullong 8", "gpu0.FieldValues.165.5": "uint 0"})
        assert now.one("hw.gpu.nvlink.up") == (11 if make is a100 else 17)
        crc = {"a100": 1, "h100": 17 + 8}
        assert error_counts(now, "nvlink").get("nvlink_crc") == crc.get(make.__name__)
        assert machine.up()


def test_errors_of_links_between_chips_are_summed(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, gh200()) as machine:
        assert error_counts(machine.tick(0), "c2c") == {"c2c_crc": 10, "c2c_replay": 20}


def test_detail_gpu_adds_each_nvlink(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, b200(), detail=["gpu"]) as machine:
        machine.tick(0)
        now = machine.tick(10, {"gpu0.FieldValues.165.7": "uint 0"})
        assert now.values("hw.gpu.nvlink.up") == [1] * 18
        sent = {"network_io_direction": "transmit"}
        for link in range(18):
            number = {"hw_gpu_link_number": str(link)}
            assert now.one("hw.gpu.nvlink.io", **sent, **number) == (1_000_000 + 10 * 2 * 1024 * 1024) * 1024
        now = machine.ticks(6, 10)
        assert now.one("hw.gpu.nvlink.up", hw_gpu_link_number="7") == 0
        assert now.total("hw.gpu.nvlink.up") == 17
        assert now.total("hw.gpu.nvlink.io", **sent) == now.one("hw.gpu.io", hw_gpu_link_type="nvlink", **sent)
        assert not machine.unsupported("hw.gpu.nvlink")


def test_other_field_does_not_stand_in_for_a_field_that_fails_for_a_while(tmp_path: Path) -> None:
    failing = {f"gpu0.FieldValues.{field}": refused(10) for field in (22, 163)}
    with simulated_gpus(tmp_path, h100(), lines=failing) as machine:
        for _ in range(2):
            now = machine.tick(10)
            assert now.of("hw.errors", error_type="corrected") == {}, "not the errors of all memories"
            assert now.of("hw.errors", error_type="nvlink_crc") == {}, "not the total, which is always 0"
            assert now.of("hw.errors", error_type="sram_corrected") == {}
        machine.fake.set_lines({"gpu0.FieldValues.22": "ullong 30", "gpu0.FieldValues.163": "ullong 1"})
        now = machine.ticks(6, 10)
        assert now.one("hw.errors", error_type="corrected") == 30
        assert now.one("hw.errors", error_type="nvlink_crc") == 18
        assert now.one("hw.errors", error_type="sram_corrected") == 7


def test_more_errors_of_the_memory_than_of_all_memories_are_no_sram_errors(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100() | {"FieldValues.22": "ullong 38"}) as machine:
        now = machine.tick(0)
        assert now.of("hw.errors", error_type="sram_corrected") == {}
        assert machine.unsupported("hw.errors (sram_corrected): the driver reports -1, which is not plausible")


def test_failing_fan_loses_only_its_own_speed(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, geforce()) as machine:
        machine.tick(0)
        quiet = {"gpu0.FanSpeed.0": None, "gpu0.FanSpeed_v2.0": refused(10), "gpu0.FanSpeedRPM.0": refused(10)}
        now = machine.tick(10, {**quiet, "gpu0.FanSpeed.1": 99})
        assert now.values("hw.fan.speed_ratio") == [0.99]
        assert now.values("hw.fan.speed") == []
        assert machine.unsupported("hw.fan.speed")
        machine.fake.set_lines({"gpu0.FanSpeedRPM.0": 1620})
        now = machine.tick(10, {"gpu0.FanSpeed_v2.0": NOT_AVAILABLE})
        now = machine.tick(10)
        assert now.values("hw.fan.speed_ratio") == [0.99]
        now = machine.tick(10, {"gpu0.FanSpeed_v2.0": 20})
        assert now.values("hw.fan.speed_ratio") == [0.2, 0.99]
        assert now.values("hw.fan.speed") == [1620] * REVOLUTIONS
        assert not machine.unsupported("hw.fan.speed_ratio")


# -- Critical events (Xid).


def xids(exported: Exported, **attributes: str) -> dict[str, float]:
    """The exported critical events by number, without those that did not occur."""
    found = exported.of("hw.errors", error_type="xid", **attributes).items()
    return {dict(pairs)["hw.gpu.xid"]: count for pairs, count in found if count}


def test_xid_events_are_counted_by_number_and_logged_once_per_kind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with simulated_gpus(tmp_path, h100(0), h100(1), geforce(2)) as machine:
        now = machine.tick(0)
        assert now.one("hw.errors", error_type="xid", hw_gpu_xid="79", hw_name="GPU 1") == 0
        assert xids(now) == {}
        for gpu, xid in ((0, 13), (0, 13), (1, 31), (0, 45), (2, 62)):
            machine.fake.event(gpu, xid)
        machine.fake.event(1, 3, kind=4)  # no Xid but another power state
        for _ in range(3):  # the first collection has a new series with 0
            now = machine.tick(2)
        assert xids(now, hw_name="GPU 0") == {"13": 2, "45": 1}
        assert xids(now, hw_name="GPU 1") == {"31": 1}
        machine.fake.event(0, 13)
        assert xids(machine.tick(2), hw_name="GPU 0") == {"13": 3, "45": 1}
    messages = [record.getMessage() for record in caplog.records if "Xid" in record.getMessage()]
    assert len(messages) == 3, messages
    assert "GPU 0 (GPU-00002330-0000-4000-8000-000000000000): Xid 13: exception of the graphics" in messages[0]
    assert ["Xid 31" in messages[1], "Xid 45" in messages[2]] == [True, True] or [
        "Xid 45" in messages[1],
        "Xid 31" in messages[2],
    ]


def test_unknown_xid_numbers_share_one_series(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100()) as machine:
        machine.tick(0)
        for number in (0, 200, 4711, 2**40, 2**64 - 1, 199):
            machine.fake.event(0, number)
        machine.tick(2)
        assert xids(machine.tick(2)) == {"other": 5, "199": 1}


def test_storm_of_xid_events_is_counted_completely(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, h100(0)) as machine:
        machine.tick(0)
        machine.fake.event(0, 74, times=150)
        counts = [machine.tick(2).one("hw.errors", error_type="xid", hw_gpu_xid="74") for _ in range(4)]
        assert counts[-1] == 150
        assert machine.fake.calls()["EventSetWait"] < 200


# -- MIG instances.

SLOTS = {0: (1, 0), 3: (5, 0)}


def part(slot: int, gpu: int = 0) -> str:
    return f"MIG-00000000-0000-5000-8000-{gpu:06x}{slot:06x}"


def test_compute_instances_sharing_a_gpu_instance_have_no_utilization(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, mig(h100(), 0, {0: (1, 0), 1: (1, 1), 3: (5, 0)})) as machine:
        machine.tick(0)
        now = machine.tick(2)
        found = {dict(pairs)["hw.name"] for pairs in now.of("hw.gpu.utilization", hw_gpu_task="sm")}
        assert found == {"MIG 0/3"}
        assert machine.unsupported("of MIG 0/0, MIG 0/1: the compute instances of one GPU instance are counted as one")
        assert len(now.of("hw.gpu.memory.usage")) == 4, "which they have in common"
        machine.tick(10, {f"gpu0.{call}": None for call in mig(h100(), 0, {1: (1, 1)}) if call.startswith("mig1.")})
        machine.tick(2)
        now = machine.tick(2)
        assert now.one("hw.gpu.utilization", hw_gpu_task="sm", hw_name="MIG 0/0") == pytest.approx(0.15)
        assert not machine.unsupported("MIG 0/0: the compute")
        assert machine.up()


def test_mig_instances_appear_and_vanish(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    full = mig(h100(), 0, {0: (1, 0), 3: (5, 0), 6: (9, 0)})
    gone = {f"gpu0.{call}": None for call in full if call.startswith(("mig3.", "gi5."))}
    fresh = {f"gpu0.{call}": value for call, value in full.items() if call.startswith(("mig6.", "gi9."))}
    with simulated_gpus(tmp_path, mig(h100(), 0, SLOTS)) as machine:
        machine.tick(0)
        assert machine.tick(2).values("hw.gpu.memory.usage") == [GIB, 4 * GIB, 50_000 * MIB]
        machine.sample(2, gone)  # between two looks at which there are
        now = machine.tick(2, fresh)
        assert now.of("hw.gpu.memory.usage", hw_id=part(3)) == {}
        now = machine.tick(2)
        assert now.one("hw.gpu.memory.usage", hw_id=part(6)) == 7 * GIB
        assert now.of("hw.status", hw_id=part(3)) == {}
        assert now.one("hw.gpu.memory.usage", hw_id=part(0)) == GIB
        # Another instance in a slot; and one that comes back.
        again = {f"gpu0.{call}": value for call, value in full.items() if call.startswith(("mig3.", "gi5."))}
        other: Gpu = {"gpu0.mig0.UUID": "MIG-another", "gpu0.mig0.MemoryInfo": (9_984 * MIB, 0, 0, 5 * GIB)}
        machine.tick(2, {**again, **other})
        now = machine.tick(2)
        assert now.one("hw.gpu.memory.usage", hw_id="MIG-another") == 5 * GIB
        assert now.one("hw.gpu.memory.usage", hw_id=part(3)) == 4 * GIB
        assert machine.up()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_mig_instance_without_permission_is_missing_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = {"gpu0.mig0.UUID": refused(4), "gpu0.mig0.MemoryInfo": refused(4)}
    with simulated_gpus(tmp_path, mig(h100(), 0, SLOTS), lines=hidden) as machine:
        now = machine.ticks(3, 10)
        assert {dict(pairs)["hw.id"] for pairs in now.of("hw.gpu.info", hw_gpu_type="partition")} == {part(3)}
        assert machine.unsupported("MIG instance 0/0")
        assert now.one("hw.gpu.memory.usage", hw_id=part(3)) == 4 * GIB
        assert machine.up()
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == []


def test_mig_instances_of_ampere_export_memory_only(tmp_path: Path) -> None:
    with simulated_gpus(tmp_path, mig(a100(), 0, SLOTS)) as machine:
        machine.tick(0)
        now = machine.tick(2)
        assert now.one("hw.gpu.memory.usage", hw_id=part(3)) == 4 * GIB
        assert now.of("hw.gpu.utilization", hw_id=part(3)) == {}
        assert [task for task in TIMED if now.of("hw.gpu.utilization", hw_gpu_task=task)] == []
