"""A process of a job that exports, forks or starts another one when it is told to, at a socket named after its PID.

Usage: chaos.py FOLDER [URL]; it answers each datagram: "report" exports, "fork" makes a child that instruments itself
and has 32 MiB more than its parent, "spawn" starts this program. The journal is FOLDER/journal; with the URL of a
Collector, exports go there instead.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import set_meter_provider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from tests.support.journal import provider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

FOLDER = Path(sys.argv[1])
BALLAST = 32 << 20
ballast: list[bytes] = []


def exporting_to(url: str) -> MeterProvider:
    """Return a provider that exports to a Collector, without a connection that a forked child would share."""
    exporter = OTLPMetricExporter(f"{url}/v1/metrics", headers={"Connection": "close"})
    return MeterProvider([PeriodicExportingMetricReader(exporter, 3_600_000)])


def serve() -> None:
    """Obey until the process is killed."""
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(sample_interval=10)
    address = str(FOLDER / str(os.getpid()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(address + ".new")
        os.rename(address + ".new", address)
        while True:
            word, sender = channel.recvfrom(100)
            if word == b"fork":
                pid = os.fork()
                if not pid:
                    break
            elif word == b"spawn":
                pid = subprocess.Popen([sys.executable, *sys.argv]).pid
            else:
                assert instrumentor._telemetry.session is not None
                instrumentor._telemetry.session.read_now(60)
                meters.force_flush()
                pid = os.getpid()
            channel.sendto(str(pid).encode(), sender)
    ballast.append(os.urandom(1024) * (BALLAST // 1024))
    serve()


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
meters = exporting_to(sys.argv[2]) if len(sys.argv) > 2 else provider(FOLDER / "journal", 3600)
set_meter_provider(meters)
serve()
