"""One source: when it is read, windows of its readings, failures, hangs and pauses; on a clock set by hand."""

from __future__ import annotations

import logging
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stage import (
    BUSY,
    ENERGY,
    PATIENT,
    POWER,
    POWER_PEAK,
    USERS,
    Clock,
    Stage,
    fail,
    infos,
    nothing,
    one,
    values,
    warnings,
)

from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.model import CounterRatio, Point, Problem, Series, Snapshot, Unavailable
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.pace import PERIODS
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Reading, Source, SourceContext
from opentelemetry.instrumentation.hardware.spans.demand import Demand


@pytest.fixture(autouse=True)
def _everything_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "opentelemetry.instrumentation.hardware")


# -- windows


def test_20_hz_trace_collected_by_readers_of_1_s_and_5_s_at_once() -> None:
    dice = random.Random(0)
    stage = Stage(interval=0.05, expected=1.0, from_start=True)
    heard: list[tuple[float, float]] = []
    joules = 100.0

    def read(now: float) -> list[Point]:
        nonlocal joules
        watts = 9000.0 + len(heard) if dice.random() < 0.02 else dice.uniform(50.0, 400.0)
        joules += watts * (now - heard[-1][0]) if heard else 0.0
        heard.append((now, watts))
        return [POWER(watts), POWER_PEAK(watts), ENERGY(joules), BUSY(CounterRatio(joules, 500.0 * now))]

    stage.player.read = read
    collected: dict[float, list[tuple[float, Snapshot]]] = {1.0: [], 5.0: []}

    def keep(step: float) -> Callable[[Snapshot], None]:
        return lambda snapshot: collected[step].append((snapshot.read["player"], snapshot))

    stage.run(60.2, {step: keep(step) for step in collected})
    spikes = [(at, watts) for at, watts in heard if watts >= 9000.0]
    assert len(spikes) > 10, "the trace has too few spikes"
    for step, snapshots in collected.items():
        assert len(snapshots) == int(60 / step)
        begin, energy, peaks = heard[0][0], 0.0, []
        for end, snapshot in snapshots:
            length = end - begin
            area = sum(watts * (at - before) for (before, _), (at, watts) in pairwise(heard) if begin < at <= end)
            assert length >= 0.05
            assert one(snapshot, POWER) * length == pytest.approx(area, rel=1e-9)
            assert one(snapshot, ENERGY) - energy == pytest.approx(area, rel=1e-9), "mean x window is not the increase"
            assert one(snapshot, BUSY) == pytest.approx(area / (500.0 * length), rel=1e-7)
            first = begin == heard[0][0]
            assert one(snapshot, POWER_PEAK) == max(
                watts for at, watts in heard if begin < at <= end or (first and at == begin)
            )
            peaks.append((begin, end, one(snapshot, POWER_PEAK)))
            begin, energy = end, float(one(snapshot, ENERGY))
        for at, watts in spikes:
            if at <= begin:
                (peak,) = [peak for since, until, peak in peaks if since < at <= until]
                assert peak >= watts
    assert stage.runner.problem is None


def test_failed_reading_at_collection_does_not_reset_window() -> None:
    stage = Stage(interval=1.0, expected=10.0)
    level = 100.0
    stage.player.read = lambda now: [POWER(level), POWER_PEAK(level)]
    stage.run(10.0, {10.0: nothing})
    level = 1.0
    working, stage.player.read = stage.player.read, fail(OSError("gone for a moment"))
    stage.run(11.1)
    assert stage.collect(10000).values.get(POWER) is None
    stage.player.read = working
    stage.run(16.0)
    snapshot = stage.collect(10000)
    assert one(snapshot, POWER) == 1.0, "the window begins before the last collection"
    assert one(snapshot, POWER_PEAK) == 1.0


# -- when readings are made


