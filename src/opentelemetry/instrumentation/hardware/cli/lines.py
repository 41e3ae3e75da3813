"""Views for programs: JSON, CSV and OTLP's JSON."""

from __future__ import annotations

import csv
import io
import json
import socket
from datetime import datetime, timezone
from typing import TYPE_CHECKING
from urllib.parse import quote

from opentelemetry.instrumentation.hardware.pipeline.view import View
from opentelemetry.instrumentation.hardware.redaction import printable

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricsData

HEADER = ("time", "host", "name", "kind", "unit", "attributes", "value")


def timestamp(seconds: float) -> str:
    """Format a time in UTC as in RFC 3339."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_json(view: View) -> str:
    """One object: time, host, window, the observed process, metrics, problems, and what is missing."""
    metrics = [
        {
            "name": metric.name,
            "kind": metric.kind.value,
            "unit": metric.unit,
            "attributes": dict(attributes),
            "value": value,
        }
        for metric, points in view.rows()
        for value, attributes in points
    ]
    problems = [{"source": each.source, "reason": each.reason, "fix": each.fix} for each in view.snapshot.problems]
    return json.dumps(
        {
            "time": timestamp(view.time),
            "host": socket.gethostname(),
            "window": round(view.window, 3),
            **({} if view.pid is None else {"pid": view.pid}),
            "metrics": metrics,
            "problems": problems,
            "missing": list(view.unsupported),
        }
    )


def as_csv(view: View, header: bool) -> str:
    """Return one line per value in the columns of :data:`HEADER`. Attributes are ``name=value`` with semicolons."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(HEADER)
    time, host = timestamp(view.time), socket.gethostname()
    for metric, points in view.rows():
        for value, attributes in points:
            pairs = ";".join(
                f"{printable(name)}={quote(str(word), safe='/:@ ')}" for name, word in sorted(attributes.items())
            )
            writer.writerow((time, host, printable(metric.name), metric.kind.value, metric.unit, pairs, value))
    return text.getvalue().rstrip("\n")


def as_otlp(data: MetricsData) -> str:
    """Return an export request in OTLP's JSON encoding: enumerations as numbers, 64-bit integers as strings."""
    from google.protobuf.json_format import MessageToDict
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics

    return json.dumps(MessageToDict(encode_metrics(data), use_integers_for_enums=True))
