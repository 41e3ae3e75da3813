"""Counters over several sessions, and the limit of what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stage import ENERGY, PATIENT

from opentelemetry.instrumentation.hardware.model import Kind, Metric, Number, Series
from opentelemetry.instrumentation.hardware.pipeline import counters
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore

sessions = st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 2**63 - 1), max_size=6)), max_size=6)


@PATIENT
@given(sessions)
def test_counter_is_monotonic_over_sessions_of_any_origin(sessions: Sequence[tuple[bool, list[int]]]) -> None:
    store = CounterStore()
    before: Number = 0
    for from_start, counts in sessions:
        counter = store.resume(Series(ENERGY), from_start)
        for count in counts:
            counter.set(count)
            assert before <= counter.total < 2**63
            before = counter.total


BOOT, START = False, True


@pytest.mark.parametrize(
    ("sessions", "totals"),
    [
        pytest.param([(BOOT, [100]), (BOOT, [130])], [100, 130], id="from boot, with what happened between"),
        pytest.param([(START, [100, 107]), (START, [1000, 1005])], [0, 7, 7, 12], id="from start, without it"),
        pytest.param([(BOOT, [100, 130]), (START, [150, 170])], [100, 130, 130, 150], id="from boot, then from start"),
        pytest.param([(START, [100, 130]), (BOOT, [150, 170])], [0, 30, 150, 170], id="from start, then from boot"),
        pytest.param([(BOOT, [100]), (BOOT, [40])], [100, 140], id="reset between"),
    ],
)
def test_counter_over_sessions(sessions: Sequence[tuple[bool, list[int]]], totals: list[int]) -> None:
    store, found = CounterStore(), list[Number]()
    for from_start, counts in sessions:
        counter = store.resume(Series(ENERGY), from_start)
        for count in counts:
            counter.set(count)
            found.append(counter.total)
    assert found == totals


@pytest.mark.parametrize("counted_before", [False, True])
def test_count_after_an_integral_continues_it_in_later_sessions_too(counted_before: bool) -> None:
    store = CounterStore()
    counter = store.resume(Series(ENERGY))
    counter.add(0.0)
    counter.add(200.0)
    if counted_before:
        counter.set(5_000_000)
        assert counter.total == 200
    later = store.resume(Series(ENERGY))
    later.set(5_000_030)
    later.set(5_000_050)
    assert later.total == (250 if counted_before else 220)


def test_thread_of_an_earlier_session_does_not_change_the_counter() -> None:
    store = CounterStore()
    hanging = store.resume(Series(ENERGY))
    hanging.set(100)
    counter = store.resume(Series(ENERGY))
    counter.set(200)
    hanging.set(110)
    counter.set(210)
    assert counter.total == 210


def test_metric_that_is_made_anew_has_the_same_counter() -> None:
    store = CounterStore()
    metrics = [Metric(Kind.COUNTER, "acme.turns", "{turn}", (), "Turns.", endpoint="page") for _ in range(2)]
    store.resume(Series(metrics[0])).set(100)
    assert store.resume(Series(metrics[1])).total == 100


def test_store_keeps_a_limited_number_of_counters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "_LIMIT", 3)
    store = CounterStore()
    for part in "abcd":
        store.resume(Series(ENERGY, {"part": part})).set(5)
    totals = {part: store.resume(Series(ENERGY, {"part": part})).total for part in "dcb"}
    assert totals == {"d": 5, "c": 5, "b": 5}
    assert store.resume(Series(ENERGY, {"part": "a"})).total == 0
