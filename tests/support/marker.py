"""A marker metric: everything that a Collector received before it is written before it."""

from __future__ import annotations

from uuid import uuid4

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from tests.tools.collector import Collector

NAME = "marker"


def settle(collector: Collector) -> None:
    """Wait until all metrics that were sent before the call are in the Collector's file."""
    mark = uuid4().hex
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(collector.grpc), 3_600_000)
    provider = MeterProvider([reader], Resource({"service.name": NAME}), shutdown_on_exit=False)
    provider.get_meter(NAME).create_counter(NAME, description="Everything sent earlier has arrived.").add(
        1, {"mark": mark}
    )
    provider.shutdown()
    collector.wait(lambda points: any(point.attributes.get("mark") == mark for point in points))
