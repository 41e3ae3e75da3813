"""Means, peaks, ratios, counters and integrals over the window of each reader."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.stage import BUSY, DIPPING, ENERGY, LEVEL, PATIENT, POWER, POWER_PEAK

from opentelemetry.instrumentation.hardware.catalog import ERROR_TYPE, GPU_XID, HW_ERRORS, SYSTEM_PAGING_FAULTS
from opentelemetry.instrumentation.hardware.model import CounterRatio, Metric, Number, Point, Rate, Series, Values
from opentelemetry.instrumentation.hardware.pipeline.aggregate import KEPT, Aggregator, Published, Totals
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore

EXACT = 1e-9


class Readings:
    """An aggregator, with the totals that a reader would have kept at each time."""

    def __init__(self, from_start: bool = False) -> None:
        self.aggregator = Aggregator(CounterStore(), from_start)
        self.totals: dict[float, Totals] = {}

    @property
    def published(self) -> Published:
        assert self.aggregator.published is not None
        return self.aggregator.published

    def add(self, now: float, points: Iterable[Point]) -> list[str]:
        errors = self.aggregator.add(now, points)
        self.totals[now] = self.published.totals
        return errors

    def window(self, since: float | None = None) -> dict[Series, Number]:
        """The values since a reading."""
        return by_series(self.published.window(None if since is None else self.totals[since]))

    def value(self, series: Series, since: float | None = None) -> Number | None:
        return self.window(since).get(series)


def by_series(values: Values) -> dict[Series, Number]:
    """The values of a window; a series that appears twice fails the test."""
    rows = [(Series(metric, attributes), value) for metric, points in values.items() for value, attributes in points]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


class Reader:
    """Collects from an aggregator; keeps the limits and the values of each of its windows."""

    def __init__(self, aggregator: Aggregator) -> None:
        self.aggregator = aggregator
        self.mark: Totals | None = None
        self.readings = -1
        self.windows: list[tuple[float | None, float, dict[Metric, Number]]] = []

    def collect(self) -> None:
        published = self.aggregator.published
        assert published is not None
        values = {series.metric: value for series, value in by_series(published.window(self.mark)).items()}
        self.windows.append((None if self.mark is None else self.mark.time, published.time, values))
        self.mark = published.totals


def trace(seed: int, seconds: float, rate: float) -> list[tuple[float, float]]:
    """Samples of power: slow and quick changes, and spikes that only one sample sees."""
    dice = random.Random(seed)
    samples = []
    level = 250.0
    for number in range(int(seconds * rate)):
        level = min(700.0, max(60.0, level + dice.gauss(0.0, 12.0)))
        spike = dice.random() < 0.02
        samples.append((100.0 + number / rate, 5000.0 + number if spike else level + dice.uniform(-5.0, 5.0)))
    return samples


def area(samples: list[tuple[float, float]], begin: float, end: float) -> float:
    """The integral from one reading to another; each reading holds for the time since the one before it."""
    return sum(value * (at - before) for (before, _), (at, value) in pairwise(samples) if begin <= before and at <= end)


steps = st.lists(st.floats(0.01, 3.0), min_size=2, max_size=60)
watts = st.floats(-1e6, 1e6, allow_nan=False).map(lambda number: round(number, 3))


@PATIENT
@given(data=st.data(), gaps=steps)
def test_mean_and_peak_are_exact_for_any_samples_and_windows(data: st.DataObject, gaps: list[float]) -> None:
    times = list(accumulate(gaps, initial=50.0))
    samples = [(at, data.draw(watts)) for at in times]
    scale = max(abs(value) for _, value in samples) * (times[-1] - times[0])
    collections = data.draw(st.lists(st.sampled_from(range(len(times)))).map(sorted))
    aggregator = Aggregator(CounterStore())
    reader = Reader(aggregator)
    for number, (at, level) in enumerate(samples):
        aggregator.add(at, [POWER(level), POWER_PEAK(level)])
        for _ in range(collections.count(number)):
            reader.collect()
            since, end, found = reader.windows[-1]
            if since == end:  # the newest interval once more
                since = times[number - 1] if number else None
            begin = times[0] if since is None else since
            if end > begin:
                expected = area(samples, begin, end)
                assert found[POWER] * (end - begin) == pytest.approx(expected, rel=EXACT, abs=EXACT * scale)
            else:
                assert found[POWER] == level, "a window of one reading is not its value"
            inside = [value for at, value in samples[: number + 1] if since is None or at > since]
            assert found[POWER_PEAK] == max(inside)


constants = st.sampled_from([0.1, 1 / 3, 1e15 + 0.3, 99.99999999999999, -273.15, 5e-324, 700]) | st.floats(-1e15, 1e15)


@settings(PATIENT, max_examples=20)
@given(
    level=constants,
    other=constants,
    changed=st.integers(0, 500),
    rare=st.integers(2, 400),
    now=st.floats(0.0, 1e8),
    seed=st.integers(0, 99),
)
def test_mean_of_a_constant_is_the_constant_in_every_window(
    level: float, other: float, changed: int, rare: int, now: float, seed: int
) -> None:
    """For two readers, through interruptions, and after other values."""
    dice = random.Random(seed)
    aggregator = Aggregator(CounterStore())
    often, seldom = Reader(aggregator), Reader(aggregator)
    for number in range(3000):
        now += dice.uniform(0.01, 3.0)
        if dice.random() < 0.01:
            aggregator.interrupt()
        assert aggregator.add(now, [POWER(level if number >= changed else other * dice.random())]) == []
        for reader in (often, seldom) if number % rare == 0 else (often,):
            before = reader.readings
            reader.collect()
            reader.readings = number
            if before + 1 >= changed:
                (value,) = reader.windows[-1][2].values()
                assert value == level, f"window of readings {before + 1} to {number}"


def test_collection_without_new_reading_gets_the_newest_interval() -> None:
    readings = Readings()
    for at, level in ((0.0, 10.0), (2.0, 20.0), (4.0, 40.0)):
        readings.add(at, [POWER(level), POWER_PEAK(-level), BUSY(CounterRatio(at / 2, at))])
    assert readings.window(since=4.0) == {Series(POWER): 40.0, Series(POWER_PEAK): -40.0, Series(BUSY): 0.5}


def test_values_of_a_mean_have_one_type_from_the_first_reading_on() -> None:
    """Google Cloud Monitoring refuses the values of the other type: its metrics have one."""
    readings = Readings()
    found = []
    for at in (0.0, 2.0, 4.0):
        readings.add(at, [POWER(40)])
        found.append(readings.value(Series(POWER)))
    readings.aggregator.interrupt()
    readings.add(6.0, [POWER(50)])
    found.append(readings.value(Series(POWER), since=4.0))
    assert (found, {*map(type, found)}) == ([40.0, 40.0, 40.0, 50.0], {float})


def test_first_reading_is_baseline_of_window() -> None:
    readings = Readings()
    assert readings.aggregator.published is None
    readings.add(0.0, [POWER(500.0), POWER_PEAK(500.0), BUSY(CounterRatio(1.0, 2.0)), ENERGY(7)])
    assert readings.published.time == 0.0
    assert readings.window() == {Series(POWER): 500.0, Series(POWER_PEAK): 500.0, Series(ENERGY): 7}
    readings.add(2.0, [POWER(100.0), POWER_PEAK(100.0)])
    assert readings.value(Series(POWER)) == 100.0
    assert readings.value(Series(POWER_PEAK)) == 500.0, "the peak of the first sample is lost"


@PATIENT
@given(data=st.data(), whole=st.lists(st.floats(0.0, 1e4), min_size=2, max_size=40))
def test_ratio_is_exact_for_any_sampling(data: st.DataObject, whole: list[float]) -> None:
    totals = list(accumulate(whole, initial=123.0))
    parts = list(accumulate((step * data.draw(st.floats(0.0, 1.0)) for step in whole), initial=7.0))
    sampled = sorted({0, len(totals) - 1, *data.draw(st.lists(st.sampled_from(range(len(totals)))))})
    readings = Readings()
    for number in sampled:
        readings.add(float(number), [BUSY(CounterRatio(parts[number], totals[number]))])
    grown = totals[-1] - totals[0]
    found = readings.value(Series(BUSY))
    if grown > 1e-3:
        assert found == pytest.approx((parts[-1] - parts[0]) / grown, rel=EXACT, abs=1e-9)
    elif grown == 0:
        assert found is None, "a ratio without an increase of the whole"


def test_long_fall_keeps_its_highest_and_newest_peak() -> None:
    readings = Readings()
    for at in range(10_000):
        readings.add(float(at), [POWER_PEAK(10_000.0 - at)])
    assert len(readings.published.peaks[Series(POWER_PEAK)]) <= 64
    assert readings.value(Series(POWER_PEAK)) == 10_000.0
    assert readings.value(Series(POWER_PEAK), since=9_998.0) == 1.0


@PATIENT
@given(levels=st.lists(st.integers(0, 10**6), min_size=65, max_size=200).map(lambda levels: sorted(levels)[::-1]))
def test_peak_of_a_long_fall_is_lower_by_at_most_a_thirtieth_of_the_range(levels: list[int]) -> None:
    readings = Readings()
    for at, level in enumerate(levels):
        readings.add(float(at), [POWER_PEAK(level)])
    for since in range(len(levels) - 1):
        lost = levels[since + 1] - (readings.value(Series(POWER_PEAK), float(since)) or 0)
        assert 0 <= lost <= (levels[0] - levels[-1]) / 30


def test_spike_before_a_long_fall_is_the_peak() -> None:
    readings = Readings()
    for at, level in enumerate([5000.0, 4000.0, *range(1000, 900, -1)]):
        readings.add(float(at), [POWER_PEAK(level)])
    assert readings.value(Series(POWER_PEAK), since=0.0) == 4000.0


def test_series_that_vanish_are_forgotten() -> None:
    readings = Readings()
    for at in range(0, 4000, 10):
        part = {"part": str(at)}
        readings.add(
            float(at), [POWER(1.0, part), POWER_PEAK(1.0, part), ENERGY(1.0, part), BUSY(CounterRatio(1.0, 1.0), part)]
        )
    most = 2 * KEPT / 10 + 2
    assert len(readings.published.totals.sums) <= 2 * most
    assert len(readings.published.peaks) <= most
    assert len(readings.aggregator._counters) <= most


def test_series_that_returns_after_it_was_forgotten_starts_anew() -> None:
    readings = Readings()
    series, other = POWER(1.0)[0], POWER(1.0, {"part": "other"})
    for at in range(100):
        readings.add(float(at), [series(100.0), other])
    for at in range(100, 2000):
        readings.add(float(at), [other])
    assert series not in readings.published.totals.sums
    readings.add(2000.0, [series(1.0), other])
    assert readings.value(series, since=50.0) == 1.0
    for at in range(2001, 2100):
        readings.add(float(at), [series(3.0), other])
    for since in (1.0, 50.0):
        assert readings.value(series, since) == 3.0


def test_two_readers_of_2000_means_need_less_than_2_mib() -> None:
    series = [Series(POWER, {"part": str(number)}) for number in range(2000)]
    aggregator = Aggregator(CounterStore())
    readers = {7: Reader(aggregator), 30: Reader(aggregator)}
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(38):
            aggregator.add(2.0 * number, [(each, 0.5 + number) for each in series])
            for step, reader in readers.items():
                if number % step == 0:
                    reader.mark = aggregator.published.totals if aggregator.published else None
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 2 * 2**20


@pytest.mark.parametrize(
    ("metric", "counts", "expected"),
    [
        (ENERGY, [100, 120, 3, 10], [100, 120, 123, 130]),
        (ENERGY, [0, 1000, 600, 800, 1000, 1200], [0, 1000, 1600, 1800, 2000, 2200]),
        (ENERGY, [100.0, 0.0, 50.0, 0.0, 1.0], [100.0, 100.0, 150.0, 150.0, 151.0]),
        (ENERGY, [0, 0, 1], [0, 0, 1]),
        (DIPPING, [100, 99, 99, 101], [100, 100, 100, 101]),
        (DIPPING, [100, 50], [100, 100]),
        (DIPPING, [225_249, 226_681, 114_431, 115_431], [225_249, 226_681, 226_681, 227_681]),
        (SYSTEM_PAGING_FAULTS, [1000, 999, 1001], [1000, 1000, 1001]),
    ],
    ids=[
        "reset",
        "reset to more than half",
        "two resets",
        "zero",
        "small dip",
        "no small dip",
        "CPU online again",
        "major fault",
    ],
)
@pytest.mark.parametrize("from_start", [False, True])
def test_counter_continues_after_a_reset(
    metric: Metric, counts: list[Number], expected: list[Number], from_start: bool
) -> None:
    readings = Readings(from_start)
    found = []
    for at, count in enumerate(counts):
        readings.add(float(at), [metric(count)])
        found.append(readings.value(Series(metric)))
    base = expected[0] if from_start else 0
    assert found == [value - base for value in expected]


@pytest.mark.parametrize("from_start", [False, True])
def test_counter_that_is_missing_from_first_reading_continues_its_integral(from_start: bool) -> None:
    """The device's total since boot would be one leap of the exported counter, and of each rate made of it."""
    readings = Readings(from_start)
    values: list[Rate | float] = [Rate(100.0), Rate(100.0), 5e6, 5e6 + 200, Rate(50.0), 5e6 + 250]
    found = []
    for at, value in enumerate(values):
        assert readings.add(2.0 * at, [(Series(ENERGY), value)]) == []
        found.append(readings.value(Series(ENERGY)))
    assert found == [0, 200, 200, 400, 500, 500]
    readings.add(12.0, [ENERGY(5e6 + 400)])
    assert readings.value(Series(ENERGY)) == 600
    readings.add(14.0, [ENERGY(30.0)])
    assert readings.value(Series(ENERGY)) == 630, "a restart of the count"


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        pytest.param([(50, 100), (51, 102), (0, 1), (1, 3)], (1 + 1) / (2 + 2), id="both start anew"),
        pytest.param([(10, 100), (20, 120), (21, 3), (22, 5)], (10 + 1) / (20 + 2), id="the whole starts anew"),
        pytest.param([(10, 100), (20, 120), (3, 125), (5, 130)], (10 + 2) / (20 + 5), id="the part starts anew"),
        pytest.param([(10, 100), (20, 120), (19.5, 119), (21, 140)], (21 - 10) / (140 - 100), id="small dip of both"),
    ],
)
def test_ratio_of_totals_that_fall(totals: list[tuple[float, float]], expected: float) -> None:
    readings = Readings()
    for at, total in enumerate(totals):
        readings.add(float(at), [BUSY(CounterRatio(*map(float, total)))])
    assert readings.value(Series(BUSY)) == expected