@PATIENT
@given(
    interval=st.sampled_from([0.0, 0.3, 1.0, 2.0, 7.0]),
    step=st.sampled_from([0.5, 1.0, 2.5, 5.0, 15.0]),
    cost=st.floats(0.0, 0.05),
)
def test_one_reading_is_made_just_before_each_collection(interval: float, step: float, cost: float) -> None:
    stage = Stage(interval=interval, expected=step)

    def read(now: float) -> list[Point]:
        stage.clock.now += cost
        return [POWER(1.0)]

    stage.player.read = read
    collections: list[float] = []
    stage.run(step * 10 + 0.01, {step: lambda snapshot: collections.append(stage.clock.now)})
    lead = min(0.05 + 3 * cost, step / 4)
    readings = stage.player.readings
    assert len(collections) >= 9
    for at in collections:
        ages = [at - reading for reading in readings if reading <= at]
        assert min(ages) <= 2 * lead + 1e-6, f"no reading was placed before the collection at {at}: {ages[-3:]}"
        if not 0.0 < interval <= 2 * lead + cost:  # else the samples alone are as close
            assert sum(age < 2 * lead - 1e-6 for age in ages) <= 1, f"several for the collection at {at}: {ages[-3:]}"
    if not interval:
        assert len(readings) <= len(collections) + 2, "more than one reading for a collection"
    elif interval > 2 * lead:
        elapsed = stage.clock.now - stage.start
        assert len(readings) <= elapsed / interval + len(collections) + 2


def test_two_readers_of_different_intervals_each_get_fresh_readings() -> None:
    stage = Stage(interval=4.0, expected=60.0)
    ages: dict[float, list[float]] = {5.0: [], 7.0: []}

    def keep(found: list[float]) -> Callable[[Snapshot], None]:
        return lambda snapshot: found.append(stage.clock.now - snapshot.read["player"])

    stage.run(200.0, {step: keep(found) for step, found in ages.items()})
    for step, found in ages.items():
        learned = found[2:]
        assert len(learned) > 20
        assert max(learned) <= 0.1 + 1e-9, f"the reader of {step} s got a reading {max(learned)} s old"


def test_interval_0_reads_only_when_a_collection_is_due() -> None:
    stage = Stage(interval=0.0, expected=60.0)
    ages: list[float] = []
    stage.run(600.5, {60.0: lambda snapshot: ages.append(stage.clock.now - snapshot.read["player"])})
    assert stage.player.readings[0] == stage.start
    assert [stage.start + 60.0 * (number + 1) - at for number, at in enumerate(stage.player.readings[1:])] == (
        pytest.approx([0.05] * 10)
    )
    assert ages == pytest.approx([0.05] * 10)


def test_slow_source_is_read_in_last_quarter_before_collection() -> None:
    stage = Stage(interval=0.0, expected=10.0)

    def read(now: float) -> list[Point]:
        stage.clock.now += 1.0
        return [POWER(1.0)]

    stage.player.read = read
    ages: list[float] = []
    stage.run(100.5, {10.0: lambda snapshot: ages.append(stage.clock.now - snapshot.read["player"])})
    assert ages[1:] == pytest.approx([2.5] * 9)


@pytest.mark.parametrize("step", [1.0, 4.0, 15.0, 60.0])
def test_read_slow_runs_on_its_own_period(step: float) -> None:
    stage = Stage(interval=0.5, expected=step)
    ages: list[float] = []
    stage.player.slow = lambda now: [USERS(int(now))]
    stage.run(121.0, {step: lambda snapshot: ages.append(stage.clock.now - float(one(snapshot, USERS)))})
    slow = stage.player.slow_readings
    assert slow[0] == stage.start, "not read at the start"
    assert [after - before for before, after in pairwise(slow)] == pytest.approx([10.0] * 12, abs=0.5)
    assert max(ages) <= 12.0


@pytest.mark.parametrize(("step", "most"), [(5.0, 3), (60.0, 8)])
def test_counters_are_read_before_each_collection_and_once_per_slow_interval(step: float, most: int) -> None:
    stage = Stage(interval=0.5, expected=step)
    ages: list[float] = []
    stage.player.counters = lambda now: [USERS(int(1000 * now))]
    stage.run(600.0, {step: lambda snapshot: ages.append(stage.clock.now - float(one(snapshot, USERS)) / 1000)})
    assert max(ages) < 0.5, "an old reading was exported"
    assert len(stage.player.counter_readings) <= len(ages) * most + 2, "counters were sampled in between"


