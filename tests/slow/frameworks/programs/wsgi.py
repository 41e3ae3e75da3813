"""A WSGI application that makes a span of half a second for each request."""

import time
from collections.abc import Callable, Iterable
from typing import Any

from opentelemetry import trace

tracer = trace.get_tracer(__name__)


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    with tracer.start_as_current_span("request"):
        time.sleep(0.5)
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", "4")])
    return [b"four"]
