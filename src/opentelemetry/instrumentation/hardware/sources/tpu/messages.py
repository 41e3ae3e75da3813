"""The protobuf messages of a TPU's services, as plain data.

https://github.com/AI-Hypercomputer/cloud-accelerator-diagnostics/blob/main/tpu_info/proto/tpu_metric_service.proto
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.protobuf import classes, parsed, text
from opentelemetry.instrumentation.hardware.model import Number

MAX_SAMPLES: Final = 1024  # maximum samples in an answer: several for each device and link of a host

# Number, name and type of the fields in use. The last two messages are the profiler's, from TensorFlow's
# tensorflow/core/profiler/profiler_service.proto.
_MESSAGES: Final[Mapping[str, tuple[tuple[int, str, str], ...]]] = {
    "MetricRequest": ((1, "metric_name", "string"), (2, "skip_node_aggregation", "bool")),
    "MetricResponse": ((1, "metric", "TPUMetric"),),
    "TPUMetric": ((3, "metrics", "repeated Metric"),),
    "Metric": ((1, "attribute", "Attribute"), (3, "gauge", "Gauge"), (5, "distribution", "Distribution")),
    "Attribute": ((1, "key", "string"), (2, "value", "AttrValue")),
    "AttrValue": ((1, "string_attr", "string"), (3, "int_attr", "int64"), (6, "kvlist_attr", "KeyValueList")),
    "KeyValueList": ((1, "attributes", "repeated Attribute"),),
    "Gauge": ((1, "as_double", "double"), (2, "as_int", "int64"), (3, "as_string", "string")),
    "Distribution": (
        (1, "count", "int64"),
        (2, "mean", "double"),
        (6, "bucket_options", "BucketOptions"),
        (7, "bucket_counts", "repeated int64"),
    ),
    "BucketOptions": ((2, "exponential_buckets", "Exponential"),),
    "Exponential": ((2, "growth_factor", "double"), (3, "scale", "double")),
    "MonitorRequest": ((1, "duration_ms", "uint64"), (2, "monitoring_level", "int32"), (3, "timestamp", "bool")),
    "MonitorResponse": ((1, "data", "string"),),
}


_CLASSES: Final = classes("tpu", _MESSAGES)


def metric_request(name: str, skip_node_aggregation: bool) -> bytes:
    """Encode a ``MetricRequest``."""
    request = _CLASSES["MetricRequest"](metric_name=name, skip_node_aggregation=skip_node_aggregation)
    return bytes(request.SerializeToString())


def monitor_request(milliseconds: int, level: int) -> bytes:
    """Encode a ``MonitorRequest`` for an answer with the time of day."""
    request = _CLASSES["MonitorRequest"](duration_ms=milliseconds, monitoring_level=level, timestamp=True)
    return bytes(request.SerializeToString())


def page(data: bytes) -> str:
    """Decode the text of a ``MonitorResponse``.

    Raises:
        ValueError: The data is not a ``MonitorResponse``.
    """
    return text(parsed(_CLASSES, "MonitorResponse", data).data)


def samples(data: bytes) -> list[dict[str, Any]]:
    """Decode the samples of a ``MetricResponse``, each with the fields of :class:`~.runtime.Sample`.

    Raises:
        ValueError: The data is not a ``MetricResponse``, or has too many samples.
    """
    metrics = parsed(_CLASSES, "MetricResponse", data).metric.metrics
    if len(metrics) > MAX_SAMPLES:
        raise ValueError(f"it has more than {MAX_SAMPLES} samples")
    return [
        {
            "labels": dict(_labels(metric.attribute)),
            "value": _value(metric.gauge),
            "distribution": _distribution(metric.distribution) if metric.HasField("distribution") else None,
        }
        for metric in metrics
    ]


def _labels(attribute: Any) -> Iterator[tuple[str, str | int]]:
    """Yield the labels of an attribute, which has one value or a list of attributes."""
    value = attribute.value
    for nested in value.kvlist_attr.attributes:
        yield from _labels(nested)
    if value.HasField("string_attr"):
        yield text(attribute.key), text(value.string_attr)
    if value.HasField("int_attr"):
        yield text(attribute.key), value.int_attr


def _value(gauge: Any) -> Number | None:
    """Return the finite number of a gauge, which may be formatted as text; else None."""
    for field in ("as_double", "as_int", "as_string"):
        if gauge.HasField(field):
            try:
                value = getattr(gauge, field)
                value = value if field != "as_string" else float(text(value))
            except ValueError:
                return None
            return value if math.isfinite(value) else None
    return None


def _distribution(message: Any) -> dict[str, Any]:
    distribution: dict[str, Any] = {"count": message.count}
    if math.isfinite(message.mean):
        distribution["mean"] = message.mean
    buckets = [*message.bucket_counts]
    bounds = _bounds(message.bucket_options.exponential_buckets, len(buckets))
    if bounds:
        distribution |= {"buckets": buckets, "bounds": bounds}
    return distribution


def _bounds(options: Any, buckets: int) -> list[float]:
    """Return the upper bounds of all buckets but the last, which has none; empty if they are invalid."""
    growth, scale = options.growth_factor, options.scale
    if buckets > MAX_SAMPLES or not (1 < growth < math.inf and 0 < scale < 1e100):
        return []
    if buckets * math.log(growth) > 400:  # larger than any finite number
        return []
    return [scale * growth**place for place in range(buckets - 1)]
