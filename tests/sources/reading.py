"""Sources without the SDK: open one, read it, and compare with another reader of the same machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from opentelemetry.sdk.metrics.export import Gauge, NumberDataPoint, Sum
from opentelemetry.sdk.metrics.export import Metric as SdkMetric

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Point, Series, Unavailable, Value
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext, discover


class Portable(Drivers):
    """This machine without the kernel's files: only psutil."""

    def files(self) -> None:  # type: ignore[override]
        raise Unavailable("this system is not Linux")


@cache
def class_of(name: str) -> type[Source]:
    """The class of a source; finding entry points takes longer than a reading."""
    return discover()[name]()


@contextmanager
def opened(
    name: str,
    drivers: Drivers | None = None,
    pid: int | None = None,
    settings: Mapping[str, object] | None = None,
    **more: object,
) -> Iterator[Source]:
    """A source that is open, and is closed afterwards."""
    site = SourceContext(Config.read({**(settings or {}), **more}, {}), drivers or Drivers(), pid or os.getpid())
    source = class_of(name)(site)
    source.open()
    try:
        yield source
    finally:
        source.close()


def known(instrumentor: HardwareInstrumentor) -> bool:
    """Whether every row that was learned from a scraped page has its instrument."""
    session = instrumentor._telemetry.session
    rows = [] if session is None else [row for row in session.collector.metrics() if row.endpoint]
    return all(each._made.get(row.key) for row in rows for each in instrumentor._telemetry.attached)


def all_of(source: Source) -> dict[Series, Value]:
    """One complete reading; a series that is read twice fails the test."""
    return _once([*source.read_all()])


def often(source: Source) -> dict[Series, Value]:
    """One reading without the slow part: the first one, and what is read before each collection."""
    first, *others = source.readings()
    return _once(
        [point for each in (first, *others) if each is first or each.before_collection for point in each.read()]
    )


def _once(points: list[Point]) -> dict[Series, Value]:
    found: dict[Series, Value] = {}
    for series, value in points:
        assert series not in found, f"{series!r} was read twice"
        found[series] = value
    return found


def numbers(metric: SdkMetric) -> list[NumberDataPoint]:
    """The points of a sum or gauge that the SDK collected."""
    assert isinstance(metric.data, (Gauge, Sum)), metric.name
    return [*metric.data.data_points]


def series_of(found: dict[Series, Value], metric: Metric) -> dict[Series, Value]:
    """The series of one metric."""
    return {series: value for series, value in found.items() if series.metric is metric}


def by_id(found: dict[Series, Value], metric: Metric, attributes: Attributes | None = None) -> dict[str, Any]:
    """The values of a metric by hw.id, of the series that have these attributes."""
    wanted = (attributes or {}).items()
    return {
        str(series.attributes[c.HW_ID]): value
        for series, value in series_of(found, metric).items()
        if wanted <= series.attributes.items()
    }


def value(found: dict[Series, Value], metric: Metric, attributes: Attributes | None = None) -> float:
    """The value of one series, which has to be there."""
    series = Series(metric, attributes or {})
    assert series in found, f"{series!r} was not read"
    number = found[series]
    assert isinstance(number, (int, float))
    return number


def rises_between(before: float, ours: float, after: float, what: str, slack: float = 0.0) -> None:
    """Check that a counter lies between the values of another reader before and after it."""
    assert before - slack <= ours <= after + slack, f"{what}: {before} then, {ours} by us, {after} later"


def agrees(theirs: Callable[[], float], ours: Callable[[], float], allowed: float, what: str) -> None:
    """Check that a gauge lies between another reader's values before and after it, with a tolerance.

    Values change meanwhile, so one bracket may miss; a number with another meaning misses all of them.
    """
    told = []
    for _ in range(50):
        before, mine, after = theirs(), ours(), theirs()
        if min(before, after) - allowed <= mine <= max(before, after) + allowed:
            return
        told.append((before, mine, after))
    raise AssertionError(f"{what}: never once between theirs before and after; the last three: {told[-3:]}")
