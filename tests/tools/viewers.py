"""Servers that store and show traces: Jaeger v2 and otel-desktop-viewer."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.tools import jaeger, viewer
from tests.tools.collector import Span, spans_of
from tests.tools.daemon import Daemon, free_addresses, get, own


class Jaeger(Daemon):
    """Jaeger v2 with its storage in memory, on free ports of the loopback interface.

    Attributes:
        grpc: `host:port` at which it receives OTLP over gRPC.
        url: The address of its query API.
    """

    def __init__(self, directory: Path) -> None:
        directory = own(directory, "jaeger")
        self.grpc, http, grpc = free_addresses(3)
        self.url = f"http://{http}"
        config = {
            "service": {
                "extensions": ["jaeger_storage", "jaeger_query"],
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
                "telemetry": {"metrics": {"level": "none"}},
            },
            "extensions": {
                "jaeger_query": {
                    "storage": {"traces": "memory"},
                    "enable_tracing": False,  # of itself, to the fixed port 4317
                    "http": {"endpoint": http},
                    "grpc": {"endpoint": grpc},
                },
                "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": 10_000}}}},
            },
            "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": self.grpc}}}},
            "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
        }
        path = directory / "jaeger.json"
        path.write_text(json.dumps(config))
        super().__init__([jaeger(), f"--config={path}"], f"{self.url}/api/v3/services", directory)

    def search(self, service: str) -> str:
        """Return the answer of the query API with all traces of a service: OTLP as JSON."""
        now = time.time()
        limits = {
            f"query.start_time_{name}": datetime.fromtimestamp(instant, timezone.utc).isoformat().replace("+00:00", "Z")
            for name, instant in (("min", now - 86_400), ("max", now + 60))
        }
        query = urllib.parse.urlencode({"query.service_name": service, "query.num_traces": 1000, **limits})
        try:
            return get(f"{self.url}/api/v3/traces?{query}")
        except urllib.error.HTTPError as error:
            if error.code == 404:  # there is none
                return "{}"
            raise

    def spans(self, service: str) -> list[Span]:
        """Return the spans of a service."""
        return [*spans_of(json.loads(self.search(service)).get("result", {}))]


class Viewer(Daemon):
    """otel-desktop-viewer with its storage in memory, on free ports of the loopback interface.

    Attributes:
        grpc: `host:port` at which it receives OTLP over gRPC.
        url: The address of its page and of its RPC.
    """

    def __init__(self, directory: Path) -> None:
        self.grpc, http, browser = free_addresses(3)
        self.url = f"http://{browser}"
        ports = {"grpc": self.grpc, "http": http, "browser-port": browser}
        options = [f"--{name}={address.rpartition(':')[2]}" for name, address in ports.items()]
        command: list[str | Path] = [viewer(), "--host=127.0.0.1", "--open-browser=false", *options]
        super().__init__(command, f"{self.url}/", own(directory, "viewer"))

    def call(self, method: str, *parameters: object) -> Any:
        """Return the result of a remote procedure."""
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        answer: dict[str, Any] = json.loads(get(f"{self.url}/rpc", body=json.dumps(request).encode()))
        if "result" not in answer:
            raise AssertionError(f"{method}: {answer}")
        return answer["result"]
