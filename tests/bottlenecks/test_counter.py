"""`hw.gpu.bottleneck.time`: the seconds of each verdict, which add up to the time that was observed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.bottlenecks.trial import opened
from tests.support.journal import flatten

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.catalog import (
    BOTTLENECK_EVENT,
    EVENTS,
    GPU_BOTTLENECK,
    HW_GPU_BOTTLENECK_TIME,
    HW_ID,
)
from opentelemetry.instrumentation.hardware.model import Event
from opentelemetry.instrumentation.hardware.pipeline.collector import Reader, may_be_limited
from opentelemetry.instrumentation.hardware.pipeline.runner import State

STEP = 15.0


def totals(text: str, seconds: float) -> Iterator[dict[tuple[str, str], float]]:
    """The seconds by device and verdict, after each collection."""
    with opened(text) as (clock, session):
        reader = Reader()
        session.read_now(0.0)
        session.collect(reader)
        for _ in range(int(seconds / STEP)):
            clock.now += STEP
            session.read_now(0.0)
            points = session.collect(reader).values[HW_GPU_BOTTLENECK_TIME]
            yield {(str(each[HW_ID])[-1], str(each[GPU_BOTTLENECK])): value for value, each in points}


@pytest.mark.parametrize("scenario", ["storage", "training", "stuck"])
def test_states_never_fall_and_add_up_to_the_observed_time(scenario: str) -> None:
    before: dict[tuple[str, str], float] = {}
    for number, found in enumerate(totals(f"2xH100:{scenario}", 300.0), 1):
        assert all(found[key] >= value for key, value in before.items())
        for device in ("0", "1"):
            assert sum(value for key, value in found.items() if key[0] == device) == pytest.approx(number * STEP)
        before = found
    assert len(before) <= 6, "only states that occurred have a series"


def test_bottleneck_has_its_time() -> None:
    *_, last = totals("1xH100:storage", 300.0)
    assert last["0", "storage"] >= 240.0
    assert set(last) == {("0", "storage"), ("0", "unknown")}, "unknown in the first 40 s"


def test_beginning_and_end_of_a_bottleneck_are_events() -> None:
    found: list[Event] = []
    with opened("1xH100:storage") as (clock, session):
        session.on_event = found.append
        reader = Reader()
        for _ in range(20):
            clock.now += STEP
            session.read_now(0.0)
            session.collect(reader)
        (event,) = found
    assert (event.name, event.is_error) == (BOTTLENECK_EVENT, False)
    assert event.body == "GPU 0 simulated: storage: the host waits for disks"
    assert event.attributes[GPU_BOTTLENECK] == "storage"
    assert event.attributes.keys() <= {*EVENTS[BOTTLENECK_EVENT][1]}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ({"container": State.ABSENT}, False),
        ({"container": State.UP}, True),
        ({"process": State.UP}, True),  # nobody has looked
    ],
)
def test_program_may_be_limited_unless_its_control_group_has_no_limit(
    sources: dict[str, State], expected: bool
) -> None:
    runners: Any = [SimpleNamespace(name=name, state=state) for name, state in sources.items()]
    assert may_be_limited(runners) is expected


@pytest.mark.parametrize("detail", [[], ["bottlenecks"]])
def test_metric_is_exported_on_request(detail: list[str]) -> None:
    reader = InMemoryMetricReader()
    instrumentor = HardwareInstrumentor()
    options = {"simulate": "1xT4", "sources": ["nvidia"], "detail": detail, "reporter": "always"}
    instrumentor.instrument(meter_provider=MeterProvider([reader]), **options)
    try:
        names: set[str] = set()
        for _ in range(3):
            session = instrumentor._telemetry.session
            assert session is not None
            session.read_now(10.0)
            names |= {point.name for point in flatten(reader.get_metrics_data())}
    finally:
        instrumentor.uninstrument()
    assert "hw.gpu.utilization" in names
    assert (HW_GPU_BOTTLENECK_TIME.name in names) is bool(detail)
