"""The snapshot of all sources, and the metrics of the package itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from tests.support.interrupted import Interrupted
from tests.support.stage import ENERGY, LEVEL, POWER, Stage, fail, one, values

from opentelemetry.instrumentation.hardware.catalog import (
    OWN_CPU_TIME,
    SOURCE,
    SOURCE_READ_DURATION,
    SOURCE_UP,
    SYSTEM_CPU_LOAD_1M,
    SYSTEM_CPU_LOAD_5M,
)
from opentelemetry.instrumentation.hardware.model import Metric, Series
from opentelemetry.instrumentation.hardware.pipeline.collector import Collector, Readers
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


def test_include_and_exclude_metrics_filter_snapshot() -> None:
    stage = Stage()
    stage.player.read = lambda now: [SYSTEM_CPU_LOAD_1M(1.0), SYSTEM_CPU_LOAD_5M(5.0)]
    stage.run(1.0)

    def rows(config: Config) -> set[Metric]:
        return set(stage.another(config).collect({}).values)

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
    stage.runner.pace.duration = 0.125
    config = Config(include_metrics=["otel_hardware.*"])
    snapshot = stage.another(config).collect({})
    assert one(snapshot, OWN_CPU_TIME) == 0.75
    assert values(snapshot, SOURCE_UP) == {
        Series(SOURCE_UP, {SOURCE: "player"}): 1,
        Series(SOURCE_UP, {SOURCE: "neighbour"}): 1,
    }
    assert values(snapshot, SOURCE_READ_DURATION)[Series(SOURCE_READ_DURATION, {SOURCE: "player"})] == 0.125
    stage.player.read = fail(OSError("no"))
    stage.runner.read(everything=True)
    snapshot = Collector([stage.runner], config, stage.counters, stage.clock).collect({})
    assert set(snapshot.values) == {OWN_CPU_TIME, SOURCE_UP}, "a failed source has a read duration"


def test_own_cpu_time_never_falls_when_sources_end() -> None:
    stage = Stage(names=("player", "neighbour"))
    first, second = stage.runners.values()
    first.cpu_time, second.cpu_time = 0.25, 0.5
    assert one(stage.collector.collect({}), OWN_CPU_TIME) == 0.75
    stage.collector.replace([first])
    assert one(stage.collector.collect({}), OWN_CPU_TIME) == 0.75
    first.cpu_time = 0.5
    assert one(stage.collector.collect({}), OWN_CPU_TIME) == 1.0


def test_unread_source_has_no_up_and_no_read_duration() -> None:
    stage = Stage()
    assert stage.up() == {}
    snapshot = stage.another(Config(include_metrics=["otel_hardware.*"])).collect({})
    assert snapshot.problems == ()
    assert set(snapshot.values) == {OWN_CPU_TIME}


def test_metrics_are_those_that_were_read_and_are_wanted_and_own_metrics() -> None:
    stage = Stage()
    stage.player.read = lambda now: [SYSTEM_CPU_LOAD_1M(1.0), SYSTEM_CPU_LOAD_5M(5.0)]
    own = {OWN_CPU_TIME, SOURCE_UP}
    assert set(stage.collector.metrics()) == own
    stage.run(1.0)
    first = stage.collector.metrics()
    assert set(first) == {SYSTEM_CPU_LOAD_1M} | own
    stage.run(5.0)
    assert stage.collector.metrics() is first, "the same metrics are a new object"
    stage.player.read = lambda now: [SYSTEM_CPU_LOAD_1M(1.0), POWER(1.0)]
    stage.run(10.0)
    assert set(stage.collector.metrics()) == {SYSTEM_CPU_LOAD_1M, POWER} | own
    everything = stage.another(Config(include_metrics=["otel_hardware.*", "system.*"]))
    assert set(everything.metrics()) == {SYSTEM_CPU_LOAD_1M, SYSTEM_CPU_LOAD_5M, POWER, SOURCE_READ_DURATION} | own


def test_metric_is_not_lost_if_another_thread_finds_its_source_closed() -> None:
    for number in range(1, 1000):
        stage = Stage()
        stage.run(1.0)

        def close(stage: Stage = stage) -> None:
            stage.runner.close()
            stage.collector.metrics()

        with Interrupted(Collector, number, close) as interrupted:
            stage.collector.metrics()
        stage.runner.read()
        assert POWER in stage.collector.metrics()
        if interrupted.lines < number:
            break
    assert number > 4


def test_cpu_time_continues_over_sessions() -> None:
    stage = Stage()
    stage.run(1.0)
    stage.runner.cpu_time = 2.5
    assert one(stage.collect(), OWN_CPU_TIME) == 2.5
    later = Collector([], Config(), stage.counters, stage.clock)
    assert one(later.collect({}), OWN_CPU_TIME) == 2.5


def test_collected_value_is_not_changed_by_a_duplicate_in_a_later_collection() -> None:
    stage = Stage(names=("player", "neighbour"))
    stage.player.read = lambda now: [ENERGY(5, {"part": "a"})]
    stage.players["neighbour"].read = lambda now: [ENERGY(7, {"part": "b"})]
    stage.run(1.0)
    first = stage.collect().values[ENERGY]
    assert stage.collect(2).values[ENERGY] == first == [(5, {"part": "a"}), (7, {"part": "b"})]


def in_new_thread(collect: Callable[[], float]) -> float:
    """The result of a function that a new thread calls."""
    results: list[float] = []
    thread = threading.Thread(target=lambda: results.append(collect()))
    thread.start()
    thread.join(20.0)
    (result,) = results
    return result


def test_threads_that_collect_once_share_one_window_beside_a_periodic_reader() -> None:
    stage = Stage(interval=1.0, expected=15.0)
    stage.player.read = lambda now: [POWER(now - stage.start)]
    readers = Readers()

    def collect() -> float:
        reader = readers.current()
        power = one(stage.collect_by(reader), POWER)
        readers.collected(reader)
        return float(power)

    periodic, scraped = [], []
    for number in range(4):
        stage.run(15.0 * number + 14.0)
        periodic.append(collect())
        stage.run(15.0 * number + 15.0)
        scraped.append(in_new_thread(collect))
    assert periodic[1:] == pytest.approx([21.5, 36.5, 51.5], abs=0.6)
    assert scraped[1:] == pytest.approx([22.5, 37.5, 52.5], abs=0.6), "a scrape has a window of less than 15 s"
