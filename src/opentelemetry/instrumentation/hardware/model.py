"""Metric, Series, Point, Snapshot, and the exception for a source that is not available on this machine.

A :class:`Metric` is a frozen row of the catalog. Calling it makes a :class:`Point`; it raises for an attribute that the
metric does not have. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

Attributes: TypeAlias = "Mapping[str, str | int]"

NONE: Attributes = MappingProxyType({})

# Characters of an attribute. A tool, a file or an endpoint can write a text of any length.
_LONGEST = 4096


class Kind(Enum):
    """The instrument of a metric."""

    COUNTER = "counter"
    UPDOWN = "updowncounter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Scope(Enum):
    """The process that reports a metric: one process per job reports the host, every process reports itself."""

    HOST = "host"
    PROCESS = "process"


class Window(Enum):
    """How the readings between two collections are combined into one value."""

    LAST = "last"  # the newest reading: counters, up-down counters and facts

    MEAN = "mean"  # the mean over time; each reading stands for the interval that it ends

    PEAK = "peak"  # the highest reading

    # The increase of one running total over the increase of another; the value is a :class:`CounterRatio`.
    RATIO = "ratio"


class CounterRatio(NamedTuple):
    """Two running totals; the value of a window is the increase of one divided by the increase of the other."""

    part: float
    whole: float


class Rate(NamedTuple):
    """Growth per second of a quantity without a counter of its own; its time integral is exported."""

    per_second: float


Number: TypeAlias = "int | float"
Value: TypeAlias = "int | float | CounterRatio | Rate"

Point: TypeAlias = "tuple[Series, Value]"  # one value that a source has read


@dataclass(frozen=True, eq=False, slots=True)
class Metric:
    """One row of the catalog.

    Attributes:
        kind: The instrument.
        name: Its name, spelled nowhere else.
        unit: UCUM. A gauge in "1" is a ratio, in 0..1: Prometheus appends ``_ratio`` to its name. Other gauges without
            a unit have an annotation such as "{state}".
        attributes: The attribute keys that its points may carry.
        help: One sentence for people who see the metric in a backend.
        window: How the readings of a window become one value.
        scope: Who reports it.
        opt_in: "" for a metric that is reported by default; otherwise the word in ``DETAIL`` that turns it on, or
            "request" if only ``INCLUDE_METRICS`` does.
        opt_in_extras: What is added if ``INCLUDE_METRICS`` names the metric, which is reported by default.
        source: Where the value comes from.
        standard: Whether the semantic conventions define it.
        endpoint: The name of the endpoint that a scraped metric comes from. A scraped metric is not in the catalog, and
            its points have the labels of the page.
        dips: Whether this count can fall a little without a reset, as the kernel corrects the time of an idle CPU. A
            small decrease of such a counter is ignored, and after a larger one it continues; a decrease of any other
            means that it counts from 0 again.
        key: Equal for metrics with the same instrument. A source that is opened again may create its metrics again.
    """

    kind: Kind
    name: str
    unit: str
    attributes: tuple[str, ...]
    help: str
    window: Window = Window.LAST
    scope: Scope = Scope.HOST
    opt_in: str = ""
    opt_in_extras: str = ""
    source: str = ""
    standard: bool = True
    endpoint: str = ""
    dips: bool = False

    key: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", (self.endpoint, self.name, self.kind.value, self.unit, self.help))

    def __call__(self, value: Value, attributes: Attributes = NONE) -> Point:
        """Make a point of this metric.

        Raises:
            ValueError: The metric does not have an attribute.
        """
        return Series(self, attributes), value


counter: Final = partial(Metric, Kind.COUNTER)  # a total that only increases; an observable counter

# A quantity that can be summed over its attributes; an observable up-down counter.
updown: Final = partial(Metric, Kind.UPDOWN)

gauge: Final = partial(Metric, Kind.GAUGE)  # any other value; an observable gauge

# A value of each of many events; a histogram that is recorded when they happen, and not read from a source.
histogram: Final = partial(Metric, Kind.HISTOGRAM)


class Series(tuple["Metric", frozenset["tuple[str, str | int]"]]):
    """A metric with its attributes: one line in a graph. A longer text than 4,096 characters is cut.

    Equal to another series of the same metric and attributes. It is a tuple, so that it is compared and hashed quickly.
    A source that reads the same thing repeatedly keeps its series: ``user = Series(CPU_TIME, {CPU_MODE: "user"})``
    once, then ``yield user, 12.5`` or ``yield user(12.5)`` at each reading.
    """

    metric: Metric
    attributes: dict[str, str | int]

    def __new__(cls, metric: Metric, attributes: Attributes = NONE) -> Series:
        for name, value in attributes.items():
            if type(value) is str and len(value) > _LONGEST:
                return cls(metric, {**attributes, name: value[:_LONGEST]})
            if name not in metric.attributes and not metric.endpoint:
                raise ValueError(
                    f"{metric.name} has no attribute {name!r}; it has {', '.join(metric.attributes) or 'none'}"
                )
        self = super().__new__(cls, (metric, frozenset(attributes.items())))
        self.metric = metric
        self.attributes = dict(attributes)
        return self

    def __call__(self, value: Value) -> Point:
        return self, value

    def __repr__(self) -> str:
        return f"{self.metric.name}{self.attributes or ''}"


class SeriesCache(dict["Metric | tuple[Metric | str | int, ...]", Series]):
    """The series of a source, made when first used: ``cache[metric]`` or ``cache[metric, name, value, ...]``."""

    def __missing__(self, key: Metric | tuple[Any, ...]) -> Series:
        row, *pairs = key if isinstance(key, tuple) else (key,)
        series = self[key] = Series(row, dict(zip(pairs[::2], pairs[1::2])))
        return series


class Event(NamedTuple):
    """What happened to a device; a log record with an event name.

    Attributes:
        time: Nanoseconds since the epoch.
        name: Its name, one of the catalog's.
        is_error: Whether its severity is ERROR; else INFO.
        body: What happened.
        attributes: The device, and facts of the event.
    """

    time: int
    name: str
    is_error: bool
    body: str
    attributes: Attributes


class Unavailable(Exception):  # noqa: N818 - it is a state of the machine, not an error
    """A source is not available on this machine.

    Args:
        reason: Why it is not available.
        fix: What the user can do.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix


