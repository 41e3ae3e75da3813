"""Means, peaks, shares, counters and integrals over the window of each reader."""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stage import BUSY, ENERGY, LEVEL, PATIENT, POWER, POWER_PEAK

from opentelemetry.instrumentation.hardware.model import CounterRatio, Metric, Number, Point, Rate, Series, Values
from opentelemetry.instrumentation.hardware.pipeline.aggregate import KEPT, SeriesAggregator

EXACT = 1e-9


def by_series(values: Values) -> dict[Series, Number]:
    """The values of a window; a series that appears twice fails the test."""
    rows = [(Series(metric, attributes), value) for metric, points in values.items() for value, attributes in points]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


class Reader:
    """Collects from a track; keeps the limits and the value of each of its windows."""

    def __init__(self, track: SeriesAggregator, shortest: float) -> None:
        self.track = track
        self.shortest = shortest
        self.end: float | None = None
        self.windows: list[tuple[float | None, float, dict[Metric, Number]]] = []

    def collect(self) -> None:
        answer = self.track.window(self.end, self.shortest)
        if answer is not None:
            before, self.end = self.end, answer[1]
            self.windows.append(
                (before, self.end, {series.metric: value for series, value in by_series(answer[0]).items()})
            )


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


def value_of(
    track: SeriesAggregator, series: Series, since: float | None = None, shortest: float = 0.0
) -> Number | None:
    answer = track.window(since, shortest)
    assert answer is not None
    return by_series(answer[0]).get(series)


@pytest.mark.parametrize("seed", range(5))
def test_20_hz_trace_is_exact_for_readers_of_1_s_and_5_s(seed: int) -> None:
    samples = trace(seed, 61.0, 20.0)
    track = SeriesAggregator()
    readers = {1.0: Reader(track, 0.05), 5.0: Reader(track, 0.05)}
    due = {step: samples[0][0] + step + 0.013 for step in readers}
    for at, watts in samples:
        for step, reader in readers.items():
            if due[step] < at:
                reader.collect()
                due[step] += step
        assert track.take(at, [POWER(watts), POWER_PEAK(watts)]) == []
    spikes = {at: watts for at, watts in samples if watts >= 5000.0}
    assert len(spikes) > 10, "the trace has too few spikes"
    for step, reader in readers.items():
        total = 0.0
        peaks = []
        assert len(reader.windows) == int(60.0 / step)
        for (end_before, begin, _), (since, end, found) in pairwise([(None, samples[0][0], {}), *reader.windows]):
            assert since in (None, begin), f"a gap or an overlap at {begin}"
            assert end_before is None or begin > end_before
            inside = [watts for at, watts in samples if begin < at <= end or (since is None and at == begin)]
            assert found[POWER] * (end - begin) == pytest.approx(area(samples, begin, end), rel=EXACT)
            assert found[POWER_PEAK] == max(inside)
            total += found[POWER] * (end - begin)
            peaks.append((since, end, found[POWER_PEAK]))
        begin, end = samples[0][0], reader.windows[-1][1]
        assert total == pytest.approx(area(samples, begin, end), rel=EXACT)
        for at, watts in spikes.items():
            if at <= end:  # spikes grow, so each is either the peak of its window or behind a later one
                (peak,) = [peak for since, until, peak in peaks if (since is None or since < at) and at <= until]
                assert peak >= watts, f"the spike of {watts} W at {at} s is lost to the reader of {step} s"
    everything = area(samples, samples[0][0], samples[-1][0])
    assert track.integral(Series(POWER)) == pytest.approx(everything, rel=EXACT)


steps = st.lists(st.floats(0.01, 3.0), min_size=2, max_size=60)
watts = st.floats(-1e6, 1e6, allow_nan=False).map(lambda number: round(number, 3))


