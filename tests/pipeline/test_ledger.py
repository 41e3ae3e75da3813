"""The ledger: increases and peaks between any two instants, held against the trace that was read."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stage import PATIENT, Clock

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, Rate, Series
from opentelemetry.instrumentation.hardware.pipeline import rows as r
from opentelemetry.instrumentation.hardware.pipeline.ledger import Demand, Ledger
from opentelemetry.instrumentation.hardware.pipeline.rows import SIZE, Place, Rows

EPOCH = 1.8e9
"""The difference between the two clocks."""

GPU = {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"}
ENERGY = Series(c.HW_ENERGY, GPU)
MEMORY = Series(c.HW_GPU_MEMORY_USAGE, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0"})
BUSY = Series(c.HW_GPU_TIME, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.GPU_TASK: "general"})


def throttle(reason: str) -> Series:
    return Series(c.HW_GPU_THROTTLE_TIME, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.THROTTLE_REASON: reason})


class Machine:
    """A ledger that is filled from a trace, on a clock that is set by hand."""

    def __init__(self, read: Callable[[float], list[Point]]) -> None:
        self.clock = Clock(100.0)
        self.wall = EPOCH
        self.read = read
        self.ledger = Ledger(self.clock, lambda: self.wall + self.clock.now)
        self.ledger.use(frozenset({"GPU-1"}))

    def run(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            self.ledger.add(self.read(self.clock.now))
            self.clock.now += step

    def places(self, begin: float, end: float) -> tuple[Rows, Place | None, Place | None]:
        rows = self.ledger.rows
        assert rows is not None
        return rows, rows.place(self.wall + begin), rows.place(self.wall + end)

    def increase(self, column: int, begin: float, end: float) -> float:
        rows, first, last = self.places(begin, end)
        return math.nan if first is None or last is None else rows.increase(column, first, last)

    def peak(self, begin: float, end: float) -> float:
        rows, first, last = self.places(begin, end)
        assert first is not None
        assert last is not None
        return rows.peak(r.GPU_MEMORY, first, last)


def joules(now: float) -> float:
    """The energy of a power that varies slowly, between 100 and 300 W, with a period of six seconds."""
    return 200.0 * now - 100.0 * math.cos(now) + 7.0


@given(st.floats(100.2, 158.0), st.floats(1.0, 50.0))
@PATIENT
def test_energy_of_an_interval_is_the_integral_of_power(begin: float, length: float) -> None:
    end = min(begin + length, 159.8)
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(60.0)
    assert machine.increase(r.ENERGY, begin, end) == pytest.approx(joules(end) - joules(begin), rel=0.005)


@pytest.mark.parametrize("seed", range(5))
def test_increases_of_adjacent_intervals_add_up(seed: int) -> None:
    dice = random.Random(seed)
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(30.0)
    cuts = sorted(dice.uniform(100.5, 129.0) for _ in range(40))
    parts = [machine.increase(r.ENERGY, begin, end) for begin, end in pairwise(cuts)]
    assert sum(parts) == pytest.approx(machine.increase(r.ENERGY, cuts[0], cuts[-1]))


def test_rate_is_integrated() -> None:
    machine = Machine(lambda now: [ENERGY(Rate(50.0)), BUSY(Rate(0.25))])
    machine.run(10.0)
    assert machine.increase(r.ENERGY, 101.05, 105.15) == pytest.approx(50.0 * 4.1)
    assert machine.increase(r.GPU_TIME, 101.05, 105.15) == pytest.approx(0.25 * 4.1)


def test_rate_is_integrated_over_readings_in_between_that_left_it_out() -> None:
    """While spans are recorded, devices that the program does not use yet are read at the usual interval only."""
    machine = Machine(lambda now: [BUSY(Rate(0.25))] if round(10 * now) % 20 == 0 or now > 110.05 else [])
    machine.run(20.0)
    assert machine.increase(r.GPU_TIME, 103.0, 115.0) == pytest.approx(0.25 * 12.0)


@pytest.mark.parametrize("interrupted", [True, False])
def test_integral_over_a_long_gap_is_unknown(interrupted: bool) -> None:
    machine = Machine(lambda now: [ENERGY(joules(now)), BUSY(Rate(0.25)), throttle("thermal_sw")(Rate(0.5))])
    machine.run(5.0)
    if interrupted:
        machine.ledger.interrupt()
    machine.clock.now += 20.0 if interrupted else 61.0
    again = machine.clock.now
    machine.run(5.0)
    for column in (r.GPU_TIME, r.THROTTLE_TIME):
        assert isnan(machine.increase(column, 101.0, again + 4.0))
    assert machine.increase(r.GPU_TIME, again + 1.0, again + 4.0) == pytest.approx(0.75)
    expected = joules(again + 4.0) - joules(101.0)
    assert machine.increase(r.ENERGY, 101.0, again + 4.0) == pytest.approx(expected, rel=0.005), "the device counts"


def test_rate_continues_after_the_newest_reading_for_a_while() -> None:
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(10.0)
    newest = machine.clock.now - 0.1
    watts = (joules(newest) - joules(newest - 0.1)) / 0.1
    assert machine.increase(r.ENERGY, newest, newest + 0.25) == pytest.approx(0.25 * watts, rel=1e-4)
    assert isnan(machine.increase(r.ENERGY, newest, newest + 2.5))


def test_instant_before_the_first_reading_is_unknown() -> None:
    machine = Machine(lambda now: [ENERGY(joules(now))])
    assert machine.ledger.rows is None
    machine.run(5.0)
    assert isnan(machine.increase(r.ENERGY, 99.9, 101.0))


def test_oldest_readings_are_overwritten() -> None:
    machine = Machine(lambda now: [ENERGY(joules(now)), MEMORY(round(now))])
    machine.run(0.1 * SIZE + 50.0)
    oldest = machine.clock.now - 0.1 * SIZE
    assert isnan(machine.increase(r.ENERGY, oldest - 1.0, oldest + 20.0))
    begin, end = oldest + 1.0, machine.clock.now - 1.0
    assert machine.increase(r.ENERGY, begin, end) == pytest.approx(joules(end) - joules(begin), rel=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_peak_is_the_highest_reading_around_the_interval(seed: int) -> None:
    dice = random.Random(seed)
    heard: list[tuple[float, int]] = []

    def read(now: float) -> list[Point]:
        heard.append((now, dice.randrange(10**9)))
        return [MEMORY(heard[-1][1])]

    machine = Machine(read)
    machine.run(dice.choice([3.0, 100.0, 600.0, 700.0]))
    newest = machine.clock.now - 0.1
    for _ in range(50):
        begin = dice.uniform(max(100.0, newest - 590.0), newest - 1.0)
        end = dice.uniform(begin + 0.2, newest)
        expected = max(value for now, value in heard if begin - 0.1 < now < end + 0.1)
        assert machine.peak(begin, end) == expected


def test_device_that_is_missing_from_a_reading_is_unknown_there() -> None:
    machine = Machine(lambda now: [ENERGY(joules(now))] if now < 103.0 or now > 104.0 else [BUSY(Rate(1.0))])
    machine.run(10.0)
    assert isnan(machine.increase(r.ENERGY, 101.0, 103.5))
    assert machine.increase(r.ENERGY, 101.0, 107.0) == pytest.approx(joules(107.0) - joules(101.0), rel=0.005)


def test_source_that_was_closed_is_unknown_until_its_next_reading() -> None:
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(5.0)
    machine.ledger.interrupt()
    assert isnan(machine.increase(r.ENERGY, 101.0, 105.1))
    assert machine.increase(r.ENERGY, 101.0, 104.5) == pytest.approx(joules(104.5) - joules(101.0), rel=0.005)


def test_step_of_the_wall_clock_begins_the_ledger_again() -> None:
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(5.0)
    machine.wall -= 3600.0
    machine.run(5.0)
    assert isnan(machine.increase(r.ENERGY, 101.0, 107.0))
    assert machine.increase(r.ENERGY, 106.0, 109.0) == pytest.approx(joules(109.0) - joules(106.0), rel=0.005)


@pytest.mark.parametrize("back", [0.1, 0.25, 0.45])
def test_wall_clock_that_is_set_back_a_little_gives_no_wrong_values(back: float) -> None:
    """As by ntpd. Where it is coarse, as on Windows, two readings may have the same time."""
    machine = Machine(lambda now: [ENERGY(100.0 * now)])
    machine.run(10.0)
    machine.wall -= back
    begin = machine.clock.now
    for _ in range(10):
        for length in (0.2, 0.7, 1.5, 5.0):
            energy = machine.increase(r.ENERGY, machine.clock.now + 0.05 - length, machine.clock.now + 0.05)
            assert isnan(energy) or energy == pytest.approx(100.0 * length, rel=1e-4)
        machine.run(0.1)
    machine.run(2.0)
    assert machine.increase(r.ENERGY, begin + 0.2, begin + 2.0) == pytest.approx(180.0, rel=1e-4)


def test_source_that_is_closed_twice_at_once() -> None:
    machine = Machine(lambda now: [ENERGY(100.0 * now)])
    machine.run(10.0)
    machine.ledger.interrupt()
    machine.ledger.interrupt()
    assert isnan(machine.increase(r.ENERGY, 105.0, machine.clock.now))


def test_overlapping_reasons_of_throttling_count_once() -> None:
    machine = Machine(
        lambda now: [
            throttle("thermal_sw")(Rate(1.0)),
            throttle("power_cap")(Rate(1.0 if now > 102 else 0.0)),
            throttle("application_clocks")(Rate(1.0)),
        ]
    )
    machine.run(10.0)
    assert machine.increase(r.THROTTLE_TIME, 101.0, 104.0) == pytest.approx(3.0)


def test_clocks_set_by_the_user_are_no_throttling() -> None:
    machine = Machine(lambda now: [throttle("application_clocks")(Rate(1.0))])
    machine.run(10.0)
    assert machine.increase(r.THROTTLE_TIME, 101.0, 104.0) == 0.0


def test_other_metrics_take_no_row() -> None:
    machine = Machine(lambda now: [c.HW_TEMPERATURE(50.0, GPU)])
    machine.run(1.0)
    assert machine.ledger.rows is None


def test_interval_is_the_distance_of_the_readings() -> None:
    rows = Rows()
    for now in (1.0, 2.0, 2.5, 2.6):
        rows.add(now, [now] * len(r.TOTALS), [now] * len(r.LEVELS))
    found = [rows.place(instant) for instant in (1.5, 2.2, 2.55, 2.6, 3.1)]
    assert [place[4] for place in found if place] == pytest.approx([1.0, 0.5, 0.1, 0.1, 0.5])


def test_first_span_after_a_pause_is_measured() -> None:
    """Its first reading is made when it begins, and the one before was long ago."""
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(60.0, step=30.0)
    begin = machine.clock.now
    machine.clock.now += 0.002
    machine.run(2.0)
    rows = machine.ledger.rows
    assert rows is not None
    places = rows.places(EPOCH + begin, EPOCH + begin + 1.0)
    assert places is not None
    assert rows.increase(r.ENERGY, *places[:2]) == pytest.approx(joules(begin + 1.0) - joules(begin), rel=0.005)
    assert places[2] == pytest.approx(0.1)
    assert rows.places(EPOCH + begin - 1.0, EPOCH + begin + 1.0) is None


def test_demand_lasts_for_a_minute_after_a_span() -> None:
    demand = Demand()
    assert not demand.exists(100.0)
    assert demand.note_span(100.0)
    assert not demand.note_span(130.0)
    assert demand.exists(189.0)
    assert not demand.exists(191.0)
    assert demand.note_span(191.0)


def test_device_that_is_used_later_counts_from_the_first_reading() -> None:
    other = Series(c.HW_ENERGY, {**GPU, c.HW_ID: "GPU-2"})
    machine = Machine(lambda now: [ENERGY(joules(now)), other(10.0 * now), MEMORY(round(now))])
    machine.run(0.1 * SIZE + 20.0)
    begin, end = machine.clock.now - 500.0, machine.clock.now - 1.0
    alone, peak = machine.increase(r.ENERGY, begin, end), machine.peak(begin, end)
    machine.ledger.use(frozenset({"GPU-1", "GPU-2"}))
    machine.run(5.0)
    assert machine.increase(r.ENERGY, begin, end) == pytest.approx(alone + 10.0 * (end - begin))
    assert isnan(machine.peak(begin, end)), "the memory of the other one is unknown"
    machine.ledger.use(frozenset({"GPU-1"}))
    assert machine.peak(begin, end) == peak


def test_rows_in_memory_that_is_shared_are_read_by_others() -> None:
    memory = memoryview(bytearray(8 * r.LENGTH)).cast("d")
    rows = Rows(memory)
    rows.clear(2, 0, True)
    for second in range(200):
        rows.add(second, [2.0 * second] * len(r.TOTALS), [second % 70] * len(r.LEVELS))
    other = Rows(memory.toreadonly())
    assert (other.count, other.devices, other.packages, other.has_process) == (200, 2, 0, 1)
    first, last = other.place(1.5), other.place(150.5)
    assert first is not None
    assert last is not None
    assert other.increase(r.CPU_TIME, first, last) == pytest.approx(2.0 * 149)
    assert other.peak(r.TREE_MEMORY, first, last) == 69