def test_ratio_with_small_dip_over_interruption_restarts_there() -> None:
    readings = Readings()
    for at, part, whole in ((0.0, 10.0, 100.0), (1.0, 20.0, 120.0)):
        readings.add(at, [BUSY(CounterRatio(part, whole))])
    readings.aggregator.interrupt()
    for at, part, whole in ((2.0, 19.0, 119.0), (3.0, 22.0, 131.0)):
        readings.add(at, [BUSY(CounterRatio(part, whole))])
    assert readings.value(Series(BUSY), since=2.0) == (22 - 19) / (131 - 119)


def test_reading_without_points_ends_the_interval() -> None:
    readings = Readings()
    for at, points in enumerate(([POWER(1.0)], [POWER(1.0)], (), [POWER(9.0)])):
        readings.add(float(at), points)
    assert readings.value(Series(POWER), since=0.0) == 1.0, "the time of its absence has no weight"


@pytest.mark.parametrize("metric", [LEVEL, ENERGY])
def test_float_above_int64_is_accepted(metric: Metric) -> None:
    readings = Readings()
    assert readings.add(0.0, [metric(1e19)]) == []
    assert readings.value(Series(metric)) == 1e19


counts = st.one_of(
    st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30), st.lists(st.floats(0, 1e18), min_size=1, max_size=30)
)


