"""Start `otel-hardware run`, and a Collector on the default port only after the first export has failed.

Run it in a separate network namespace. Prints the exit status and the output of the command.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

SET_FLAGS, UP = 0x8914, 1


class Collector(BaseHTTPRequestHandler):
    """Accepts exports."""

    has_export = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.has_export.set()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


if __name__ == "__main__":
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh", b"lo", UP))
    env = {**os.environ, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    line = ["otel-hardware", "run", "--interval", "0.2", "--sources", "process"]
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stderr is not None
        for _ in range(3):  # that nothing answers, where it exports to, and the SDK's message about the first export
            agent.stderr.readline()
        with HTTPServer(("127.0.0.1", 4318), Collector) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            Collector.has_export.wait()
            agent.terminate()
            out = agent.communicate()[0]
            server.shutdown()
    print(agent.returncode, repr(out))
