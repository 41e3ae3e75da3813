"""The snapshot of all sources, and the metrics of the package itself."""

from __future__ import annotations

import pytest
from tests.stage import BUSY, ENERGY, LEVEL, POWER, Stage, fail, one, values

from opentelemetry.instrumentation.hardware.catalog import (
    OWN_CPU_TIME,
    SOURCE,
    SOURCE_READ_DURATION,
    SOURCE_UP,
    SYSTEM_CPU_LOAD_1M,
    SYSTEM_CPU_LOAD_5M,
)
from opentelemetry.instrumentation.hardware.model import CounterRatio, Kind, Metric, Series, Unavailable
from opentelemetry.instrumentation.hardware.pipeline.collector import Collector
from opentelemetry.instrumentation.hardware.settings import Config


def test_snapshot_has_all_sources() -> None:
    stage = Stage(names=("player", "neighbour"))
    stage.player.read = lambda now: [POWER(1.0), ENERGY(5)]
    stage.players["neighbour"].read = lambda now: [POWER(2.0, {"part": "b"})]
    stage.run(1.0)
    snapshot = stage.collect()
    assert values(snapshot, POWER) == {Series(POWER): 1.0, Series(POWER, {"part": "b"}): 2.0}
    assert one(snapshot, ENERGY) == 5
    assert snapshot.problems == ()
    assert snapshot.read == {"player": stage.start, "neighbour": stage.start}


def test_duplicate_series_of_two_sources_is_taken_from_the_first() -> None:
    stage = Stage(names=("player", "neighbour"))
    stage.player.read = lambda now: [ENERGY(5, {"part": "a"})]
    stage.players["neighbour"].read = lambda now: [
        ENERGY(6, {"part": "a"}),
        ENERGY(7, {"part": "b"}),
        LEVEL(8, {"part": "a"}),
    ]
    stage.run(1.0)
    for _ in range(2):
        snapshot = stage.collect()
        assert values(snapshot, ENERGY) == {Series(ENERGY, {"part": "a"}): 5, Series(ENERGY, {"part": "b"}): 7}
        assert values(snapshot, LEVEL) == {Series(LEVEL, {"part": "a"}): 8}
        (problem,) = snapshot.problems
        assert problem.source == "neighbour"
        assert "test.energy" in problem.reason


def test_share_is_collected_as_ratio() -> None:
    stage = Stage(interval=1.0, expected=10.0)
    stage.player.read = lambda now: [BUSY(CounterRatio(now / 4, now))]
    stage.run(0.5)
    assert values(stage.collect(), BUSY) == {}, "a share without an increase"
    stage.run(5.0)
    assert one(stage.collect(), BUSY) == 0.25


def test_include_and_exclude_metrics_filter_snapshot() -> None:
    stage = Stage()
    stage.player.read = lambda now: [SYSTEM_CPU_LOAD_1M(1.0), SYSTEM_CPU_LOAD_5M(5.0)]
    stage.run(1.0)

    def rows(config: Config) -> set[Metric]:
        return set(Collector(list(stage.runners.values()), {}, config, stage.clock).collect({}).values)

    own = {SOURCE_UP, OWN_CPU_TIME}
    assert rows(Config()) == {SYSTEM_CPU_LOAD_1M} | own
    assert (
        rows(Config(include_metrics=["system.cpu.load_average.5m"])) == {SYSTEM_CPU_LOAD_1M, SYSTEM_CPU_LOAD_5M} | own
    )
    assert rows(Config(exclude_metrics=["system.*"])) == own
    assert rows(Config(exclude_metrics=["*"])) == set()


def test_own_metrics_are_reported() -> None:
    stage = Stage(names=("player", "neighbour"))
    stage.run(1.0)
    stage.runner.cpu_time = 0.25
    stage.runners["neighbour"].cpu_time = 0.5
    stage.runner.duration = 0.125
    config = Config(include_metrics=["otel_hardware.*"])
    snapshot = Collector(list(stage.runners.values()), {}, config, stage.clock).collect({})
    assert one(snapshot, OWN_CPU_TIME) == 0.75
    assert values(snapshot, SOURCE_UP) == {
        Series(SOURCE_UP, {SOURCE: "player"}): 1,
        Series(SOURCE_UP, {SOURCE: "neighbour"}): 1,
    }
    assert values(snapshot, SOURCE_READ_DURATION)[Series(SOURCE_READ_DURATION, {SOURCE: "player"})] == 0.125
    stage.player.read = fail(OSError("no"))
    stage.runner.read()
    snapshot = Collector([stage.runner], {}, config, stage.clock).collect({})
    assert set(snapshot.values) == {OWN_CPU_TIME, SOURCE_UP}, "a failed source has a read duration"


def test_unread_source_has_no_up_and_no_read_duration() -> None:
    stage = Stage()
    assert stage.up() == {}
    snapshot = Collector([stage.runner], {}, Config(include_metrics=["otel_hardware.*"]), stage.clock).collect({})
    assert snapshot.problems == ()
    assert set(snapshot.values) == {OWN_CPU_TIME}


def test_rows_are_read_metrics_that_are_wanted_and_own_metrics() -> None:
    read: dict[Metric, None] = {SYSTEM_CPU_LOAD_1M: None}
    board = Collector([], read, Config())
    own = {OWN_CPU_TIME, SOURCE_UP}
    first = board.metrics()
    assert set(first) == {SYSTEM_CPU_LOAD_1M} | own
    assert board.metrics() is first, "the same rows are a new object"
    read |= {SYSTEM_CPU_LOAD_5M: None, POWER: None}
    assert set(board.metrics()) == {SYSTEM_CPU_LOAD_1M, POWER} | own
    assert set(Collector([], {}, Config(include_metrics=["otel_hardware.*"])).metrics()) == own | {SOURCE_READ_DURATION}


def test_absent_source_is_no_problem() -> None:
    stage = Stage(names=("player", "neighbour"))

    def unsupported() -> None:
        raise Unavailable("none here")

    stage.player.open = unsupported
    stage.run(10.0)
    snapshot = stage.collect()
    assert stage.up() == {"neighbour": 1}
    assert snapshot.problems == ()
    assert one(snapshot, POWER) == 1.0


def test_each_reader_mark_has_its_own_windows() -> None:
    stage = Stage(interval=1.0, expected=10.0)
    stage.player.read = lambda now: [POWER(now - stage.start)]
    stage.run(10.5)
    first = stage.collect(1)
    stage.run(20.5)
    assert one(first, POWER) == pytest.approx(5.5, abs=0.5)
    assert one(stage.collect(1), POWER) == pytest.approx(15.5, abs=0.5)
    assert one(stage.collect(2), POWER) == pytest.approx(10.5, abs=0.5), "the other reader has not collected yet"


def test_metric_outside_catalog_is_collected() -> None:
    row = Metric("acme.widgets", Kind.UPDOWN, "{widget}", "Widgets.")
    stage = Stage()
    stage.player.read = lambda now: [row(3)]
    stage.run(1.0)
    assert one(stage.collect(), row) == 3
