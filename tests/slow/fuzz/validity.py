"""What a parser may return: values that can be exported, with plausible names."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from opentelemetry.instrumentation.hardware.model import CounterRatio, Kind, Point, Rate, Values
from opentelemetry.instrumentation.hardware.pipeline.aggregate import Aggregator
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore

LONGEST = 4096  # characters of an attribute


class InvalidError(AssertionError):
    """A parser returned what cannot be exported."""


def number(value: object) -> None:
    """Check that a value is a finite number of 64 bits."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidError(f"{value!r} is no number")
    if not math.isfinite(value) or (isinstance(value, int) and not -(2**63) <= value < 2**63):
        raise InvalidError(f"{str(value)[:40]} is not finite, or has more than 64 bits")


def text(value: object) -> None:
    """Check that a text can be encoded, which the export of all metrics depends on."""
    if not isinstance(value, str):
        raise InvalidError(f"{value!r} is no text")
    if len(value) > LONGEST:
        raise InvalidError(f"a text of {len(value)} characters")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidError(f"{value!r} cannot be encoded") from None


def printable(value: object) -> None:
    """Check a text of one line."""
    text(value)
    if not str(value).isprintable():
        raise InvalidError(f"{value!r} is not printable")


def attributes(found: Mapping[Any, Any]) -> None:
    """Check the attributes of a series or resource."""
    for name, value in found.items():
        printable(name)
        if isinstance(value, str):
            text(value)
        else:
            number(value)


def users(found: Mapping[int, int | None]) -> None:
    """Check the processes of a device: their PIDs, and the bytes that each uses."""
    for pid, used in found.items():
        number(pid)
        number(used or 0)
        if pid <= 0 or (used or 0) < 0:
            raise InvalidError(f"process {pid} uses {used} bytes")


def points(found: Iterable[Point], most: float = 1) -> None:
    """Check what a driver's parser returned: each point can be exported as it is, once, and ratios are plausible."""
    seen = set()
    for series, value in found:
        if series in seen:
            raise InvalidError(f"{series!r} is there twice")
        seen.add(series)
        attributes(series.attributes)
        for each in value if isinstance(value, (CounterRatio, Rate)) else (value,):
            number(each)
            may_be_negative = series.metric.kind is not Kind.COUNTER and series.metric.unit in ("Cel", "1")
            if each < 0 and (not may_be_negative or isinstance(value, (CounterRatio, Rate))):
                raise InvalidError(f"{series!r} is {value}")
        if isinstance(value, (int, float)) and series.metric.unit == "1" and not series.metric.endpoint:
            highest = 10 if "power" in series.metric.name else 2 if "fan" in series.metric.name else most
            if not 0 <= value <= highest:
                raise InvalidError(f"{series!r} is {value}")


def exported(readings: Iterable[Iterable[Point]]) -> None:
    """Check what is exported of several readings of the kernel's files.

    Points that cannot be exported are left out before. The kernel's usage and limit, which are two files, are believed.
    """
    aggregator = Aggregator(CounterStore())
    for at, reading in enumerate(readings):
        aggregator.add(float(at), reading)
    published = aggregator.published
    values: Values = {} if published is None else published.window(None)
    for metric, listed in values.items():
        if not re.fullmatch("[a-z][a-z0-9_.]*", metric.name):
            raise InvalidError(f"a metric is named {metric.name}")
        points((metric(value, labels) for value, labels in listed), most=math.inf)
