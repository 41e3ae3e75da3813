"""Rows and ledgers: increases and peaks between any two instants, compared with the trace that was read."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from math import inf, isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stage import PATIENT, Clock

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, Rate, Series
from opentelemetry.instrumentation.hardware.spans import rows as r
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.spans.ledger import Ledger
from opentelemetry.instrumentation.hardware.spans.rows import Increase, Rows

EPOCH = 1.8e9  # the difference between the two clocks

GPU = {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"}
ENERGY = Series(c.HW_ENERGY, GPU)
MEMORY = Series(c.HW_GPU_MEMORY_USAGE, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0"})
BUSY = Series(c.HW_GPU_TIME, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.GPU_TASK: "general"})


def throttle(reason: str) -> Series:
    return Series(c.HW_GPU_THROTTLE_TIME, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.THROTTLE_REASON: reason})


class Machine:
    """A ledger that is filled from a trace, on a clock that is set by hand."""

    def __init__(self, read: Callable[[float], list[Point]], reports_updates: bool = True) -> None:
        self.clock = Clock(100.0)
        self.wall = EPOCH
        self.read = read
        self.reports_updates = reports_updates
        self.ledger = Ledger(Rows, self.clock, lambda: self.wall + self.clock.now)
        self.ledger.use({"GPU-1"}, is_known=True)

    def run(self, seconds: float, step: float = 0.1) -> None:
        for _ in range(round(seconds / step)):
            now = self.clock.now
            self.ledger.add(self.read(now), {"GPU-1": self.wall + now} if self.reports_updates else {})
            self.clock.now += step

    def measured(self, begin: float, end: float) -> Increase | None:
        return self.ledger.rows[0].measure(self.wall + begin, self.wall + end)

    def measure(self, begin: float, end: float) -> Increase:
        found = self.measured(begin, end)
        assert found is not None
        return found

    def energy(self, begin: float, end: float) -> float:
        found = self.measured(begin, end)
        return math.nan if found is None else found.energy


def joules(now: float) -> float:
    """The energy of a power that varies slowly, between 100 and 300 W, with a period of six seconds."""
    return 200.0 * now - 100.0 * math.cos(now) + 7.0


@given(st.floats(100.2, 158.0), st.floats(1.0, 50.0))
@PATIENT
def test_energy_of_an_interval_is_the_integral_of_power(begin: float, length: float) -> None:
    end = min(begin + length, 159.8)
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(60.0)
    assert machine.energy(begin, end) == pytest.approx(joules(end) - joules(begin), rel=0.005)


@pytest.mark.parametrize("seed", range(5))
def test_increases_of_adjacent_intervals_add_up(seed: int) -> None:
    dice = random.Random(seed)
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(30.0)
    cuts = sorted(dice.uniform(100.5, 129.0) for _ in range(40))
    parts = [machine.energy(begin, end) for begin, end in pairwise(cuts)]
    assert sum(parts) == pytest.approx(machine.energy(cuts[0], cuts[-1]))


def test_rate_is_integrated() -> None:
    machine = Machine(lambda now: [ENERGY(Rate(50.0)), BUSY(Rate(0.25))])
    machine.run(10.0)
    found = machine.measure(101.05, 105.15)
    assert found.energy == pytest.approx(50.0 * 4.1)
    assert found.busy == pytest.approx(0.25 * 4.1)


def test_integral_ends_where_the_row_does() -> None:
    """The row has the time at which the driver updated its energy counter, up to 0.1 s before the reading."""
    clock, dice = Clock(100.0), random.Random(1)
    ledger = Ledger(Rows, clock, lambda: EPOCH + clock.now)
    ledger.use({"GPU-1"}, is_known=True)
    for _ in range(100):
        clock.now += 0.1
        ledger.add([ENERGY(joules(clock.now)), BUSY(Rate(0.25))], {"GPU-1": EPOCH + clock.now - dice.uniform(0.0, 0.1)})
    found = ledger.rows[0].measure(EPOCH + 109.0, EPOCH + 111.0)  # the second half is extrapolated
    assert found is not None
    assert found.busy == pytest.approx(0.5)


@pytest.mark.parametrize("interrupted", [True, False])
def test_integral_over_a_long_gap_is_unknown(interrupted: bool) -> None:
    """The energy is known: the device counts it."""
    machine = Machine(lambda now: [ENERGY(joules(now)), BUSY(Rate(0.25)), throttle("thermal_sw")(Rate(0.5))])
    machine.run(5.0)
    if interrupted:
        machine.ledger.interrupt()
    machine.clock.now += 20.0 if interrupted else 61.0
    again = machine.clock.now
    machine.run(5.0)
    over = machine.measure(101.0, again + 4.0)
    assert isnan(over.busy)
    assert isnan(over.throttled)
    assert over.energy == pytest.approx(joules(again + 4.0) - joules(101.0), rel=0.005)
    after = machine.measure(again + 1.0, again + 4.0)
    assert after.busy == pytest.approx(0.75)


def test_rate_continues_after_the_newest_reading_for_a_while() -> None:
    machine = Machine(lambda now: [ENERGY(joules(now))])
    machine.run(10.0)
    newest = machine.clock.now - 0.1
    watts = (joules(newest) - joules(newest - 0.1)) / 0.1
    assert machine.energy(newest, newest + 0.25) == pytest.approx(0.25 * watts, rel=1e-4)
    assert isnan(machine.energy(newest, newest + r.LONGEST_GAP + 0.1))


def test_instant_before_the_first_reading_is_extrapolated_and_its_bound_grows() -> None:
    machine = Machine(lambda now: [ENERGY(joules(now))])
    assert machine.ledger.rows == ()
    machine.run(0.1)
    assert machine.measured(100.0, 100.1) is None, "no rate is known"
    machine.run(4.9)
    found, later = machine.measure(99.5, 104.0), machine.measure(100.0, 104.0)
    assert found.energy == pytest.approx(joules(104.0) - joules(99.5), rel=0.05)
    assert found.bound >= abs(found.energy - joules(104.0) + joules(99.5))
    assert found.bound > later.bound + 0.4 * 50.0


@pytest.mark.parametrize("step", [0.1, 0.02])
def test_a_day_has_room_and_its_edges_are_certain_within_a_hundredth(step: float) -> None:
    machine = Machine(lambda now: [ENERGY(joules(now)), MEMORY(round(now))])
    machine.run(600.0 if step < 0.1 else 90_000.0, step=step if step < 0.1 else 1.0)
    machine.run(60.0, step=step)
    now = machine.clock.now - step
    for length in (0.5, 5.0, 60.0, 600.0, 3600.0, 80_000.0):
        begin = now - length
        if begin < 101.0:
            continue
        found = machine.measure(begin, now)
        error = abs(found.energy - joules(now) + joules(begin))
        assert error <= 0.01 * length * 300.0
        assert error <= found.bound + 1e-3
        assert found.memory == pytest.approx(round(now), abs=1)


@pytest.mark.parametrize("seed", range(20))
def test_peak_is_the_highest_reading_around_the_interval(seed: int) -> None:
    dice = random.Random(seed)
    heard: list[tuple[float, int]] = []

    def read(now: float) -> list[Point]:
        heard.append((now, dice.randrange(10**9)))
        return [ENERGY(now), MEMORY(heard[-1][1])]

    machine = Machine(read)
    machine.run(dice.choice([3.0, 100.0, 700.0]))
    newest = machine.clock.now - 0.1
    for _ in range(50):
        begin = dice.uniform(max(100.0, newest - 8.0), newest - 1.0)
        end = dice.uniform(begin + 0.2, newest)
        found = machine.measure(begin, end)
        assert found.memory == max(value for now, value in heard if begin - 0.1 < now < end + 0.1)
    all_of_it = machine.measure(100.0, newest)
    assert all_of_it.memory == max(value for _, value in heard), "also of rows that were thinned out"


def test_reading_without_the_energy_makes_no_row() -> None:
    """Else it would say that the device used nothing."""
    machine = Machine(lambda now: [ENERGY(joules(now))] if now < 103.0 or now > 104.0 else [BUSY(Rate(1.0))])
    machine.run(10.0)
    assert machine.energy(101.0, 107.0) == pytest.approx(joules(107.0) - joules(101.0), rel=0.005)
    found = machine.measure(101.0, 103.5)
    assert abs(found.energy - joules(103.5) + joules(101.0)) <= found.bound


def test_device_without_energy_has_the_rest() -> None:
    machine = Machine(lambda now: [MEMORY(5)], reports_updates=False)
    machine.run(5.0)
    found = machine.measure(101.0, 104.0)
    assert isnan(found.energy)
    assert found.memory == 5


@pytest.mark.parametrize("back", [0.1, 0.25, 0.45, 3600.0, -3600.0])
def test_wall_clock_that_is_set_gives_no_wrong_values(back: float) -> None:
    """As by ntpd. Where it is coarse, as on Windows, two readings may have the same time."""
    machine = Machine(lambda now: [ENERGY(100.0 * now)])
    machine.run(10.0)
    machine.wall -= back
    begin = machine.clock.now
    for _ in range(10):
        for length in (0.2, 0.7, 1.5, 5.0):
            found = machine.measured(machine.clock.now + 0.05 - length, machine.clock.now + 0.05)
            assert found is None or abs(found.energy - 100.0 * length) <= found.bound + 0.1
        machine.run(0.1)
    machine.run(2.0)
    assert machine.energy(begin + 0.2, begin + 2.0) == pytest.approx(180.0, rel=1e-4)


def test_overlapping_reasons_of_throttling_count_once() -> None:
    machine = Machine(
        lambda now: [
            ENERGY(now),
            throttle("thermal_sw")(Rate(1.0)),
            throttle("power_cap")(Rate(1.0 if now > 102 else 0.0)),
            throttle("application_clocks")(Rate(1.0)),
        ]
    )
    machine.run(10.0)
    found = machine.measure(101.0, 104.0)
    assert found.throttled == pytest.approx(3.0)


def test_clocks_set_by_the_user_are_no_throttling() -> None:
    machine = Machine(lambda now: [ENERGY(now), throttle("application_clocks")(Rate(1.0))])
    machine.run(10.0)
    found = machine.measure(101.0, 104.0)
    assert found.throttled == 0.0


def test_other_metrics_take_no_row() -> None:
    machine = Machine(lambda now: [c.HW_TEMPERATURE(50.0, GPU)])
    machine.run(1.0)
    assert machine.ledger.rows == ()


def test_counter_that_was_not_updated_makes_no_row() -> None:
    """Else the power would seem to be 0 and then twice as high."""
    machine = Machine(lambda now: [ENERGY(300.0 * math.floor(now / 0.1 + 1e-6) * 0.1)], reports_updates=False)
    machine.run(5.0, step=0.03)
    found = machine.measure(101.0, 104.0)
    assert found.energy == pytest.approx(900.0, abs=300.0 * r.LAG)
    assert found.bound >= 300.0 * r.LAG


@pytest.mark.parametrize("period", [0.02, 0.1])
@pytest.mark.parametrize("reports_updates", [True, False])
def test_error_is_within_the_bound(period: float, reports_updates: bool) -> None:
    """A power that jumps at random, and a counter with a period."""
    dice = random.Random(1)
    level: dict[int, float] = {}

    def true(now: float) -> float:
        slot = math.floor(now / 0.3)
        total = sum(level.setdefault(each, dice.uniform(100.0, 700.0)) * 0.3 for each in range(333, slot))
        return total + level.setdefault(slot, dice.uniform(100.0, 700.0)) * (now - slot * 0.3)

    clock = Clock(100.0)
    ledger = Ledger(Rows, clock, lambda: EPOCH + clock.now)
    outside = spans = 0
    while clock.now < 160.0:
        updated = math.floor(clock.now / period + 1e-9) * period
        ledger.add([ENERGY(true(updated))], {"GPU-1": EPOCH + updated} if reports_updates else {})
        end = clock.now + dice.uniform(0.0, 0.1)
        if clock.now > 105.0:
            begin = end - dice.choice([0.2, 0.5, 1.0, 3.0])
            found = ledger.rows[0].measure(EPOCH + begin, EPOCH + end)
            assert found is not None
            spans += 1
            outside += abs(found.energy - true(end) + true(begin)) > found.bound
        clock.now += 0.1
    assert spans > 500
    assert outside <= 0.05 * spans


def test_used_devices_are_those_of_readings_that_were_made_already() -> None:
    other = Series(c.HW_ENERGY, {**GPU, c.HW_ID: "GPU-2"})
    machine = Machine(lambda now: [ENERGY(joules(now)), other(10.0 * now)])
    machine.run(20.0)
    assert [rows.use for rows in machine.ledger.rows] == [r.USED, r.UNUSED]
    machine.ledger.use({"GPU-2"}, is_known=False)
    assert [rows.use for rows in machine.ledger.rows] == [r.UNUSED, r.VISIBLE]
    found = machine.ledger.rows[1].measure(EPOCH + 102.0, EPOCH + 112.0)
    assert found is not None
    assert found.energy == pytest.approx(100.0)


def test_rows_in_memory_that_is_shared_are_read_by_others() -> None:
    memory = memoryview(bytearray(8 * r.LENGTH)).cast("d")
    rows = Rows(memory)
    rows.clear(r.ACCELERATOR)
    rows.use = r.USED
    other = Rows(memory.toreadonly())
    for tenth in range(3 * r.CAPACITY):
        rows.add(tenth / 10, (0.2 * tenth, 0.1 * tenth, 0.0), tenth % 70)
        if tenth > 100:
            found = other.measure(tenth / 10 - 5.05, tenth / 10)
            assert found is not None
            assert found.energy == pytest.approx(10.1)
            assert found.memory == max(each % 70 for each in range(tenth - 51, tenth + 1))
    assert (other.kind, other.use) == (r.ACCELERATOR, r.USED)
    rows.clear(r.ACCELERATOR)
    assert other.newest == -inf


# -- when readings are made


def test_nothing_is_read_before_there_is_a_provider() -> None:
    demand = Demand()
    assert demand.due(0.1, 100.0, 0.001) == inf
    demand.is_tracing = True
    assert demand.due(0.1, 100.0, 0.001) == 100.1, "as if a span was open"
    assert demand.due(0.1, 110.0, 0.001) == 111.0


def test_readings_are_frequent_while_a_span_is_open() -> None:
    demand = Demand()
    demand.is_tracing = True
    demand.due(0.1, 90.0, 0.001)
    demand.begin(1, 97.0)
    demand.begin(2, 97.5)
    assert demand.due(0.1, 100.0, 0.001) == pytest.approx(100.1)
    demand.end(1)
    assert demand.due(0.1, 100.0, 0.001) == pytest.approx(100.1)
    demand.end(2)
    demand.end(2)
    assert demand.due(0.1, 100.0, 0.001) == 101.0


def test_readings_are_closer_at_the_beginning_of_a_span() -> None:
    demand = Demand()
    demand.is_tracing = True
    demand.begin(1, 100.0)
    found = [demand.due(0.1, 100.0 + age, 0.0001) - 100.0 - age for age in (0.0, 0.1, 0.5, 1.0, 5.0)]
    assert found == pytest.approx([0.02, 0.02, 0.025, 0.05, 0.1])


def test_start_of_a_span_wants_one_reading_if_the_newest_is_not_fresh() -> None:
    demand = Demand()
    demand.is_tracing = True
    demand.ready = demand.rested(100.0, 0.0001)
    assert not demand.begin(1, 100.01)
    assert demand.begin(2, 100.05)
    assert demand.due(0.1, 100.0, 0.0001) <= 100.05
    assert not demand.begin(3, 100.051), "it is wanted already"
    demand.ready = demand.rested(100.05, 0.0001)
    assert not demand.begin(4, 100.06), "at most 50 per second"
    assert demand.begin(5, 100.08)


def test_readings_that_take_long_are_seldom() -> None:
    """In a program whose threads compete for the interpreter, each call of a driver waits for it."""
    demand = Demand()
    demand.is_tracing = True
    demand.begin(1, 100.0)
    assert demand.due(0.1, 100.0, 0.010) == pytest.approx(100.5)
    demand.ready = demand.rested(100.0, 0.010)
    assert not demand.begin(2, 100.4)