@PATIENT
@given(data=st.data(), gaps=steps, shortest=st.floats(0.0, 4.0))
def test_mean_and_peak_are_exact_for_any_samples_and_windows(
    data: st.DataObject, gaps: list[float], shortest: float
) -> None:
    times = list(accumulate(gaps, initial=50.0))
    samples = [(at, data.draw(watts)) for at in times]
    collections = data.draw(st.lists(st.sampled_from(range(len(times))), unique=True).map(sorted))
    track = SeriesAggregator()
    reader = Reader(track, shortest)
    for number, (at, number_of_watts) in enumerate(samples):
        track.take(at, [POWER(number_of_watts), POWER_PEAK(number_of_watts)])
        if number in collections:
            reader.collect()
    assert len(reader.windows) == len(collections)
    for since, end, found in reader.windows:
        passed = 0 if since is None else bisect_right(times, min(since, end - shortest + 1e-3))
        first, last = max(0, passed - 1), bisect_left(times, end)
        begin = times[first]
        assert since is None or begin <= since, "a gap between two windows"
        assert begin == times[0] or end - begin >= shortest - 1e-3, "a window shorter than the shortest"
        if end > begin:
            scale = max(abs(value) for _, value in samples) * (times[-1] - times[0])
            assert found[POWER] * (end - begin) == pytest.approx(
                area(samples, begin, end), rel=EXACT, abs=EXACT * scale
            )
        else:
            assert found[POWER] == samples[times.index(end)][1], "a window of one reading is not its value"
        assert found[POWER_PEAK] == max(value for _, value in samples[min(passed, last) : last + 1])


@PATIENT
@given(data=st.data(), gaps=steps)
def test_windows_of_one_reader_are_contiguous(data: st.DataObject, gaps: list[float]) -> None:
    times = list(accumulate(gaps, initial=0.0))
    track = SeriesAggregator()
    reader = Reader(track, 0.0)
    collected = set(data.draw(st.lists(st.sampled_from(range(1, len(times))))))
    for number, at in enumerate(times):
        track.take(at, [POWER(number), POWER_PEAK(number)])
        if number in collected:
            reader.collect()
    ends = [end for _, end, _ in reader.windows]
    assert ends == [times[number] for number in sorted(collected)]
    assert [since for since, _, _ in reader.windows] == [None, *ends][: len(ends)]
    whole = sum(found[POWER] * (end - (times[0] if since is None else since)) for since, end, found in reader.windows)
    samples = [(at, float(number)) for number, at in enumerate(times)]
    assert whole == pytest.approx(area(samples, times[0], ends[-1] if ends else times[0]), rel=1e-6, abs=1e-9)
    # The samples rise, so the peak of each window is its newest sample.
    assert [found[POWER_PEAK] for *_, found in reader.windows] == sorted(collected)


def test_windows_of_two_readers_are_independent() -> None:
    def windows(steps: list[int]) -> list[list[tuple[float | None, float, dict[Metric, Number]]]]:
        track = SeriesAggregator()
        readers = [Reader(track, 0.1) for _ in steps]
        for number, (at, level) in enumerate(trace(7, 30.0, 10.0)):
            track.take(at, [POWER(level), POWER_PEAK(level)])
            for step, reader in zip(steps, readers):
                if number % step == 0:
                    reader.collect()
        return [reader.windows for reader in readers]

    assert windows([10, 50]) == [*windows([10]), *windows([50])]


def test_early_collection_gets_window_of_one_sampling_interval() -> None:
    track = SeriesAggregator()
    for at, level in ((0.0, 10.0), (2.0, 20.0), (4.0, 40.0)):
        track.take(at, [POWER(level), BUSY(CounterRatio(at / 2, at))])
    assert value_of(track, Series(POWER), since=4.0, shortest=2.0) == 40.0
    assert value_of(track, Series(BUSY), since=4.0, shortest=2.0) == 0.5
    assert value_of(track, Series(POWER), since=4.0, shortest=4.0) == 30.0


def test_first_reading_is_baseline_of_window() -> None:
    track = SeriesAggregator()
    assert track.window(None, 1.0) is None
    assert track.time is None
    track.take(0.0, [POWER(500.0), POWER_PEAK(500.0), BUSY(CounterRatio(1.0, 2.0)), ENERGY(7)])
    assert track.time == 0.0
    answer = track.window(None, 1.0)
    assert answer is not None
    assert by_series(answer[0]) == {Series(POWER): 500.0, Series(POWER_PEAK): 500.0, Series(ENERGY): 7}
    track.take(2.0, [POWER(100.0), POWER_PEAK(100.0)])
    assert value_of(track, Series(POWER)) == 100.0
    assert value_of(track, Series(POWER_PEAK)) == 500.0, "the peak of the first sample is lost"


