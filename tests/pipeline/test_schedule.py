"""When the next collection is due, learned from the collections before."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stage import PATIENT

from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule


def test_due_before_first_collection_uses_expected_interval() -> None:
    rhythm = CollectionSchedule(100.0, 60.0)
    assert rhythm.due(100.0) == 160.0
    assert rhythm.due(159.9) == 160.0
    assert rhythm.due(160.0) == 220.0
    assert rhythm.shortest(100.0) == rhythm.longest(100.0) == 60.0


def test_interval_is_learned_from_collections() -> None:
    rhythm = CollectionSchedule(0.0, 60.0)
    rhythm.note(1, 5.0)
    assert rhythm.due(5.0) == 65.0
    rhythm.note(1, 15.0)
    assert rhythm.due(15.0) == 25.0
    assert rhythm.due(25.5) == 35.0, "it waits for a late collection"
    assert rhythm.due(0.0) == 25.0, "due before the newest collection"
    rhythm.note(1, 25.2)
    assert rhythm.due(25.2) == pytest.approx(35.4)


def test_next_collection_is_earliest_of_all_readers() -> None:
    rhythm = CollectionSchedule(0.0, 60.0)
    for at in (10.0, 15.0):
        rhythm.note(1, at)
    for at in (11.0, 18.0):
        rhythm.note(2, at)
    assert (rhythm.shortest(18.0), rhythm.longest(18.0)) == (5.0, 7.0)
    assert rhythm.due(18.0) == 20.0
    assert rhythm.due(20.0) == 25.0
    assert rhythm.due(23.9) == 25.0
    rhythm.note(1, 20.0)
    rhythm.note(1, 25.0)
    assert rhythm.due(25.0) == 30.0
    assert rhythm.due(31.0) == 32.0


def test_reader_is_forgotten_after_three_missed_intervals() -> None:
    rhythm = CollectionSchedule(0.0, 60.0)
    for at in (0.0, 10.0):
        rhythm.note(1, at)
    for at in (10.5, 11.0):
        rhythm.note(2, at)
    assert rhythm.due(11.0) == 11.5
    assert rhythm.due(12.4) == 12.5
    assert rhythm.due(12.6) == 20.0, "the second reader has missed three of its intervals"
    assert rhythm.shortest(12.6) == 10.0
    assert rhythm.due(40.0) == 50.0
    assert rhythm.due(41.0) == inf, "so has the first"


def test_forgotten_reader_that_returns_is_learned_anew() -> None:
    rhythm = CollectionSchedule(0.0, 60.0)
    for at in (90.0, 100.0):
        rhythm.note(1, at)
    rhythm.note(2, 130.0)
    assert rhythm.shortest(130.0) == 10.0, "it has missed three of its intervals, and is given up with the next"
    rhythm.note(2, 160.0)
    rhythm.note(1, 161.0)
    assert (rhythm.shortest(161.0), rhythm.longest(161.0)) == (30.0, 60.0)


def test_two_flushes_in_a_row_do_not_set_interval() -> None:
    rhythm = CollectionSchedule(0.0, 60.0)
    for at in (10.0, 10.0, 10.0001):
        rhythm.note(1, at)
    assert rhythm.due(10.001) == pytest.approx(10.0501)
    assert rhythm.due(10.5) == inf
    assert not rhythm.paused(20.0)
    assert not rhythm.paused(190.0)
    assert rhythm.paused(190.1)


@pytest.mark.parametrize("expected", [1.0, 60.0])
def test_sampling_pauses_after_three_intervals_without_collection(expected: float) -> None:
    rhythm = CollectionSchedule(0.0, expected)
    assert not rhythm.paused(3 * expected)
    assert rhythm.paused(3 * expected + 0.1)
    rhythm.note(1, 3 * expected + 0.1)
    assert not rhythm.paused(3 * expected + 0.1)


def test_one_active_reader_prevents_pause() -> None:
    rhythm = CollectionSchedule(0.0, 60.0)
    for at in (0.0, 100.0):
        rhythm.note(1, at)
    for at in (100.5, 101.0):
        rhythm.note(2, at)
    assert not rhythm.paused(199.0)
    rhythm.note(1, 200.0)
    assert not rhythm.paused(500.0)
    assert rhythm.paused(500.1)


@PATIENT
@given(
    st.lists(st.tuples(st.integers(1, 3), st.floats(0.0, 100.0)), max_size=20),
    st.floats(0.05, 100.0),
    st.floats(0.0, 1000.0),
)
def test_due_is_after_now_for_any_collections(notes: list[tuple[int, float]], interval: float, ahead: float) -> None:
    rhythm = CollectionSchedule(0.0, interval)
    now = 0.0
    for reader, step in notes:
        now += step
        rhythm.note(reader, now)
        assert 0.05 <= rhythm.shortest(now) <= rhythm.longest(now)
    due = rhythm.due(now + ahead)
    assert due > now + ahead - 1e-9
    assert due == inf or due <= now + ahead + max(interval, rhythm.longest(now + ahead)) + 1e-9
