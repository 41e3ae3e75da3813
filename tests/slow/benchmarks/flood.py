"""A tool or an endpoint that sends without end: the CPU time of its source, and how much later other threads wake.

The first seconds are measured, in which the flood is noticed; afterwards the tool or endpoint is closed for a while.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from tests.slow.benchmarks.figure import Figure
from tests.support.journal import Journal

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

_EXPORT = 1000.0  # milliseconds between two collections

_TICK = 0.001  # seconds for which a thread of the program sleeps again and again

# Seconds. If a thread wakes later without the package, the machine is too busy to measure a millisecond.
_QUIET = 0.5e-3

# The share of the page, which is measured for longer, because its source rests for several seconds.
_STEADY = 12

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_PAGE = b"".join(b'a_metric_total{number="%07d",mode="user"} %d\n' % (each, each) for each in range(100_000))

# What an endpoint sends first, what then, and whether it sends that again and again.
SERVERS: Mapping[str, tuple[bytes, bytes, bool]] = {
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100, True),
    "chunks": (_CHUNKED, b"1\r\n#\r\n" * 1000, True),
    "headers": (_HEAD, b"X: y\r\n" * 1000, True),
    "one line": (_HEAD + b"\r\n", b"a" * 65536, True),
    "5 MB page": (_HEAD + b"Content-Length: %d\r\n\r\n" % len(_PAGE), _PAGE, False),
}

# The shell command that takes the place of neuron-monitor.
TOOLS: Mapping[str, str] = {
    "empty lines": "exec yes ''",
    "short lines": "exec yes '{}'",
    "long lines": "exec yes \"$(head -c 60000 /dev/zero | tr '\\0' x)\"",
    "no line feed": "exec cat /dev/zero",
    "stderr": "exec yes >&2",
}


def figures(seconds: float) -> list[Figure]:
    shares = len(SERVERS) + len(TOOLS) + _STEADY
    part = seconds / shares
    found: list[Figure] = []
    for name, (_, _, forever) in SERVERS.items():
        with _serving(name) as port:
            settings = {"sources": ["openmetrics"], "openmetrics": f"x=http://127.0.0.1:{port}/"}
            found += _figures(f"page: {name}", settings, part if forever else part * _STEADY)
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(folder) / "neuron-monitor"
        for name, command in TOOLS.items():
            tool.write_text(f"#!/bin/sh\n{command}\n")
            tool.chmod(0o755)
            found += _figures(f"tool: {name}", {"sources": ["trainium"], "neuron_monitor": str(tool)}, part)
    return found


def _figures(name: str, settings: Mapping[str, object], seconds: float) -> list[Figure]:
    """Measure without the package, with it, and without it again."""
    off = [_late(seconds / 4)]
    reader = PeriodicExportingMetricReader(Journal(os.devnull), export_interval_millis=_EXPORT)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    instrumentor = HardwareInstrumentor()
    instrumentor.instrument(meter_provider=provider, reporter="always", sample_interval=1, **settings)
    try:
        used = _used()
        on = _late(seconds / 2)
        used = max(_used() - used, 0.0)  # below the resolution of its clocks, the difference may be negative
    finally:
        instrumentor.uninstrument()
        provider.shutdown()
    off.append(_late(seconds / 4))
    is_noisy = seconds < 1 or max(off) > _QUIET
    return [
        Figure(name, 200 * used / max(seconds, 1e-9), "% of core", bound=5, noisy=seconds < 1),
        Figure(f"{name}, wake p99", 1e3 * on, "ms", "without", 1e3 * max(off), 1e3 * max(off) + 1, noisy=is_noisy),
    ]


def _used() -> float:
    """Seconds of CPU time of all threads but this one, with those of the SDK."""
    return time.process_time() - time.thread_time()


def _late(seconds: float) -> float:
    """The seconds by which a thread of the program wakes late; 99 % of the times are shorter."""
    end, late = time.perf_counter() + seconds, [0.0]
    while (begun := time.perf_counter()) < end or len(late) < 2:
        time.sleep(_TICK)
        late.append(time.perf_counter() - begun - _TICK)
    return statistics.quantiles(late, n=100)[-1]


@contextmanager
def _serving(name: str) -> Iterator[int]:
    """A server in a process of its own."""
    line = [sys.executable, "-m", __name__, name]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.kill()


def _serve(name: str) -> None:
    head, body, forever = SERVERS[name]
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_send, args=(connection, head, body, forever), daemon=True).start()


def _send(connection: socket.socket, head: bytes, body: bytes, forever: bool) -> None:
    with connection, suppress(OSError):
        connection.recv(65536)
        connection.sendall(head)
        for each in repeat(body) if forever else (body,):
            connection.sendall(each)


if __name__ == "__main__":
    _serve(sys.argv[1])