@PATIENT
@given(data=st.data(), whole=st.lists(st.floats(0.0, 1e4), min_size=2, max_size=40))
def test_share_is_exact_for_any_sampling(data: st.DataObject, whole: list[float]) -> None:
    totals = list(accumulate(whole, initial=123.0))
    parts = list(accumulate((step * data.draw(st.floats(0.0, 1.0)) for step in whole), initial=7.0))
    sampled = sorted({0, len(totals) - 1, *data.draw(st.lists(st.sampled_from(range(len(totals)))))})
    track = SeriesAggregator()
    for number in sampled:
        track.take(float(number), [BUSY(CounterRatio(parts[number], totals[number]))])
    grown = totals[-1] - totals[0]
    found = value_of(track, Series(BUSY))
    if grown > 1e-3:
        assert found == pytest.approx((parts[-1] - parts[0]) / grown, rel=EXACT, abs=1e-9)
    elif grown == 0:
        assert found is None, "a share without an increase of the whole"


def test_share_of_window_is_increase_of_part_over_increase_of_whole() -> None:
    track = SeriesAggregator()
    reader = Reader(track, 0.1)
    dice = random.Random(3)
    busy, total = 0.0, 0.0
    marks = [(busy, total)]
    for number in range(400):
        if number:
            total += dice.uniform(0.01, 0.2)
            busy += dice.uniform(0.0, 0.01)
        track.take(number / 10, [BUSY(CounterRatio(busy, total))])
        if number and number % 37 == 0:
            reader.collect()
            (part, whole), mark = marks[-1], (busy, total)
            marks.append(mark)
            assert reader.windows[-1][2][BUSY] == pytest.approx((busy - part) / (total - whole), rel=EXACT)
    assert len(marks) > 10


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        pytest.param([(50, 100), (51, 102), (0, 1), (1, 3)], (1 + 1) / (2 + 2), id="both start anew"),
        pytest.param([(10, 100), (20, 120), (21, 3), (22, 5)], (10 + 1 + 1) / (20 + 2), id="the whole starts anew"),
        pytest.param([(10, 100), (20, 120), (3, 125), (5, 130)], (10 + 2) / (20 + 5 + 5), id="the part starts anew"),
        pytest.param([(10, 100), (20, 120), (19.5, 119), (21, 140)], (21 - 10) / (140 - 100), id="small dip of both"),
    ],
)
def test_share_of_totals_that_fall(totals: list[tuple[float, float]], expected: float) -> None:
    track = SeriesAggregator()
    for at, total in enumerate(totals):
        track.take(float(at), [BUSY(CounterRatio(*map(float, total)))])
    assert value_of(track, Series(BUSY)) == expected


def test_share_with_small_dip_over_interruption_restarts_there() -> None:
    track = SeriesAggregator()
    for at, part, whole in ((0.0, 10.0, 100.0), (1.0, 20.0, 120.0)):
        track.take(at, [BUSY(CounterRatio(part, whole))])
    track.interrupt()
    for at, part, whole in ((2.0, 19.0, 119.0), (3.0, 22.0, 131.0)):
        track.take(at, [BUSY(CounterRatio(part, whole))])
    assert value_of(track, Series(BUSY), since=2.0) == (22 - 19) / (131 - 119)


def test_window_without_new_reading_has_no_share_and_newest_peak() -> None:
    track = SeriesAggregator()
    for at, part in ((0.0, 0.0), (1.0, 1.0)):
        track.take(at, [BUSY(CounterRatio(part, 4 * part)), POWER_PEAK(5.0 - at)])
    assert value_of(track, Series(BUSY), since=0.0) == 0.25
    answer = track.window(1.0, 0.0)
    assert answer is not None
    assert BUSY not in answer[0], "nothing has grown since then"
    assert by_series(answer[0]) == {Series(POWER_PEAK): 4.0}, "a window without a new reading has the newest peak"


def test_reading_without_points_ends_the_interval() -> None:
    track = SeriesAggregator()
    for at, points in enumerate(([POWER(1.0)], [POWER(1.0)], (), [POWER(9.0)])):
        track.take(float(at), points)
    assert value_of(track, Series(POWER), since=0.0) == 1.0, "the time of its absence has no weight"


