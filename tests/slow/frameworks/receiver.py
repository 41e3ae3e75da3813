"""An OTLP/HTTP receiver for traces on the loopback interface."""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from tests.support.web import Quiet, Served, page

# `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK` of OTLP: the parent is a span of another process, or came by HTTP.
_IS_REMOTE = 0x200


@dataclass(frozen=True)
class Span:
    """A span that arrived.

    Attributes:
        name: Its name.
        parent: The name of its parent, ``""`` for a root, ``"?"`` for a parent that did not arrive.
        begin: When it began, in seconds since the epoch.
        seconds: Its duration.
        is_local_root: Whether it has no parent, or one in another process.
        numbers: Its attributes that are numbers.
    """

    name: str
    parent: str
    begin: float
    seconds: float
    is_local_root: bool
    numbers: Mapping[str, float] = field(default_factory=dict)


class Receiver(Served):
    """An OTLP receiver while its block lasts. It also answers exports of metrics and logs, and forgets them."""

    def __init__(self) -> None:
        self._requests: list[ExportTraceServiceRequest] = []
        self.newest = time.monotonic()
        """When spans arrived last."""
        receiver = self

        class Handler(Quiet, BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path.rstrip("/").endswith("/v1/traces"):  # Sentry's ends with a slash
                    receiver._requests.append(ExportTraceServiceRequest.FromString(body))
                    receiver.newest = time.monotonic()
                answer = ExportTraceServiceResponse().SerializeToString()  # empty, as those of metrics and logs
                with suppress(ConnectionError):  # the sender has ended
                    page(answer, "application/x-protobuf")(self)

        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    @property
    def endpoint(self) -> str:
        """The value of `OTEL_EXPORTER_OTLP_ENDPOINT`."""
        return f"http://127.0.0.1:{self.port}"

    def spans(self) -> list[Span]:
        """Return all spans that have arrived, in the order of their ends."""
        arrived = [
            span
            for request in list(self._requests)
            for batch in request.resource_spans
            for scope in batch.scope_spans
            for span in scope.spans
        ]
        names = {(span.trace_id, span.span_id): span.name for span in arrived}
        return [
            Span(
                span.name,
                names.get((span.trace_id, span.parent_span_id), "?") if span.parent_span_id else "",
                span.start_time_unix_nano / 1e9,
                (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                not span.parent_span_id or bool(span.flags & _IS_REMOTE),
                {
                    each.key: each.value.double_value if each.value.HasField("double_value") else each.value.int_value
                    for each in span.attributes
                    if each.value.WhichOneof("value") in {"double_value", "int_value"}
                },
            )
            for span in sorted(arrived, key=lambda each: each.end_time_unix_nano)
        ]
