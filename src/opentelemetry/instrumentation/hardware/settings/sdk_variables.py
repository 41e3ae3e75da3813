"""What the variables of the SDK say about the export of metrics."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping


def is_disabled(environ: Mapping[str, str]) -> bool:
    """Whether the SDK does nothing, by its variable."""
    return environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def exports_metrics(environ: Mapping[str, str]) -> bool:
    """Whether the variables of the SDK let a process that is configured by them export metrics."""
    return not is_disabled(environ) and environ.get("OTEL_METRICS_EXPORTER", "").strip().lower() != "none"


def export_interval(environ: Mapping[str, str] | None = None) -> float:
    """Seconds between two exports according to ``OTEL_METRIC_EXPORT_INTERVAL``; the SDK's default is 60."""
    text = (os.environ if environ is None else environ).get("OTEL_METRIC_EXPORT_INTERVAL", "")
    try:
        seconds = float(text) / 1000
    except ValueError:
        return 60.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 60.0
