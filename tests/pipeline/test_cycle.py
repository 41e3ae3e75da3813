"""One snapshot for all callbacks of a collection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from opentelemetry.metrics import CallbackOptions
from tests.stage import ENERGY, LEVEL, POWER, POWER_PEAK, USERS, Stage, one

from opentelemetry.instrumentation.hardware.model import Metric, Snapshot
from opentelemetry.instrumentation.hardware.pipeline.cycle import Cycle


def whole(snapshot: Snapshot) -> dict[Metric, list[Snapshot]]:
    """Every metric returns the whole Snapshot."""
    return {metric: [snapshot] for metric in (POWER, LEVEL, ENERGY, USERS)}


def asks(cycle: Cycle[Snapshot]) -> dict[Metric, Callable[[], Sequence[Snapshot]]]:
    """The callbacks of some instruments, as the SDK calls them."""
    return {
        metric: partial(cycle.callback(metric), CallbackOptions())
        for metric in (POWER, LEVEL, ENERGY, USERS, POWER_PEAK)
    }


class Collector:
    """Asks a cycle for metrics as the SDK does, and counts the readings of the board."""

    def __init__(self) -> None:
        self.stage = Stage(interval=1.0, expected=10.0)
        self.stage.player.read = lambda now: [POWER(now - self.stage.start), LEVEL(1), ENERGY(2)]
        self.cycle = self.another()
        self.asks = asks(self.cycle)

    def another(self) -> Cycle[Snapshot]:
        """The cycle of another provider."""
        cycle = Cycle(whole, self.stage.clock)
        cycle.open(self.stage.collector, self.stage.schedule)
        return cycle

    def ask(self, metric: Metric) -> Snapshot:
        (snapshot,) = self.asks[metric]()
        return snapshot

    def elsewhere(self, *metrics: Metric) -> list[Snapshot]:
        """Ask in another thread."""
        found: list[Snapshot] = []
        thread = threading.Thread(target=lambda: found.extend(self.ask(metric) for metric in metrics))
        thread.start()
        thread.join(20.0)
        assert len(found) == len(metrics)
        return found


def test_callbacks_of_one_collection_share_a_snapshot() -> None:
    at = Collector()
    first = at.ask(POWER)
    assert at.ask(LEVEL) is first
    assert at.ask(ENERGY) is first
    second = at.ask(POWER)
    assert second is not first
    assert at.ask(LEVEL) is second


def test_second_call_of_a_callback_starts_new_collection() -> None:
    at = Collector()
    first = at.ask(POWER)
    assert at.ask(LEVEL) is first
    second = at.ask(LEVEL)
    assert second is not first
    assert at.ask(POWER) is second
    assert at.ask(USERS) is second


def test_incomplete_collection_is_followed_by_new_snapshot() -> None:
    at = Collector()
    first = at.ask(POWER)
    other = at.elsewhere(POWER, LEVEL)
    assert other[0] is other[1]
    assert other[0] is not first
    third = at.ask(POWER)
    assert third is not other[0]
    assert at.ask(LEVEL) is third


def test_new_instrument_is_observed_from_next_collection_on() -> None:
    at = Collector()
    cycle = at.another()
    power = partial(cycle.callback(POWER), CallbackOptions())
    (first,) = power()
    level = partial(cycle.callback(LEVEL), CallbackOptions())
    assert LEVEL in cycle
    assert ENERGY not in cycle
    (second,) = power()
    assert second is not first
    assert level() == [second]


def test_each_reader_thread_has_its_own_windows() -> None:
    at = Collector()
    at.stage.run(10.5)
    assert one(at.ask(POWER), POWER) == pytest.approx(5.5, abs=0.5)
    at.stage.run(20.5)
    (snapshot,) = at.elsewhere(POWER)
    assert one(snapshot, POWER) == pytest.approx(15.5, abs=0.5), "a new reader goes on where the newest one ended"
    assert one(at.ask(POWER), POWER) == pytest.approx(15.5, abs=0.5)


def test_collections_of_two_providers_are_independent() -> None:
    at = Collector()
    other = asks(at.another())
    at.stage.run(10.5)
    first = at.ask(POWER)
    (theirs,) = other[POWER]()
    assert at.ask(LEVEL) is first
    assert other[LEVEL]() == [theirs]
    assert one(theirs, POWER) == one(first, POWER)


def test_collection_is_noted_once_in_rhythm() -> None:
    at = Collector()
    for now in (1000.0, 1007.0):
        at.stage.clock.now = now
        for metric in (POWER, LEVEL, ENERGY):
            at.ask(metric)
    assert at.stage.schedule.due(1007.0) == 1014.0
    assert at.stage.schedule.shortest(1007.0) == 7.0


def test_at_most_64_readers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Collector()
    current = [0]
    monkeypatch.setattr(threading, "get_ident", lambda: current[0])
    at.stage.run(10.5)
    at.ask(POWER)
    at.stage.run(20.5)
    for current[0] in range(1, 64):
        at.ask(POWER)
    current[0] = 0
    assert one(at.ask(POWER), POWER) == pytest.approx(15.5, abs=0.5), "64 readers are remembered"
    at.stage.run(30.5)
    for current[0] in range(100, 164):
        at.ask(POWER)
    current[0] = 0
    assert one(at.ask(POWER), POWER) == pytest.approx(30.0, abs=0.5), (
        "the 65th is not: it goes on where the newest ended"
    )


def test_metric_without_values_returns_nothing_and_starts_no_collection() -> None:
    at = Collector()
    first = at.ask(POWER)
    assert at.asks[POWER_PEAK]() == ()
    assert at.ask(LEVEL) is first
    assert at.asks[POWER_PEAK]() == ()
    assert at.ask(LEVEL) is not first


def test_closed_cycle_returns_nothing() -> None:
    at = Collector()
    assert asks(Cycle(whole))[POWER]() == ()
    at.stage.run(1.0)
    at.ask(POWER)
    at.cycle.close()
    assert at.asks[LEVEL]() == at.asks[POWER]() == at.asks[POWER]() == ()
    at.cycle.open(at.stage.collector, at.stage.schedule)
    assert one(at.ask(POWER), ENERGY) == 2


def test_cycle_reopened_during_a_collection_returns_values_from_the_next() -> None:
    at = Collector()
    at.ask(POWER)
    at.cycle.close()
    at.cycle.open(at.stage.collector, at.stage.schedule)
    assert at.asks[LEVEL]() == at.asks[ENERGY]() == at.asks[USERS]() == at.asks[POWER_PEAK]() == ()
    for _ in range(2):
        first = at.ask(POWER)
        assert at.ask(LEVEL) is at.ask(ENERGY) is at.ask(USERS) is first, "one collection, one Snapshot"


def test_failed_collection_is_empty_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    at = Collector()

    def fail(snapshot: Snapshot) -> dict[Metric, list[Snapshot]]:
        raise RuntimeError("no memory")

    broken = Cycle(fail, at.stage.clock)
    broken.open(at.stage.collector, at.stage.schedule)
    each = asks(broken)
    for _ in range(3):
        assert each[POWER]() == each[LEVEL]() == ()
    (record,) = caplog.records
    assert "failed to collect" in record.getMessage()
