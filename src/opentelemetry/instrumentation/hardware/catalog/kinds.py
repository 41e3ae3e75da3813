"""Constructors of metrics, one per instrument kind."""

from __future__ import annotations

from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.model import Kind, Metric

counter: Final = partial(Metric, Kind.COUNTER)  # a total that only increases; an observable counter

# A quantity that can be summed over its attributes; an observable up-down counter.
updown: Final = partial(Metric, Kind.UPDOWN)

gauge: Final = partial(Metric, Kind.GAUGE)  # any other value; an observable gauge

# A value of each of many events; a histogram that is recorded when they happen, and not read from a source.
histogram: Final = partial(Metric, Kind.HISTOGRAM)
