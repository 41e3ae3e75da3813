"""When the next collection is due, learned from the collections before."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stage import PATIENT

from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule


class Collections:
    """A schedule, and when each reader collected last."""

    def __init__(self, start: float, interval: float) -> None:
        self.schedule = CollectionSchedule(start, interval)
        self.last: dict[int, float] = {}

    def note(self, reader: int, now: float) -> None:
        self.schedule.note(reader, self.last.get(reader), now)
        self.last[reader] = now


def test_due_before_first_collection_uses_expected_interval() -> None:
    collections = Collections(100.0, 60.0)
    assert collections.schedule.due(100.0) == 160.0
    assert collections.schedule.due(159.9) == 160.0
    assert collections.schedule.due(160.0) == 220.0
    assert collections.schedule.shortest(100.0) == 60.0


def test_interval_is_learned_from_collections() -> None:
    collections = Collections(0.0, 60.0)
    collections.note(1, 5.0)
    assert collections.schedule.due(5.0) == 65.0
    collections.note(1, 15.0)
    assert collections.schedule.due(15.0) == 25.0
    assert collections.schedule.due(25.5) == 35.0, "it waits for a late collection"
    assert collections.schedule.due(0.0) == 25.0, "due before the newest collection"
    collections.note(1, 25.2)
    assert collections.schedule.due(25.2) == pytest.approx(35.4)


def test_next_collection_is_earliest_of_all_readers() -> None:
    collections = Collections(0.0, 60.0)
    for at in (10.0, 15.0):
        collections.note(1, at)
    for at in (11.0, 18.0):
        collections.note(2, at)
    assert collections.schedule.shortest(18.0) == 5.0
    assert collections.schedule.due(18.0) == 20.0
    assert collections.schedule.due(20.0) == 25.0
    assert collections.schedule.due(23.9) == 25.0
    collections.note(1, 20.0)
    collections.note(1, 25.0)
    assert collections.schedule.due(25.0) == 30.0
    assert collections.schedule.due(31.0) == 32.0


def test_reader_is_forgotten_after_three_missed_intervals() -> None:
    collections = Collections(0.0, 60.0)
    for at in (0.0, 10.0):
        collections.note(1, at)
    for at in (10.5, 11.0):
        collections.note(2, at)
    assert collections.schedule.due(11.0) == 11.5
    assert collections.schedule.due(12.4) == 12.5
    assert collections.schedule.due(12.6) == 20.0, "the second reader has missed three of its intervals"
    assert collections.schedule.shortest(12.6) == 10.0
    assert collections.schedule.due(40.0) == 50.0
    assert collections.schedule.due(41.0) == inf, "so has the first"


def test_forgotten_reader_that_returns_is_learned_anew() -> None:
    collections = Collections(0.0, 60.0)
    for at in (90.0, 100.0):
        collections.note(1, at)
    collections.note(2, 130.0)
    assert collections.schedule.shortest(130.0) == 10.0, "it has not missed more than three of its intervals"
    collections.note(2, 160.0)
    assert collections.schedule.shortest(160.0) == 30.0
    collections.note(1, 165.0)
    assert collections.schedule.shortest(251.0) == 65.0, "its interval is not the time since its last collection"


def test_two_flushes_in_a_row_do_not_set_interval() -> None:
    collections = Collections(0.0, 60.0)
    for at in (10.0, 10.0, 10.0001):
        collections.note(1, at)
    assert collections.schedule.due(10.001) == pytest.approx(10.0501)
    assert collections.schedule.due(10.5) == inf
    assert not collections.schedule.quiet(20.0)
    assert not collections.schedule.quiet(190.0)
    assert collections.schedule.quiet(190.1)


@pytest.mark.parametrize("expected", [1.0, 60.0])
def test_sampling_slows_down_after_three_intervals_without_collection(expected: float) -> None:
    collections = Collections(0.0, expected)
    for at in (expected, 2 * expected):
        collections.note(1, at)
    assert not collections.schedule.quiet(5 * expected)
    assert collections.schedule.quiet(5 * expected + 0.1)
    collections.note(1, 5 * expected + 0.1)
    assert not collections.schedule.quiet(5 * expected + 0.1)


def test_sampling_does_not_slow_down_for_an_hour_before_an_interval_is_known() -> None:
    collections = Collections(0.0, 60.0)
    assert not collections.schedule.quiet(3600.0)
    assert collections.schedule.quiet(3600.1)
    collections.note(1, 4000.0)
    assert not collections.schedule.quiet(7600.0), "one collection does not make an interval"
    assert collections.schedule.quiet(7600.1)


def test_one_active_reader_prevents_slow_sampling() -> None:
    collections = Collections(0.0, 60.0)
    for at in (0.0, 100.0):
        collections.note(1, at)
    for at in (100.5, 101.0):
        collections.note(2, at)
    assert not collections.schedule.quiet(199.0)
    collections.note(1, 200.0)
    assert not collections.schedule.quiet(500.0)
    assert collections.schedule.quiet(500.1)


@PATIENT
@given(
    st.lists(st.tuples(st.integers(1, 3), st.floats(0.0, 100.0)), max_size=20),
    st.floats(0.05, 100.0),
    st.floats(0.0, 1000.0),
)
def test_due_is_after_now_for_any_collections(notes: list[tuple[int, float]], interval: float, ahead: float) -> None:
    collections = Collections(0.0, interval)
    now = 0.0
    for reader, step in notes:
        now += step
        collections.note(reader, now)
        assert collections.schedule.shortest(now) >= 0.05
    due = collections.schedule.due(now + ahead)
    assert due > now + ahead - 1e-9
    assert due == inf or due <= now + ahead + max(interval, collections.schedule.shortest(now + ahead)) + 1e-9
