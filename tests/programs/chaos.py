"""A process of a job that exports, forks or ends when it is told to, at a socket with the name of its PID.

Usage: chaos.py FOLDER; it answers each datagram: "report" exports, "fork" makes a child that instruments itself and has
32 MiB more than its parent. The journal is FOLDER/journal.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from opentelemetry.metrics import set_meter_provider
from tests.programs.journal import provider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

FOLDER = Path(sys.argv[1])
BALLAST = 32 << 20
ballast: list[bytes] = []


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
            else:
                assert instrumentor._session is not None
                instrumentor._session.read_now(60)
                meters.force_flush()
                pid = os.getpid()
            channel.sendto(str(pid).encode(), sender)
    ballast.append(os.urandom(1024) * (BALLAST // 1024))
    serve()


signal.signal(signal.SIGCHLD, signal.SIG_IGN)
meters = provider(FOLDER / "journal", 3600)
set_meter_provider(meters)
serve()
