"""Rates in the tables of the commands."""

from __future__ import annotations

from typing import cast

import pytest
from tests.support.stage import ENERGY, POWER, Stage

from opentelemetry.instrumentation.hardware.catalog import (
    OWN_CPU_TIME,
    PRESSURE_KIND,
    PRESSURE_RESOURCE,
    SYSTEM_PRESSURE_TIME,
)
from opentelemetry.instrumentation.hardware.model import Point, Series
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.view import Viewer
from opentelemetry.instrumentation.hardware.settings import Config


class Staged:
    """What a Viewer knows of a session: sources that are read when they are due, by a clock that is turned."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.collector, self.schedule, self.clock = stage.collector, stage.schedule, stage.clock
        self.runners = [*stage.runners.values()]
        self.collect = stage.collect_by
        self.config = Config()

    def read_now(self, seconds: float) -> None:
        self._stage.run(self._stage.clock.now - self._stage.start)

    read_first = read_due = read_now


def test_rate_is_per_second_between_readings_of_its_own_source() -> None:
    stage = Stage(names=("player", "slow"))
    stage.players["slow"].min_interval = 10.0

    def joules(now: float) -> list[Point]:
        return [ENERGY(100.0 * now, {"part": "slow"})]

    stage.player.read = lambda now: [ENERGY(30.0 * now, {"part": "quick"}), POWER(1.0)]
    stage.players["slow"].read = joules
    viewer = Viewer(cast(Session, Staged(stage)), 1)
    for _ in range(20):
        stage.run(stage.clock.now - stage.start + 2.0)
        stage.runner.cpu_time += 0.5
        rates = viewer.collect().rates
        assert rates[Series(OWN_CPU_TIME)] == pytest.approx(0.25), "CPU seconds per second of our threads"
        assert rates[Series(ENERGY, {"part": "quick"})] == pytest.approx(30.0)
        assert rates.get(Series(ENERGY, {"part": "slow"}), 100.0) == pytest.approx(100.0)
        assert Series(POWER) not in rates
    stage.run(stage.clock.now - stage.start + 12.0)
    assert viewer.collect().rates[Series(ENERGY, {"part": "slow"})] == pytest.approx(100.0)


def test_expected_collection_has_the_reading_that_was_made_just_before_it() -> None:
    stage = Stage(interval=60.0, expected=2.0)
    stage.player.read = lambda now: [ENERGY(30.0 * now)]
    viewer = Viewer(cast(Session, Staged(stage)), 1)
    for _ in range(10):
        stage.run(stage.clock.now - stage.start + 2.0)
        readings = [*stage.player.readings]
        assert viewer.collect(is_expected=True).rates[Series(ENERGY)] == pytest.approx(30.0)
        assert stage.player.readings == readings, "it was read twice"
        assert stage.clock.now - readings[-1] < 0.2


def test_pressure_is_at_most_100_percent_where_the_kernel_adds_two_seconds_at_once() -> None:
    stage = Stage()
    some = {PRESSURE_RESOURCE: "cpu", PRESSURE_KIND: "some"}
    stage.player.read = lambda now: [SYSTEM_PRESSURE_TIME(now // 2.0 * 2.0, some)]
    viewer = Viewer(cast(Session, Staged(stage)), 1)
    shares = []
    for _ in range(6):
        stage.run(stage.clock.now - stage.start + 1.0)
        shares.append(viewer.collect().rates.get(Series(SYSTEM_PRESSURE_TIME, some), 0.0))
    assert max(shares) == 1.0