@pytest.mark.parametrize("metric", [LEVEL, ENERGY])
def test_float_above_int64_is_accepted(metric: Metric) -> None:
    track = SeriesAggregator()
    assert track.take(0.0, [metric(1e19)]) == []
    assert value_of(track, Series(metric)) == 1e19


counts = st.one_of(
    st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=30), st.lists(st.floats(0, 1e18), min_size=1, max_size=30)
)


@PATIENT
@given(counts, st.booleans())
def test_counter_is_monotonic_for_any_readings(readings: Sequence[Number], from_start: bool) -> None:
    track = SeriesAggregator(from_start=from_start)
    series = Series(ENERGY)
    before: Number | None = None
    for at, reading in enumerate(readings):
        track.take(float(at), [series(reading)])
        value = value_of(track, series)
        assert value is not None
        assert value >= 0
        assert before is None or value >= before, f"{readings[: at + 1]} fell from {before} to {value}"
        before = value


@PATIENT
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.integers(0, 10**12))
def test_rising_counter_is_unchanged_or_counts_from_start(rises: list[int], boot: int) -> None:
    totals = list(accumulate(rises, initial=boot))
    as_it_is, from_start = SeriesAggregator(), SeriesAggregator(from_start=True)
    for at, total in enumerate(totals):
        for track, expected in ((as_it_is, total), (from_start, total - boot)):
            track.take(float(at), [ENERGY(total)])
            assert value_of(track, Series(ENERGY)) == expected


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        ([100, 120, 3, 10], [100, 120, 123, 130]),
        ([100, 99, 99, 101], [100, 100, 100, 101]),
        ([100, 50], [100, 150]),
        ([100.0, 0.0, 50.0, 0.0, 1.0], [100.0, 100.0, 150.0, 150.0, 151.0]),
        ([0, 0, 1], [0, 0, 1]),
    ],
    ids=["begins anew", "a small dip is waited out", "half is no dip", "begins anew twice", "zero"],
)
def test_counter_reset_and_small_dip(readings: list[Number], expected: list[Number]) -> None:
    for from_start in (False, True):
        track = SeriesAggregator(from_start=from_start)
        found = []
        for at, reading in enumerate(readings):
            track.take(float(at), [ENERGY(reading)])
            found.append(value_of(track, Series(ENERGY)))
        base = expected[0] if from_start else 0
        assert found == [value - base for value in expected]


def test_late_counter_from_start_begins_at_its_first_reading() -> None:
    track = SeriesAggregator(from_start=True)
    track.take(0.0, [ENERGY(10, {"part": "a"})])
    track.take(1.0, [ENERGY(12, {"part": "a"}), ENERGY(1000, {"part": "b"})])
    track.take(2.0, [ENERGY(12, {"part": "a"}), ENERGY(1001, {"part": "b"})])
    assert value_of(track, Series(ENERGY, {"part": "a"})) == 2
    assert value_of(track, Series(ENERGY, {"part": "b"})) == 1


def test_counter_above_int64_is_left_out() -> None:
    track = SeriesAggregator()
    most = 2**63 - 1
    for at, reading in enumerate((most, 0, 5)):
        track.take(float(at), [ENERGY(reading)])
    answer = track.window(None, 0.0)
    assert answer is not None
    for series, value in by_series(answer[0]).items():
        assert value <= most, f"{series} is exported as {value}"