@PATIENT
@given(counts, st.booleans())
def test_counter_is_monotonic_for_any_readings(counts: Sequence[Number], from_start: bool) -> None:
    readings = Readings(from_start)
    before: Number | None = None
    for at, count in enumerate(counts):
        readings.add(float(at), [ENERGY(count)])
        value = readings.value(Series(ENERGY))
        assert value is not None
        assert value >= 0
        assert before is None or value >= before, f"{counts[: at + 1]} fell from {before} to {value}"
        before = value


@PATIENT
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.integers(0, 10**12))
def test_rising_counter_is_unchanged_or_counts_from_start(rises: list[int], boot: int) -> None:
    totals = list(accumulate(rises, initial=boot))
    as_it_is, from_start = Readings(), Readings(from_start=True)
    for at, total in enumerate(totals):
        for readings, expected in ((as_it_is, total), (from_start, total - boot)):
            readings.add(float(at), [ENERGY(total)])
            assert readings.value(Series(ENERGY)) == expected


def test_late_counter_from_start_begins_at_its_first_reading() -> None:
    readings = Readings(from_start=True)
    readings.add(0.0, [ENERGY(10, {"part": "a"})])
    readings.add(1.0, [ENERGY(12, {"part": "a"}), ENERGY(1000, {"part": "b"})])
    readings.add(2.0, [ENERGY(12, {"part": "a"}), ENERGY(1001, {"part": "b"})])
    assert readings.value(Series(ENERGY, {"part": "a"})) == 2
    assert readings.value(Series(ENERGY, {"part": "b"})) == 1


