"""Rows: what a sample of a page becomes, as the specification's compatibility with Prometheus has it.

A counter is a counter; a gauge and an unknown are gauges; an info and a stateset are sums that may fall; of a histogram
and a summary there are the count and the sum, because asynchronous instruments have no histogram.
"""

from __future__ import annotations

import re
from typing import Final

from opentelemetry.instrumentation.hardware.model import Kind, Metric
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import Sample

UNITS: Final = {
    "days": "d",
    "hours": "h",
    "minutes": "min",
    "seconds": "s",
    "milliseconds": "ms",
    "microseconds": "us",
    "nanoseconds": "ns",
    "bytes": "By",
    "kibibytes": "KiBy",
    "mebibytes": "MiBy",
    "gibibytes": "GiBy",
    "tebibytes": "TiBy",
    "kilobytes": "KBy",
    "megabytes": "MBy",
    "gigabytes": "GBy",
    "terabytes": "TBy",
    "meters": "m",
    "volts": "V",
    "amperes": "A",
    "joules": "J",
    "watts": "W",
    "grams": "g",
    "celsius": "Cel",
    "hertz": "Hz",
    "ratio": "1",
    "percent": "%",
}
"""Prometheus's words for units, and UCUM's; others stay as they are."""

_PARTS: Final = {
    "histogram": {"_count": Kind.COUNTER, "_sum": Kind.COUNTER},
    "summary": {"_count": Kind.COUNTER, "_sum": Kind.COUNTER},
    "gaugehistogram": {"_gcount": Kind.GAUGE, "_gsum": Kind.GAUGE},
}

_HELP: Final = 1000
"""Letters of a HELP that are kept."""


def kind(sample: Sample) -> Kind | None:
    """The instrument of a sample; None for what has none: buckets, quantiles, the moment of creation."""
    parts = _PARTS.get(sample.type)
    if parts is not None:
        return parts.get(sample.name.removeprefix(sample.family))
    if sample.type != "counter":
        return Kind.UPDOWN if sample.type in ("info", "stateset") else Kind.GAUGE
    created = sample.name == f"{sample.family}_created"
    return None if created or sample.value < 0 else Kind.COUNTER


def row(endpoint: str, sample: Sample, carried: Kind) -> Metric:
    """The row of a sample."""
    unit = UNITS.get(sample.unit, sample.unit)
    if sample.type in _PARTS and sample.name.endswith("count"):
        unit = "1"
    if not re.fullmatch(r"[!-~]{0,63}", unit):
        unit = ""
    return Metric(sample.name, carried, unit, sample.help[:_HELP], standard=False, endpoint=endpoint)