@pytest.mark.parametrize("early", [0.1, 0.3, 0.8])
def test_counters_of_a_collection_that_comes_early_are_not_those_of_the_one_before(early: float) -> None:
    stage = Stage(interval=2.0, expected=5.0)
    stage.player.counters = lambda now: [USERS(int(1000 * now))]
    ages = []
    for number in range(1, 20):
        stage.run(5.0 * number - early * (number % 2))
        ages.append(stage.clock.now - float(one(stage.collect(), USERS)) / 1000)
    assert max(ages) <= 2.1


def test_counters_are_read_before_each_collection_when_readings_take_different_times() -> None:
    stage = Stage(interval=2.0, expected=7.3)
    dice = random.Random(1)

    def read(now: float) -> list[Point]:
        stage.clock.now += dice.choice([0.001, 0.5])
        return [USERS(int(1000 * now))]

    stage.player.read, stage.player.counters = (lambda now: [POWER(1.0)] if read(now) else []), read
    ages: list[float] = []
    stage.run(600.0, {7.3: lambda snapshot: ages.append(stage.clock.now - float(one(snapshot, USERS)) / 1000)})
    assert max(ages) <= 4.0


def test_counters_of_an_unexpected_collection_are_at_most_a_slow_interval_old() -> None:
    stage = Stage(interval=0.5, expected=60.0)
    stage.player.counters = lambda now: [USERS(int(now))]
    stage.run(31.0, {})
    assert float(one(stage.collect(), USERS)) - stage.start >= 31.0 - 10.5


# -- stale readings and pauses


@pytest.mark.parametrize("step", [3.0, 60.0])
def test_min_interval_is_least_time_between_readings(step: float) -> None:
    stage = Stage(interval=2.0, expected=step)
    stage.player.min_interval = 10.0
    found: list[Snapshot] = []
    stage.run(125.0, {step: found.append})
    apart = [after - before for before, after in pairwise(stage.player.readings)]
    assert min(apart) >= 10.0 - 1e-9
    assert len(apart) >= 9
    assert not any(snapshot.problems for snapshot in found)
    assert all(POWER in snapshot.values for snapshot in found), (
        "a reading is not too old before three of its own periods"
    )


def test_reading_older_than_three_periods_is_dropped() -> None:
    stage = Stage(interval=2.0, expected=20.0)
    stage.player.slow = lambda now: [USERS(3)]
    stage.run(20.0, {20.0: nothing})
    last, slow = stage.player.readings[-1], stage.player.slow_readings[-1]
    stage.clock.now = last + PERIODS * 2.0
    assert one(stage.collect(), POWER) == 1.0
    stage.clock.now = last + PERIODS * 2.0 + 0.01
    snapshot = stage.collect()
    assert values(snapshot, POWER) == {}
    assert one(snapshot, USERS) == 3, "the slow reading has expired with the other"
    stage.clock.now = slow + PERIODS * 10.0 + 0.01
    assert values(stage.collect(), USERS) == {}


def test_interval_0_takes_period_from_reader() -> None:
    stage = Stage(interval=0.0, expected=10.0)
    stage.run(40.0, {10.0: nothing})
    last = stage.player.readings[-1]
    stage.clock.now = last + 29.0
    assert one(stage.collect(), POWER) == 1.0
    stage.clock.now = last + 31.0
    assert values(stage.collect(9), POWER) == {}