def test_counter_above_int64_is_left_out() -> None:
    readings = Readings()
    most = 2**63 - 1
    for at, reading in enumerate((most, 0, 5)):
        readings.add(float(at), [ENERGY(reading)])
    for series, value in readings.window().items():
        assert value <= most, f"{series} is exported as {value}"


def test_window_of_series_that_appears_and_disappears() -> None:
    readings = Readings()
    a, b = Series(POWER, {"part": "a"}), Series(POWER, {"part": "b"})
    peak = Series(POWER_PEAK, {"part": "b"})
    readings.add(0.0, [a(10.0)])
    readings.add(1.0, [a(10.0), b(50.0), peak(-3.0)])
    assert readings.value(b, since=0.0) == 50.0, "one reading is not the mean"
    assert readings.value(peak, since=0.0) == -3.0
    readings.add(2.0, [a(10.0), b(70.0), peak(-5.0)])
    assert readings.value(b, since=0.0) == 70.0, "the first reading has no weight"
    assert readings.value(peak, since=0.0) == -3.0
    readings.add(3.0, [a(20.0)])
    assert readings.value(b) is None
    assert readings.value(peak) is None
    assert readings.value(a, since=0.0) == pytest.approx(40 / 3)
    readings.add(10.0, [a(20.0), b(1.0), peak(-9.0)])
    readings.add(11.0, [a(20.0), b(1.0), peak(-9.0)])
    assert readings.value(b, since=2.0) == 1.0, "the time of its absence has no weight"
    assert readings.value(b, since=0.0) == pytest.approx(71 / 2)
    assert readings.value(peak, since=3.0) == -9.0


