"""Start `otel-hardware run`, and a Collector on the default port that comes late, goes away and returns.

Run it in a separate network namespace, with the protocol as argument. Prints the exit status, the standard output and
the messages of the command.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

SET_FLAGS, UP = 0x8914, 1


class Exports:
    """Counts exports. When the second one begins, the agent has the response to the first."""

    def __init__(self) -> None:
        self.count = 0
        self.has_two = threading.Event()

    def begin(self) -> None:
        self.count += 1
        if self.count == 2:
            self.has_two.set()


@contextmanager
def http_collector(exports: Exports) -> Iterator[None]:
    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            exports.begin()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 4318), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield
        server.shutdown()
        thread.join()


@contextmanager
def grpc_collector(exports: Exports) -> Iterator[None]:
    import grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service calls it so
            exports.begin()
            return metrics_service_pb2.ExportMetricsServiceResponse()

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
        server.add_insecure_port("127.0.0.1:4317")
        server.start()
        yield
        server.stop(None).wait()


def interrupt(port: int) -> None:
    """Accept a connection and close it: an export has failed."""
    with socket.create_server(("127.0.0.1", port)) as server:
        server.accept()[0].close()


if __name__ == "__main__":
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP))
    protocol = sys.argv[1]
    collector, port = (grpc_collector, 4317) if protocol == "grpc" else (http_collector, 4318)
    env = {**os.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    line = ["otel-hardware", "run", "--interval", "0.2", "--sources", "process"]
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stderr is not None
        while "waiting for a Collector" not in agent.stderr.readline():
            assert agent.poll() is None
        with collector(exports := Exports()):
            exports.has_two.wait()
        interrupt(port)
        with collector(exports := Exports()):
            exports.has_two.wait()
            agent.terminate()
            out, err = agent.communicate()
    print(agent.returncode, repr(out))
    print(err)