def test_sampling_slows_down_without_collections_and_loses_nothing() -> None:
    stage = Stage(interval=1.0, expected=5.0, from_start=True)
    stage.player.read = lambda now: [POWER(now), ENERGY(now)]
    stage.run(20.0, {5.0: nothing})
    asked = stage.clock.now
    stage.run(290.0)
    idle = [at for at in stage.player.readings if at > asked + 16.0]
    assert {round(after - before) for before, after in pairwise(idle)} == {30}
    first = stage.collect(5000)
    assert one(first, POWER) == pytest.approx((asked + idle[-1]) / 2, abs=16.0), "the mean of a line is its middle"
    assert stage.runner.next_reading(stage.clock.now) <= stage.clock.now, "a collection does not end the slow sampling"
    assert one(stage.collect(9), POWER) > 0, "the reading has expired before the thread could make the next one"
    stage.run(295.0)
    assert round(stage.player.readings[-1] - stage.player.readings[-2]) == 1
    assert one(stage.collect(5000), ENERGY) == pytest.approx(295.0, abs=1.0)


def test_time_without_thread_has_no_weight_for_slow_readings() -> None:
    stage = Stage(interval=1.0, expected=5.0)
    level = 100.0
    stage.player.slow = lambda now: [POWER(level, {"part": "slow"})]
    stage.run(20.0, {5.0: nothing})
    stage.clock.now += 300.0  # the program was stopped
    level = 1.0
    stage.collect(5000)
    stage.run(330.0)
    stage.runner.read(everything=True)
    mean = values(stage.collector.collect({}), POWER)[Series(POWER, {"part": "slow"})]
    assert mean > 50.0, "the reading after the pause has the weight of the pause"
    assert stage.up() == {"player": 1}


def test_sampling_without_reader_slows_down_after_an_hour() -> None:
    stage = Stage(interval=10.0, expected=10.0)
    stage.run(10_000.0)
    apart = [(after - before, before - stage.start) for before, after in pairwise(stage.player.readings)]
    assert {round(gap) for gap, at in apart if at < 3580.0} == {10}
    assert {round(gap) for gap, at in apart if at > 3620.0} == {30}


@pytest.mark.parametrize("interval", [0.0, 2.0, 10.0, 60.0])
@pytest.mark.parametrize(
    "gaps",
    [
        (300.0, 300.0, 300.0),  # an interval in code, much longer than the one of the environment
        (1000.0, 1000.0, 1000.0),
        (5.0, 0.1, 600.0, 3.0, 47.0, 7200.0, 0.0),  # a scrape now and then
        (4000.0, 2000.0),
    ],
)
def test_slow_and_irregular_readers_get_complete_exports_from_the_first_on(
    interval: float, gaps: tuple[float, ...]
) -> None:
    stage = Stage(interval=interval, expected=60.0)
    stage.player.counters = lambda now: [ENERGY(now)]
    stage.player.slow = lambda now: [USERS(3)]
    now = 0.0
    for number, gap in enumerate(gaps):
        now += gap
        stage.run(now)
        up = stage.up()
        snapshot = stage.collect()
        assert ({POWER, ENERGY, USERS} - snapshot.values.keys(), up) == (set(), {"player": 1}), f"export {number}"
        assert snapshot.problems == ()


@PATIENT
@given(st.lists(st.floats(0.0, 600.0), min_size=1, max_size=5), st.sampled_from([0.0, 5.0, 45.0]))
def test_every_collection_of_any_reader_is_complete(gaps: list[float], interval: float) -> None:
    stage = Stage(interval=interval, expected=60.0)
    stage.run(1.0)
    for now in accumulate(gaps, initial=1.0):
        stage.run(now)
        assert one(stage.collect(), POWER) == 1.0
        assert not interval or stage.clock.now - stage.player.readings[-1] <= max(30.0, interval)


def test_reading_with_short_interval_expires_after_three_seconds() -> None:
    stage = Stage(interval=0.05, expected=5.0)
    stage.run(10.0, {5.0: nothing})
    last = stage.player.readings[-1]
    stage.clock.now = last + 2.9
    assert one(stage.collector.collect({}), POWER) == 1.0
    assert stage.up() == {"player": 1}
    stage.clock.now = last + 3.1
    assert values(stage.collector.collect({}), POWER) == {}
    assert stage.up() == {"player": 0}


# -- errors


