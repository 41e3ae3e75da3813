"""The names of metrics and attributes in Prometheus, as the Collector and Prometheus' OTLP receiver write them.

https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
"""

from __future__ import annotations

import re
from typing import Final

from opentelemetry.instrumentation.hardware.model import Kind, Metric

# Only the units of the catalog.
_UNITS: Final = {
    "s": "seconds",
    "By": "bytes",
    "J": "joules",
    "W": "watts",
    "V": "volts",
    "Hz": "hertz",
    "Cel": "celsius",
}
_PER: Final = {"s": "second"}


def series(metric: Metric) -> str:
    """Return what the series of a metric are called."""
    return series_of(metric.name, metric.unit, metric.kind is Kind.COUNTER, metric.kind is Kind.GAUGE)


def selector(metric: Metric, matchers: str) -> str:
    """Return a selector of the series of a metric, also as VictoriaMetrics' OTLP receiver names them."""
    if metric.unit == "1" and metric.kind not in (Kind.COUNTER, Kind.GAUGE):
        return f'{{__name__=~"{series(metric)}(_ratio)?", {matchers}}}'
    return f"{series(metric)}{{{matchers}}}"


def series_of(name: str, unit: str, is_counter: bool, is_gauge: bool) -> str:
    """Return what the series of a metric with this name and unit are called."""
    words = [name.replace(".", "_")]
    if unit == "1":
        words += ["ratio"] if is_gauge else []
    elif not unit.startswith("{"):
        first, _, per = unit.partition("/")
        words += [_UNITS.get(first, first)] + (["per", _PER.get(per, per)] if per else [])
    elif "/" in unit:
        words += ["per", _PER[unit.partition("/")[2]]]
    words = [word for at, word in enumerate(words) if at == 0 or not words[0].endswith(f"_{word}")]
    return "_".join([*words, "total"] if is_counter and not words[0].endswith("_total") else words)


def label(attribute: str) -> str:
    """Return what an attribute is called."""
    return re.sub(r"\W", "_", attribute)