class Float64(float):
    """A subclass of float, as array libraries have; exporters do not know it."""


BAD = {
    "bool": True,
    "too large": 2**63,
    "too small": -(2**63) - 1,
    "nan": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "absurd": 1e200,
    "Decimal": Decimal("1.5"),
    "text": "12",
    "none": None,
    "like numpy": Float64(1.5),
    "complex": 1j,
    "tuple": (1.0, 2.0),
}


@pytest.mark.parametrize("metric", [POWER, POWER_PEAK, ENERGY, LEVEL, BUSY], ids=lambda metric: metric.name)
@pytest.mark.parametrize("bad", [pytest.param(value, id=name) for name, value in BAD.items()])
def test_unsafe_value_is_refused_and_other_series_are_kept(metric: Metric, bad: Any) -> None:
    readings = Readings()
    good = [POWER(1.0), POWER_PEAK(2.0), ENERGY(3), LEVEL(2**63 - 1), LEVEL(-(2**63), {"part": "least"})]
    invalid = (Series(metric, {"part": "invalid"}), bad)
    for at in (0.0, 1.0, 2.0):
        ratio = BUSY(CounterRatio(at / 4, at))
        (problem,) = readings.add(at, [*good, invalid, ratio])
        assert metric.name in problem
        assert "invalid" in problem
        assert repr(bad) in problem
    assert readings.window() == {**dict(good), Series(BUSY): 0.25}


@pytest.mark.parametrize(
    "invalid",
    [
        POWER(CounterRatio(1.0, 2.0)),
        ENERGY(CounterRatio(1.0, 2.0)),
        LEVEL(CounterRatio(1.0, 2.0)),
        POWER_PEAK(CounterRatio(1.0, 2.0)),
        BUSY(0.5),
        BUSY(CounterRatio(True, 2.0)),
        BUSY(CounterRatio(float("nan"), 2.0)),
        BUSY(CounterRatio(1.0, 2**64 - 1)),
        BUSY(CounterRatio(-1.0, 2.0)),
        ENERGY(-1),
        ENERGY(-0.5),
        *((Series(ENERGY), Rate(rate)) for rate in (-1.0, float("nan"), float("inf"), True)),
    ],
    ids=repr,
)
def test_value_of_wrong_type_for_metric_is_refused(invalid: Point) -> None:
    readings = Readings()
    for at in (0.0, 1.0):
        assert len(readings.add(at, [invalid, ENERGY(5, {"part": "good"})])) == 1
    assert readings.window() == {Series(ENERGY, {"part": "good"}): 5}


