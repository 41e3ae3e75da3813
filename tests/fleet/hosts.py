"""Hosts that send one real export again and again, and remember what was accepted."""

from __future__ import annotations

import gzip
import http.client
import threading
import time
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import NumberDataPoint
from tests.support.children import PATIENCE, started
from tests.support.sink import Sink
from tests.tools.daemon import wait


def real_export(gpus: str) -> bytes:
    """Return the third export of an agent with simulated GPUs: by then, every source was read."""
    with ExitStack() as stack:
        sink = stack.enter_context(Sink())
        line = ["otel-hardware", "run", "--simulate", gpus, "--interval", "2"]
        stack.enter_context(started(line, sink.environment() | {"OTEL_PYTHON_HARDWARE_PRESET": "all"}))
        return wait(lambda: sink.bodies[2:], PATIENCE, "three exports")[0]


def points_of(request: ExportMetricsServiceRequest) -> list[NumberDataPoint]:
    """Return all points of an export, which are numbers."""
    return [
        point
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in getattr(metric, metric.WhichOneof("data") or "gauge").data_points
    ]


class Hosts:
    """Senders while their block lasts, each a thread.

    Attributes:
        accepted: The times in milliseconds of the exports that were accepted, of each host.
        refused: The number of exports that were not.
        points: The number of points of an export.
    """

    def __init__(self, export: bytes, url: str, count: int, every: float) -> None:
        self._export = ExportMetricsServiceRequest.FromString(export)
        self._url, self._every = urlsplit(url), every
        self.points = len(points_of(self._export))
        self.names = [f"host-{number:04d}" for number in range(count)]
        self.accepted: dict[str, list[int]] = {name: [] for name in self.names}
        self.refused = 0
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(name,)) for name in self.names]

    def __enter__(self) -> Hosts:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _send(self, host: str) -> None:
        """Send until the end. An export is accepted if the answer says so; otherwise nobody has promised anything."""
        request = ExportMetricsServiceRequest()
        request.CopyFrom(self._export)
        own = {"host.name": host, "host.id": host, "service.instance.id": host}
        for resource in request.resource_metrics:
            kept = [each for each in resource.resource.attributes if each.key not in own]
            del resource.resource.attributes[:]
            resource.resource.attributes.extend(kept)
            for key, value in own.items():
                resource.resource.attributes.add(key=key).value.string_value = value
        points = points_of(request)
        due = time.monotonic()
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            due = max(due + self._every, time.monotonic())
            now = time.time_ns() // 1_000_000
            for point in points:
                point.time_unix_nano = now * 1_000_000
            if self._post(gzip.compress(request.SerializeToString(), 1)):
                self.accepted[host].append(now)
            else:
                self.refused += 1

    def _post(self, body: bytes) -> bool:
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection(self._url.hostname or "", self._url.port, timeout=10)
            try:
                connection.request("POST", "/v1/metrics", body, headers)
                answer = connection.getresponse()
                message = ExportMetricsServiceResponse.FromString(answer.read()) if answer.status == 200 else None
                return message is not None and not message.partial_success.rejected_data_points
            finally:
                connection.close()
        return False
