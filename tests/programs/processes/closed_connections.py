"""Reads from servers that close connections before the next request, in a program that SIGPIPE ends.

Prints whether each endpoint is up.
"""

from __future__ import annotations

import json
import signal
import socket
import struct
import threading
from contextlib import suppress

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.journal import flatten
from tests.tools.tpu import PATIENCE

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

READINGS = 3


def reset_connections(listening: socket.socket) -> None:
    """Accept connections, and end them with FIN and RST: writing to such a connection raises SIGPIPE."""
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            connection.shutdown(socket.SHUT_WR)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()


signal.signal(signal.SIGPIPE, signal.SIG_DFL)
reader = InMemoryMetricReader()
instrumentor = HardwareInstrumentor()
with socket.create_server(("127.0.0.1", 0)) as listening:
    threading.Thread(target=reset_connections, args=(listening,), daemon=True).start()
    place = f"127.0.0.1:{listening.getsockname()[1]}/metrics"
    instrumentor.instrument(
        meter_provider=MeterProvider([reader]),
        sources=["openmetrics"],
        openmetrics={"clear": f"http://{place}", "encrypted": f"https://{place}"},
    )
    session = instrumentor._telemetry.session
    assert session is not None
    for _ in range(READINGS):
        session.read_now(PATIENCE)
    points = [*flatten(reader.get_metrics_data())]
    instrumentor.uninstrument()
print(
    json.dumps(
        {each.attributes["openmetrics.endpoint"]: each.value for each in points if each.name == "openmetrics.up"}
    )
)
