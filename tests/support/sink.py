"""An OTLP/HTTP receiver for metrics on the loopback interface."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint
from tests.support.children import PEERS
from tests.support.journal import Arrived, Export
from tests.support.web import Quiet, Served, page


@dataclass(frozen=True)
class Scope:
    """The instrumentation scope of a batch of metrics."""

    name: str
    version: str
    schema_url: str


class Sink(Served):
    """An OTLP receiver for metrics while its block lasts.

    Args:
        before_answer: Called after each request was received, and before it is answered.

    Attributes:
        exports: The exports received, oldest first. The PID is that of the ``process`` resource detector.
        scopes: All scopes received.
        resources: The attributes of all resources received.
        bodies: The requests as they came.
    """

    def __init__(self, before_answer: Callable[[], object] = lambda: None) -> None:
        self.exports: list[Export] = []
        self.scopes: set[Scope] = set()
        self.resources: list[dict[str, Any]] = []
        self.bodies: list[bytes] = []
        sink = self

        class Handler(Quiet, BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                sink.bodies.append(body)
                sink._take(ExportMetricsServiceRequest.FromString(body))
                before_answer()
                answer = ExportMetricsServiceResponse().SerializeToString()
                with suppress(ConnectionError):  # the sender has ended
                    page(answer, "application/x-protobuf")(self)

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    def environment(self, interval: float = 60.0) -> dict[str, str]:
        """Return the environment variables that make a program send its metrics here, and no traces or logs."""
        return {
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_TRACES_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "OTEL_METRIC_EXPORT_INTERVAL": str(int(interval * 1000)),
            "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "process",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": PEERS,
            "NO_PROXY": "*",
            "OTEL_PYTHON_HARDWARE_EXIT_TIMEOUT": "60",  # a slow machine
        }

    @property
    def names(self) -> set[str]:
        """The names of all metrics received."""
        return {point.name for export in self.exports for point in export.points}

    def _take(self, request: ExportMetricsServiceRequest) -> None:
        for batch in request.resource_metrics:
            resource = _plain(batch.resource.attributes)
            if resource not in self.resources:
                self.resources.append(resource)
            points = []
            for part in batch.scope_metrics:
                self.scopes.add(Scope(part.scope.name, part.scope.version, part.schema_url))
                points += [
                    Arrived(
                        part.scope.name,
                        metric.name,
                        _number(point),
                        _plain(point.attributes),
                        point.start_time_unix_nano,
                        point.time_unix_nano / 1e9,
                        metric.sum.is_monotonic,
                    )
                    for metric in part.metrics
                    for point in _points(metric)
                ]
            time = max((point.time for point in points), default=0.0)
            pid, service, host = (resource.get(key, "") for key in ("process.pid", "service.name", "host.name"))
            self.exports.append(Export(pid or 0, time, points, service, host))


def _points(metric: Metric) -> list[NumberDataPoint]:
    return list(getattr(metric, metric.WhichOneof("data") or "gauge").data_points)


def _number(point: NumberDataPoint) -> Any:
    return getattr(point, point.WhichOneof("value") or "as_int", None)


def _plain(attributes: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value") for pair in attributes}
