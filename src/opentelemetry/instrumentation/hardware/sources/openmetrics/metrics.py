"""Map the samples of a page to metrics.

https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/

A counter is a counter, a gauge and an unknown are gauges, an info and a stateset are non-monotonic sums. A histogram
and a summary become their count and sum, because asynchronous instruments have no histogram.
"""

from __future__ import annotations

import re
from typing import Final

from opentelemetry.instrumentation.hardware.model import Kind, Metric
from opentelemetry.instrumentation.hardware.sources.openmetrics.page import Sample

# UCUM codes of Prometheus's units. Other units are kept as they are.
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

# The instruments of types; all others are gauges.
_KINDS: Final = {"counter": Kind.COUNTER, "summary": Kind.COUNTER, "info": Kind.UPDOWN, "stateset": Kind.UPDOWN}

_MAX_HELP: Final = 1000  # maximum characters of a description


def scraped_metric(endpoint: str, sample: Sample) -> Metric:
    """Return the metric of a sample, with its name on the page."""
    unit = UNITS.get(sample.unit, sample.unit)
    if sample.type in ("summary", "gaugehistogram") and sample.name.endswith("count"):
        unit = "{observation}"  # a gauge in "1" would be a ratio
    if not re.fullmatch(r"[!-~]{0,63}", unit):
        unit = ""
    kind, help_ = _KINDS.get(sample.type, Kind.GAUGE), sample.help[:_MAX_HELP]
    return Metric(kind, sample.name, unit, (), help_, source=sample.type, standard=False, endpoint=endpoint)
