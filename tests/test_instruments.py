"""Callbacks of one MeterProvider: one collection of all sources for all of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.journal import flatten
from tests.support.stage import ENERGY, LEVEL, POWER, Stage

from opentelemetry.instrumentation.hardware.instruments import Instruments
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Snapshot
from opentelemetry.instrumentation.hardware.pipeline.collector import Reader
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config


class Program:
    """A program with a provider, with a stage as its session.

    Attributes:
        collections: The snapshots that the callbacks have taken.
        fail: Makes the next collections fail.
    """

    def __init__(self) -> None:
        self.stage = Stage(interval=1.0, expected=10.0)
        self.stage.player.read = lambda now: [POWER(now - self.stage.start), LEVEL(1), ENERGY(2)]
        self.stage.run(0.5)
        self.collections: list[Snapshot] = []
        self.fail = False
        self.readers = [InMemoryMetricReader(), InMemoryMetricReader()]
        self.provider = MeterProvider(self.readers, shutdown_on_exit=False)
        self.instruments = Instruments(self.provider)

    def session(self) -> Session:
        """Another session of the same sources."""
        stage = self.stage
        made = SimpleNamespace(
            labels={}, collector=stage.collector, counters=stage.counters, collect=self._collect, config=Config()
        )
        made.pid = os.getpid()
        return cast(Session, made)

    def _collect(self, reader: Reader) -> Snapshot:
        if self.fail:
            raise RuntimeError("no memory")
        self.collections.append(self.stage.collect_by(reader))
        return self.collections[-1]

    def exported(self, reader: int = 0) -> dict[str, Any]:
        return {point.name: point.value for point in flatten(self.readers[reader].get_metrics_data())}


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program()
    yield made
    made.provider.shutdown()


def in_new_thread(call: Callable[[], object]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(20.0)
    assert not thread.is_alive()


def test_all_callbacks_of_a_collection_share_one_snapshot(program: Program) -> None:
    program.instruments.open(program.session())
    for number in range(1, 4):
        exported = program.exported()
        assert {"test.power", "test.level", "test.energy", "otel_hardware.cpu.time"} <= set(exported)
        assert len(program.collections) == number


def test_callback_that_is_called_again_begins_a_collection(program: Program) -> None:
    program.instruments.open(program.session())
    observe = program.instruments._observe
    for number in range(1, 4):
        assert [each.value for each in observe(POWER.key, None)] == [0.0]
        assert [each.value for each in observe(LEVEL.key, None)] == [1]
        assert len(program.collections) == number
    # The second callback is the first of a collection that skips the others.
    observe(LEVEL.key, None)
    observe(POWER.key, None)
    assert len(program.collections) == 4


def test_metric_without_points_returns_nothing_and_begins_no_collection(program: Program) -> None:
    program.instruments.open(program.session())
    program.exported()
    program.stage.player.read = lambda now: [LEVEL(1)]
    program.stage.run(5.0)
    exported = program.exported()
    assert "test.power" not in exported
    assert exported["test.level"] == 1
    assert len(program.collections) == 2


def test_session_that_is_opened_during_a_collection_is_exported_from_the_next(program: Program) -> None:
    program.instruments.open(program.session())
    observe = program.instruments._observe
    observe(POWER.key, None)
    program.instruments.close()
    program.instruments.open(program.session())
    assert list(observe(LEVEL.key, None)) == list(observe(ENERGY.key, None)) == []
    for _ in range(2):
        assert [each.value for each in observe(POWER.key, None)] == [0.0]
        assert [each.value for each in observe(LEVEL.key, None)] == [1]
    assert len(program.collections) == 3


def test_failed_collection_is_empty_and_logged_once(program: Program, caplog: pytest.LogCaptureFixture) -> None:
    program.instruments.open(program.session())
    program.fail = True
    for _ in range(3):
        assert program.exported() == {}
    (record,) = caplog.records
    assert "could not collect" in record.getMessage()


def test_recreated_scraped_metric_has_the_same_instrument(program: Program) -> None:
    for value in (1, 2):
        metric = Metric(Kind.GAUGE, "job:Rate", "1", (), "Scraped.", endpoint="page")
        program.stage.player.read = lambda now, metric=metric, value=value: [metric(value)]  # type: ignore[misc]
        program.stage.runner.close()
        program.stage.run(5.0 * value)
        program.instruments.open(program.session())
        assert program.exported()["job:Rate"] == value
    assert sum(key[1] == "job:Rate" for key in program.instruments._made) == 1


def test_long_names_that_begin_alike_are_distinct_and_accepted() -> None:
    provider = MeterProvider(shutdown_on_exit=False)
    instruments = Instruments(provider)
    rows = [replace(POWER, name=f"{'m' * 240}{number}", endpoint="page") for number in range(1000)]
    names = {instruments._accepted_name(row) for row in rows}
    assert len(names) == len(rows)
    assert max(map(len, names)) <= 255
