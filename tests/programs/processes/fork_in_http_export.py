"""A program without metrics of its own that forks while its OTLP/HTTP exporter is at work. Each child exports.

Usage: fork_in_http_export.py; prints what an export imports, then for each lock below the exporter the status of a
child that was forked while it was held, or "hung", and at last how many processes have sent on one connection.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from tests.programs.processes.fork_in_export import PATIENCE
from tests.support.relatives import held, outcome
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

# The processes that have sent, by the port of their connection.
senders: dict[int, set[str]] = defaultdict(set)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are kept

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        senders[self.client_address[1]].add(self.headers["X-Sender"])
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def session() -> Any:
    sender: Any = exporter
    for name in ("_client", "_transport"):
        sender = getattr(sender, name, sender)
    return sender._session


def locks() -> dict[str, Any]:
    """The locks that the thread of the exporter takes during each export."""
    pools = session().adapters["http://"].poolmanager.pools
    (pool,) = pools._container.values()
    return {"pools": pools.lock, "connections": pool.pool.mutex, "cookies": session().cookies._cookies_lock}


def fork_while_locked(lock: Any) -> object:
    """Return the status of a child that is forked while a lock is held."""
    with held(lock):
        child = os.fork()
        if not child:
            session().headers["X-Sender"] = str(os.getpid())
            provider.get_meter("child").create_counter("child.steps").add(1)
            sys.exit(3 if provider.force_flush() else 4)
        return outcome(child, PATIENCE)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    exporter = OTLPMetricExporter(f"http://127.0.0.1:{server.server_port}")
    session().headers["X-Sender"] = str(os.getpid())
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader])
    HardwareInstrumentor().instrument(meter_provider=provider)
    before = set(sys.modules)
    until(lambda: provider.force_flush() and senders, "export")
    print("imported", sorted(set(sys.modules) - before), flush=True)  # else each child has it in its buffer
    for name, lock in locks().items():
        print(name, fork_while_locked(lock), flush=True)
    print("senders", len({pid for pids in senders.values() for pid in pids}), max(map(len, senders.values())))
