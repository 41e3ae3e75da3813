"""OTLP receivers for gRPC and HTTP whose responses a test chooses."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from tests.support.web import Quiet, Served


@dataclass
class Answers:
    """What a receiver responds.

    Attributes:
        status: The status of HTTP; other than 200, the call of gRPC fails with `code`.
        code: The status of gRPC.
        rejected: The number of values that are rejected.
        message: The error message of partial success.
        headers: Further headers of HTTP.
        body: The body of HTTP; None for that of the protocol.
        calls: The number of requests received.
    """

    status: int = 200
    code: grpc.StatusCode = grpc.StatusCode.OK
    rejected: int = 0
    message: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    calls: int = 0

    def response(self) -> ExportMetricsServiceResponse:
        self.calls += 1
        found = ExportMetricsServiceResponse()
        found.partial_success.rejected_data_points = self.rejected
        found.partial_success.error_message = self.message
        return found


@contextmanager
def grpc_receiver(answers: Answers) -> Iterator[str]:
    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service calls it so
            response = answers.response()
            if answers.code is not grpc.StatusCode.OK:
                context.abort(answers.code, "no")
            return response

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"http://127.0.0.1:{port}"
        server.stop(None).wait()


@contextmanager
def http_receiver(answers: Answers) -> Iterator[str]:
    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            response = answers.response().SerializeToString()
            body = response if answers.body is None else answers.body
            self.send_response(answers.status)
            for name, value in answers.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with Served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        yield f"http://127.0.0.1:{server.port}"