def test_window_of_series_that_appears_and_disappears() -> None:
    track = SeriesAggregator()
    a, b = Series(POWER, {"part": "a"}), Series(POWER, {"part": "b"})
    peak = Series(POWER_PEAK, {"part": "b"})
    track.take(0.0, [a(10.0)])
    track.take(1.0, [a(10.0), b(50.0), peak(-3.0)])
    assert value_of(track, b, since=0.0) == 50.0, "one reading is not the mean"
    assert value_of(track, peak, since=0.0) == -3.0
    track.take(2.0, [a(10.0), b(70.0), peak(-5.0)])
    assert value_of(track, b, since=0.0) == 70.0, "the first reading has no weight"
    assert value_of(track, peak, since=0.0) == -3.0
    track.take(3.0, [a(20.0)])
    assert value_of(track, b) is None
    assert value_of(track, peak) is None
    assert value_of(track, a, since=0.0) == pytest.approx(40 / 3)
    track.take(10.0, [a(20.0), b(1.0), peak(-9.0)])
    track.take(11.0, [a(20.0), b(1.0), peak(-9.0)])
    assert value_of(track, b, since=2.0) == 1.0, "the time of its absence has no weight"
    assert value_of(track, b, since=0.0) == pytest.approx(71 / 2)
    assert value_of(track, peak, since=3.0) == -9.0


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
    track = SeriesAggregator()
    good = [POWER(1.0), POWER_PEAK(2.0), ENERGY(3), LEVEL(2**63 - 1), LEVEL(-(2**63), {"part": "least"})]
    lie = (Series(metric, {"part": "liar"}), bad)
    for at in (0.0, 1.0, 2.0):
        share = BUSY(CounterRatio(at / 4, at))
        (problem,) = track.take(at, [*good, lie, share])
        assert metric.name in problem
        assert "liar" in problem
        assert repr(bad) in problem
    answer = track.window(None, 0.0)
    assert answer is not None
    assert by_series(answer[0]) == {**dict(good), Series(BUSY): 0.25}


@pytest.mark.parametrize(
    "lie",
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
    ],
    ids=repr,
)
def test_value_of_wrong_type_for_metric_is_refused(lie: Point) -> None:
    track = SeriesAggregator()
    for at in (0.0, 1.0):
        assert len(track.take(at, [lie, ENERGY(5, {"part": "good"})])) == 1
    answer = track.window(None, 0.0)
    assert answer is not None
    assert by_series(answer[0]) == {Series(ENERGY, {"part": "good"}): 5}


def test_refused_value_does_not_affect_peak() -> None:
    track = SeriesAggregator()
    track.take(0.0, [POWER_PEAK(float("nan"))])
    track.take(1.0, [POWER_PEAK(-40.0)])
    assert value_of(track, Series(POWER_PEAK)) == -40.0


def test_duplicate_series_is_refused_and_first_value_is_kept() -> None:
    track = SeriesAggregator()
    wrong = track.take(0.0, [ENERGY(5), ENERGY(6), POWER(1.0), POWER(2.0), LEVEL(1)])
    assert len(wrong) == 2
    assert "test.energy" in wrong[0]
    assert "test.power" in wrong[1]
    assert all("twice" in problem for problem in wrong)
    answer = track.window(None, 0.0)
    assert answer is not None
    assert by_series(answer[0]) == {Series(ENERGY): 5, Series(POWER): 1.0, Series(LEVEL): 1}


def test_interruption_is_excluded_from_mean_share_and_integral() -> None:
    track = SeriesAggregator()
    series = Series(POWER)
    track.take(0.0, [series(10.0), BUSY(CounterRatio(0.0, 0.0)), ENERGY(100)])
    track.take(2.0, [series(10.0), BUSY(CounterRatio(1.0, 2.0)), ENERGY(102)])
    track.interrupt()
    assert track.time is None
    assert track.window(None, 0.0) is None
    track.take(100.0, [series(900.0), BUSY(CounterRatio(90.0, 100.0)), ENERGY(200)])
    track.take(102.0, [series(20.0), BUSY(CounterRatio(92.0, 102.0)), ENERGY(202)])
    assert value_of(track, series, since=0.0) == 15.0
    assert value_of(track, Series(BUSY), since=0.0) == 0.75
    assert value_of(track, Series(ENERGY)) == 202, "the counter does not continue"
    assert track.integral(series) == 60.0


def test_share_that_is_new_after_interruption_starts_there() -> None:
    track = SeriesAggregator()
    for at in (0.0, 1.0):
        track.take(at, [LEVEL(1)])
    track.interrupt()
    track.take(100.0, [BUSY(CounterRatio(90.0, 100.0))])
    assert value_of(track, Series(BUSY), since=0.0) is None, "a share of the time before the first reading"
    track.take(102.0, [BUSY(CounterRatio(91.0, 102.0))])
    assert value_of(track, Series(BUSY), since=0.0) == 0.5