def test_duplicate_series_is_refused_and_first_value_is_kept() -> None:
    readings = Readings()
    wrong = readings.add(0.0, [ENERGY(5), ENERGY(6), POWER(1.0), POWER(2.0), LEVEL(1)])
    assert len(wrong) == 2
    assert "test.energy" in wrong[0]
    assert "test.power" in wrong[1]
    assert all("twice" in problem for problem in wrong)
    assert readings.window() == {Series(ENERGY): 5, Series(POWER): 1.0, Series(LEVEL): 1}


def test_interruption_is_excluded_from_mean_ratio_and_integral() -> None:
    readings = Readings()
    series = Series(POWER)
    readings.add(0.0, [series(10.0), BUSY(CounterRatio(0.0, 0.0)), ENERGY(100)])
    readings.add(2.0, [series(10.0), BUSY(CounterRatio(1.0, 2.0)), ENERGY(102)])
    readings.aggregator.interrupt()
    assert readings.aggregator.published is None
    readings.add(100.0, [series(900.0), BUSY(CounterRatio(90.0, 100.0)), ENERGY(200)])
    readings.add(102.0, [series(20.0), BUSY(CounterRatio(92.0, 102.0)), ENERGY(202)])
    assert readings.value(series, since=0.0) == 15.0
    assert readings.value(Series(BUSY), since=0.0) == 0.75
    assert readings.value(Series(ENERGY)) == 202, "the counter does not continue"
    assert readings.totals[102.0].sums[series].area == 60.0


def test_ratio_that_is_new_after_interruption_starts_there() -> None:
    readings = Readings()
    for at in (0.0, 1.0):
        readings.add(at, [LEVEL(1)])
    readings.aggregator.interrupt()
    readings.add(100.0, [BUSY(CounterRatio(90.0, 100.0))])
    assert readings.value(Series(BUSY), since=0.0) is None, "a ratio of the time before the first reading"
    readings.add(102.0, [BUSY(CounterRatio(91.0, 102.0))])
    assert readings.value(Series(BUSY), since=0.0) == 0.5


def test_rate_is_integrated_to_mean_times_window() -> None:
    aggregator = Aggregator(CounterStore())
    reader = Reader(aggregator)
    for number, (at, watts) in enumerate(trace(7, 40.0, 2.0)):
        assert aggregator.add(at, [POWER(watts), (Series(ENERGY), Rate(watts))]) == []
        if number % 10 == 5:
            reader.collect()
    assert len(reader.windows) == 8
    for (_, begin, before), (_, end, after) in pairwise(reader.windows):
        assert after[ENERGY] - before[ENERGY] == pytest.approx(after[POWER] * (end - begin), rel=EXACT)


def test_rate_counts_nothing_for_missing_readings() -> None:
    readings = Readings(from_start=False)
    energy = Series(ENERGY)
    for at, watts in ((0.0, 5.0), (1.0, 5.0), (2.0, None), (3.0, 7.0), (4.0, 7.0)):
        readings.add(at, [] if watts is None else [energy(Rate(watts))])
    assert readings.value(energy) == 5.0 + 7.0
    readings.aggregator.interrupt()
    readings.add(100.0, [energy(Rate(9.0))])
    assert readings.value(energy) == 12.0


def test_peak_survives_missing_and_failed_readings() -> None:
    readings = Readings()
    series = Series(POWER_PEAK)
    readings.add(0.0, [series(5.0)])
    readings.add(1.0, [LEVEL(1)])

    def failing() -> Iterator[Point]:
        yield series(9.0)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        readings.add(2.0, failing())
    readings.aggregator.interrupt()
    readings.add(3.0, [series(2.0)])
    readings.add(4.0, [series(1.0)])
    assert readings.value(series) == 5.0
    assert readings.value(series, since=0.0) == 2.0
    assert readings.value(series, since=3.0) == 1.0


# -- Events: kinds appear with their first event.


def test_new_kind_of_event_begins_with_0_for_each_reader() -> None:
    readings = Readings()
    first, new = (Series(HW_ERRORS, {ERROR_TYPE: "xid", GPU_XID: number}) for number in ("79", "31"))
    readings.add(1.0, [first(0)])
    readings.add(2.0, [first(1), new(2)])
    assert readings.window() == {first: 1, new: 2}, "a reader that collects for the first time"
    assert readings.window(since=1.0) == {first: 1, new: 0}
    readings.add(3.0, [first(1), new(3)])
    assert readings.window(since=1.0) == {first: 1, new: 0}, "a reader that collects less often"
    assert readings.window(since=2.0) == {first: 1, new: 3}
    last = by_series(readings.published.window(readings.totals[1.0], is_last=True))
    assert last == {first: 1, new: 3}, "no other collection follows"