class Problem(NamedTuple):
    """A problem of a source, in one sentence."""

    source: str
    reason: str
    fix: str = ""

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}" + (f"; {self.fix}" if self.fix else "")


# The monotonic time of the reading and the value of each counter.
Counters: TypeAlias = "dict[Series, tuple[float, Number]]"

# By metric, the value and attributes of each of its series.
Values: TypeAlias = "dict[Metric, list[tuple[Number, Attributes]]]"


class Snapshot(NamedTuple):
    """All values of one collection, and the problems of its sources.

    Attributes:
        values: By metric, the value and attributes of each of its series; a series appears once.
        problems: The sources that failed, hang or return invalid data.
        read: By source, the monotonic time of the reading that the values come from.
        readings: The metrics that each source reported, wanted or not, with the monotonic time of the reading.
    """

    values: Values
    problems: tuple[Problem, ...] = ()
    read: Mapping[str, float] = MappingProxyType({})
    readings: Sequence[tuple[float, Values]] = ()

    def counters(self) -> Counters:
        """Return the counters, each with the time of its reading and its value."""
        return {
            Series(metric, attributes): (at, value)
            for at, values in self.readings
            for metric, points in values.items()
            if metric.kind is Kind.COUNTER
            for value, attributes in points
        }


def rates(before: Counters, after: Counters) -> dict[Series, float]:
    """Return the increase per second of each counter that increased, between the two readings of its source.

    Args:
        before: The counters of an earlier snapshot of the same reader.
        after: Those of a later one.
    """
    found = {}
    for key, (at, value) in after.items():
        begin, start = before.get(key, (at, value))
        if at > begin and value > start:
            found[key] = (value - start) / (at - begin)
    return found