def test_absent_source_is_logged_once_and_not_retried(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.player.open = fail(Unavailable("no such device", "plug it in"))
    stage.run(10_000.0, {60.0: nothing})
    assert len(stage.player.opened) == len(stage.player.closed) == 1
    assert stage.runner.state is State.ABSENT
    assert stage.runner.problem == Problem("player", "no such device", "plug it in")
    assert stage.runner.next_reading(stage.clock.now) == inf
    assert infos(caplog) == ["Source player: no such device; plug it in"]
    assert warnings(caplog) == []
    assert stage.up() == {}
    assert stage.collect().problems == ()


def test_failed_open_is_retried_with_backoff_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(interval=2.0, expected=10.0)
    stage.player.open = fail(RuntimeError("the driver is confused"))
    stage.run(250.0, {10.0: nothing})
    assert len(stage.player.closed) == len(stage.player.opened), "a source that failed to open was not closed"
    attempts = [at - stage.start for at in stage.player.opened]
    assert attempts == pytest.approx([0, 1, 3, 7, 15, 31, 63, 123, 183, 243])
    assert len(warnings(caplog)) == 1
    assert "player" in warnings(caplog)[0]
    assert "RuntimeError: the driver is confused" in warnings(caplog)[0]
    assert stage.up() == {"player": 0}
    (problem,) = stage.collect().problems
    assert (problem.source, problem.reason) == ("player", "RuntimeError: the driver is confused")
    assert infos(caplog) == []
    stage.player.open = lambda: None
    stage.run(310.0, {10.0: nothing})
    assert stage.up() == {"player": 1}
    assert stage.collect().problems == ()
    assert one(stage.collect(), POWER) == 1.0
    assert infos(caplog) == ["Source player has recovered"]
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("where", ["read", "slow"])
def test_failed_read_closes_and_reopens_source(where: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(interval=2.0, expected=10.0, from_start=True)
    stage.player.slow_interval = 2.0
    stage.player.read = lambda now: [POWER(now), ENERGY(now)]
    stage.run(30.0, {10.0: nothing})
    assert stage.up() == {"player": 1}
    working = getattr(stage.player, where)

    def in_the_middle(now: float) -> Iterator[Point]:
        yield POWER(5.0, {"part": "first"})
        raise OSError("device lost")

    setattr(stage.player, where, in_the_middle)
    stage.run(41.0, {10.0: nothing})
    assert stage.runner.state is State.FAILED
    assert stage.up() == {"player": 0}
    assert values(stage.collect(), POWER) == {}, "a failed source is reported"
    assert len(stage.player.closed) == len(stage.player.opened), "a source that failed was not closed"
    setattr(stage.player, where, working)
    stage.run(60.0, {10.0: nothing})
    assert stage.up() == {"player": 1}
    assert len(stage.player.opened) == len(stage.player.closed) + 1
    assert len(warnings(caplog)) == 1
    assert "OSError: device lost" in warnings(caplog)[0]
    assert infos(caplog) == ["Source player has recovered"]
    assert one(stage.collect(), ENERGY) == pytest.approx(60.0, abs=2.0), "the counter does not continue"


def test_driver_that_calls_exit_fails_only_its_source() -> None:
    stage = Stage()
    stage.player.read = lambda now: sys.exit(3)
    stage.runner.read(everything=True)
    assert stage.runner.health(stage.clock()) == Problem("player", "SystemExit: 3")


def test_backoff_restarts_after_recovery() -> None:
    stage = Stage(interval=1.0, expected=5.0)
    for until in (100.0, 200.0):
        begun = len(stage.player.opened)
        now = stage.clock.now - stage.start
        stage.player.open = stage.player.read = fail(OSError("no"))
        stage.run(now + 5.0, {5.0: nothing})
        attempts = stage.player.opened[begun:]
        gaps = [at - before for before, at in pairwise(attempts)]
        assert pytest.approx([2.0]) in (gaps[:1], gaps[1:2]), gaps
        stage.player.open, stage.player.read = lambda: None, lambda now: [POWER(1.0)]
        stage.run(until, {5.0: nothing})
        assert stage.up() == {"player": 1}


@pytest.mark.parametrize(
    "garbage", [None, 5, [5], ["x"], [(POWER, 1.0)], [None]], ids=["none", "number", "numbers", "text", "row", "nones"]
)
def test_read_that_returns_no_points_is_a_failure(garbage: object, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.player.read = lambda now: garbage  # type: ignore[assignment, return-value]
    stage.run(30.0, {10.0: nothing})
    assert stage.up() == {"player": 0}
    assert len(warnings(caplog)) == 1
    assert len(stage.player.opened) <= 6


def test_invalid_value_is_logged_once_and_other_series_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(interval=2.0, expected=10.0)
    invalid = POWER(float("nan"), {"part": "invalid"})
    stage.player.read = lambda now: [POWER(7.0), invalid, invalid]
    stage.run(60.0, {10.0: nothing})
    assert len(stage.player.opened) == 1, "it was reopened"
    snapshot = stage.collect()
    assert one(snapshot, POWER) == 7.0
    (problem,) = snapshot.problems
    assert "invalid" in problem.reason
    assert "1 more" in problem.reason
    assert stage.up() == {"player": 0}
    assert len(warnings(caplog)) == 1
    assert len(stage.player.readings) < 60, "it is read too often"
    stage.player.read = lambda now: [POWER(7.0)]
    stage.run(70.0, {10.0: nothing})
    assert stage.up() == {"player": 1}
    assert stage.collect().problems == ()
    assert infos(caplog) == ["Source player has recovered"]


def test_problem_named_by_source_is_reported_until_it_is_gone() -> None:
    stage = Stage(interval=2.0)
    stage.run(1.0)
    source = stage.runner.source
    assert source is not None
    source.errors = ["one half of it is missing"]
    stage.run(3.0)
    assert [problem.reason for problem in stage.collect().problems] == ["one half of it is missing"]
    source.errors = []
    stage.run(5.0)
    assert stage.collect().problems == ()


def test_driver_refusal_is_reported_in_words_of_driver() -> None:
    stage = Stage()
    stage.player.read = fail(DriverError(15, "GPU is lost"))
    stage.run(1.0)
    assert [problem.reason for problem in stage.collect().problems] == ["GPU is lost (15)"]


def test_invalid_value_after_failure_does_not_shorten_interval(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(interval=2.0, expected=10.0)
    stage.player.open = fail(OSError("not yet"))
    stage.run(0.5)
    stage.player.open = lambda: None
    stage.player.read = lambda now: [POWER(float("nan"))]
    stage.clock.now = stage.runner.next_reading(stage.clock.now)
    stage.runner.read(everything=True)
    assert stage.runner.next_reading(stage.clock.now) >= stage.clock.now + 1.0
    assert len(warnings(caplog)) == 1


def test_source_whose_close_fails_is_reopened(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    source = stage.player.make()
    source.close = fail(OSError("cannot close"))  # type: ignore[method-assign]
    made = iter([source, stage.player.make()])
    stage.runner._make = lambda: next(made)
    stage.player.read = fail(OSError("no"))
    stage.run(0.5)
    stage.player.read = lambda now: [POWER(1.0)]
    stage.run(5.0)
    assert stage.up() == {"player": 1}
    assert len(warnings(caplog)) == 1


def test_failing_source_constructor_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.runner._make = fail(TypeError("not a source"))
    stage.run(20.0)
    assert stage.up() == {"player": 0}
    assert len(warnings(caplog)) == 1
    assert "not a source" in warnings(caplog)[0]


def test_flapping_source_warns_once_in_ten_minutes_with_the_number(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(interval=2.0, expected=2.0)

    def flap(now: float) -> list[Point]:
        if int(now - stage.start) % 20 < 10:
            raise OSError("no answer")
        return [POWER(1.0)]

    stage.player.read = flap
    stage.run(1300.0)
    first, *later = warnings(caplog)
    assert first == "Source player: OSError: no answer; its metrics are missing until it recovers"
    assert len(later) == 2
    for each in later:
        found = re.search(r"recovers \((\d+) interruptions since the last warning\)$", each)
        assert found
        assert 20 <= int(found[1]) <= 40
    assert len([text for text in infos(caplog) if "no answer" in text]) >= 50, "the others are at INFO"


def test_source_that_takes_much_cpu_time_rests() -> None:
    """A reading of 0.25 s of CPU time every second is 25 % of a core."""
    stage = Stage(interval=1.0)

    def work(now: float) -> list[Point]:
        stage.cpu_clock.now += 0.25
        return [POWER(1.0)]

    stage.player.read = work
    stage.run(200.0)
    assert 200.0 * 0.01 < 0.25 * len(stage.player.readings) < 200.0 * 0.025
    assert stage.up() == {"player": 1}
    assert one(stage.collect(), POWER) == 1.0


def test_source_does_not_rest_after_one_long_reading() -> None:
    """A garbage collection of a large program may run in our thread. Spans would miss the readings."""
    stage = Stage(interval=1.0)

    def work(now: float) -> list[Point]:
        stage.cpu_clock.now += 2.0 if len(stage.player.readings) == 5 else 0.001
        return [POWER(1.0)]

    stage.player.read = work
    stage.run(60.0)
    assert max(later - earlier for earlier, later in pairwise(stage.player.readings)) < 1.1


# -- hangs


def test_hang_followed_by_error_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(interval=1.0)

    def hang(now: float) -> list[Point]:
        stage.clock.now += 30.0
        for _ in range(3):
            stage.runner.warn_if_hanging(stage.clock.now)
        raise OSError("timed out")

    stage.player.read = hang
    stage.run(20.0)
    assert stage.up() == {"player": 0}
    stage.player.read = lambda now: [POWER(1.0)]
    stage.run(200.0)
    assert stage.up() == {"player": 1}
    assert warnings(caplog) == ["Source player has not responded for 30 s; its metrics are missing until it does"]
    assert infos(caplog) == ["Source player has recovered"]


def test_time_of_hang_has_no_weight() -> None:
    stage = Stage(interval=1.0, expected=10.0)

    hung: list[float] = []

    def read(now: float) -> list[Point]:
        if now >= stage.start + 11.0 and len(hung) < 2:
            hung.append(now)
            stage.clock.now += 50.0 if len(hung) == 1 else 0.0
            return [POWER(float(len(hung)) * 500.0 - 499.0)]
        return [POWER(1.0)]

    stage.player.read = read
    stage.run(80.0, {10.0: nothing})
    assert len(hung) == 2
    assert one(stage.collector.collect({}), POWER) == 1.0, "the reading after the hang has the weight of the hang"


def test_stale_source_is_not_up_and_a_problem() -> None:
    stage = Stage(interval=2.0, expected=60.0)
    stage.run(10.0, {5.0: nothing})
    for delay in (6.5, 400.0):
        stage.clock.now += delay  # the thread was not scheduled
        (problem,) = stage.collector.collect({}).problems
        assert "old" in problem.reason
        assert stage.up() == {"player": 0}


def test_slow_reading_is_a_problem_only_after_hang_limit() -> None:
    stage = Stage(interval=0.5, expected=5.0)
    stage.run(10.0, {5.0: nothing})
    problems: list[list[str]] = []

    def read(now: float) -> list[Point]:
        for _ in range(2):
            stage.clock.now += 2.0
            problems.append([problem.reason for problem in stage.collector.collect({}).problems])
        return [POWER(1.0)]

    stage.player.read = read
    stage.runner.read(everything=True)
    assert problems == [[], ["it has not responded for 4 s"]]


def test_hung_source_that_was_slow_to_open_has_no_values() -> None:
    """Otherwise, a collection would have values of a source that it reports as down."""
    stage = Stage(interval=1.0)
    while_down: list[bool] = []

    def open_slowly() -> None:
        stage.clock.now += 2.0

    def hang(now: float) -> list[Point]:
        for _ in range(8):
            stage.clock.now += 1.0
            snapshot = stage.collector.collect({})
            if snapshot.problems:
                while_down.append(POWER in snapshot.values)
        return []

    stage.player.open, stage.player.slow = open_slowly, hang
    stage.runner.read(everything=True)
    assert while_down == [False] * 5


@pytest.mark.parametrize("where", ["read", "slow"])
def test_only_open_makes_a_source_absent(where: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    setattr(stage.player, where, fail(Unavailable("no module psutil")))
    stage.run(0.5)
    assert stage.runner.state is State.FAILED
    setattr(stage.player, where, lambda now: [POWER(1.0, {"part": where})])
    stage.run(5.0)
    assert stage.up() == {"player": 1}
    assert warnings(caplog) == ["Source player: no module psutil; its metrics are missing until it recovers"]


def test_source_that_was_open_once_is_retried_when_open_finds_nothing() -> None:
    stage = Stage()
    stage.run(5.0)
    stage.player.read = fail(OSError("bus error"))
    stage.player.open = fail(Unavailable("no such device"))
    stage.run(30.0)
    assert stage.runner.state is State.FAILED
    stage.player.open, stage.player.read = lambda: None, lambda now: [POWER(1.0)]
    stage.run(100.0)
    assert stage.up() == {"player": 1}


def test_source_without_sample_before_collection_ignores_collections() -> None:
    stage = Stage(interval=10.0, expected=60.0)
    stage.player.sample_before_collection = False
    stage.player.slow_interval = 60.0
    stage.run(300.5, {7.0: lambda snapshot: None})
    assert [at - stage.start for at in stage.player.readings] == pytest.approx([10.0 * turn for turn in range(31)])
    assert [at - stage.start for at in stage.player.slow_readings] == pytest.approx([60.0 * turn for turn in range(6)])


def test_interval_0_reads_every_source_before_collections() -> None:
    stage = Stage(interval=0.0, expected=60.0)
    stage.player.sample_before_collection = False
    stage.run(120.5, {60.0: lambda snapshot: None})
    assert [at - stage.start for at in stage.player.readings] == pytest.approx([0.0, 59.95, 119.95])


@pytest.mark.parametrize("name", ["min_interval", "slow_interval"])
def test_source_with_invalid_interval_fails_alone(name: str) -> None:
    stage = Stage(names=("player", "neighbour"))
    setattr(stage.player, name, "soon")
    stage.run(20.0)
    assert stage.up() == {"player": 0, "neighbour": 1}
    assert "soon" in stage.collect().problems[0].reason


def test_slow_open_does_not_move_the_reading_before_a_collection() -> None:
    stage = Stage(interval=0.0, expected=60.0)

    def open_slowly() -> None:
        stage.clock.now += 10.0

    stage.player.open = open_slowly
    stage.run(60.5, {60.0: nothing})
    assert stage.player.readings[1] == pytest.approx(stage.start + 59.95)


# -- spans


class _Device(Source):
    """A source of a device whose reading for spans fails."""

    name = "device"

    def __init__(self) -> None:
        super().__init__(SourceContext(Config(), Drivers(), 1))

    def open(self) -> None:
        pass

    def readings(self) -> Sequence[Reading]:
        return (*super().readings(), Reading(fail(ProcessLookupError()), 1.0, for_spans=True))

    def read(self) -> list[Point]:
        return [POWER(1.0)]


def test_failure_of_what_spans_need_costs_no_metrics() -> None:
    """The agent reads a process that has ended: its last counters are known, its tree is not."""
    clock, demand = Clock(), Demand()
    demand.is_tracing = True
    runner = SourceRunner(_Device, "device", CollectionSchedule(0.0, 60.0), CounterStore(), clock=clock, demand=demand)
    runner.read()
    for _ in range(4):
        clock.now = runner.next_reading(clock.now)
        runner.read()
    assert runner.state is State.UP
    assert runner.problem is None
    assert [value for _, value in runner.points(clock.now)] == [1.0]