def test_history_is_bounded_in_time_and_rare_reader_gets_its_mean() -> None:
    track = SeriesAggregator()
    for at in range(3600):
        track.take(float(at), [POWER(1000.0), POWER_PEAK(1000.0)])
    for at in range(3600, 3600 + 2 * int(KEPT) + 10):
        track.take(float(at), [POWER(1.0), POWER_PEAK(1.0)])
    assert value_of(track, Series(POWER), since=0.0) == pytest.approx(1.0)
    assert value_of(track, Series(POWER_PEAK), since=0.0) == 1.0
    assert value_of(track, Series(POWER), since=3600 + KEPT + 20) == pytest.approx(1.0)


def test_history_is_bounded_in_frames_for_short_intervals() -> None:
    track = SeriesAggregator()
    for at in range(1 << 15):
        track.take(at * 1e-3, [POWER(1.0)])
    assert len(track._frames) == len(track._times) <= (1 << 14) + 3


def test_window_within_history_is_exact_while_old_frames_are_dropped() -> None:
    track = SeriesAggregator()
    reader = Reader(track, 1.0)
    samples = [(float(at), float(at % 97)) for at in range(5000)]
    for at, level in samples:
        track.take(at, [POWER(level), POWER_PEAK(level)])
        if at % 590 == 0:
            reader.collect()
    assert len(reader.windows) == 9
    for since, end, found in reader.windows[1:]:
        assert since is not None
        assert found[POWER] * (end - since) == pytest.approx(area(samples, since, end), rel=EXACT)
        assert found[POWER_PEAK] == 96.0


def test_rate_is_integrated_to_mean_times_window() -> None:
    track = SeriesAggregator()
    power, energy = Series(POWER), Series(ENERGY)
    samples = trace(7, 40.0, 2.0)
    reader, totals = Reader(track, 0.0), []
    for number, (at, watts) in enumerate(samples):
        assert track.take(at, [power(watts), energy(Rate(watts))]) == []
        if number % 10 == 5:
            reader.collect()
            totals.append((reader.windows[-1][1], reader.windows[-1][2]))
    assert len(totals) == 8
    for (begin, before), (end, after) in pairwise(totals):
        assert after[ENERGY] - before[ENERGY] == pytest.approx(after[POWER] * (end - begin), rel=EXACT)


def test_rate_counts_nothing_for_missing_readings() -> None:
    track = SeriesAggregator(from_start=False)
    energy = Series(ENERGY)
    for at, watts in ((0.0, 5.0), (1.0, 5.0), (2.0, None), (3.0, 7.0), (4.0, 7.0)):
        track.take(at, [] if watts is None else [energy(Rate(watts))])
    assert value_of(track, energy) == 5.0 + 7.0
    track.interrupt()
    track.take(100.0, [energy(Rate(9.0))])
    assert value_of(track, energy) == 12.0


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf"), True])
def test_invalid_rate_is_refused(rate: float) -> None:
    track = SeriesAggregator()
    assert len(track.take(0.0, [(Series(ENERGY), Rate(rate))])) == 1


def test_series_does_not_change_between_counter_and_rate() -> None:
    energy, other = Series(ENERGY, {"part": "counts"}), Series(ENERGY, {"part": "does not"})
    track = SeriesAggregator()
    assert track.take(0.0, [energy(100.0), other(Rate(5.0))]) == []
    assert track.take(1.0, [energy(Rate(5.0)), other(100.0)]) == []
    assert value_of(track, energy) is None
    assert value_of(track, other) is None
    assert track.take(2.0, [energy(110.0), other(Rate(5.0))]) == []
    assert value_of(track, energy) == 110.0
    assert len(track.take(3.0, [energy(-1.0), other(-1.0)])) == 2, "an invalid value is not reported"


def test_peak_survives_missing_and_failed_readings() -> None:
    track = SeriesAggregator()
    series = Series(POWER_PEAK)
    track.take(0.0, [series(5.0)])
    track.take(1.0, [LEVEL(1)])

    def failing() -> Iterator[Point]:
        yield series(9.0)
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        track.take(2.0, failing())
    track.interrupt()
    track.take(3.0, [series(2.0)])
    track.take(4.0, [series(1.0)])
    assert value_of(track, series) == 5.0
    assert value_of(track, series, since=0.0) == 2.0
    assert value_of(track, series, since=3.0) == 1.0
