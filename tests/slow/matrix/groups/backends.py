"""OTLP receivers that do not answer, refuse or speak another protocol, at each way to end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.slow.matrix import servers
from tests.slow.matrix.case import ABSENT, AGENT, ESCAPES, Case, Run, Surroundings, after_start, python
from tests.slow.matrix.servers import Handler, request, until_closed

_WAYS: Final = ("return", "exit", "exception", "term", "_exit", "kill")

# Seconds by which the end may be later: 2 s are promised for receivers that hang, the rest is for slow machines. The
# SDK alone waits for 10 s and more.
DELAY: Final = 6.0


def _status(code: int, *headers: bytes, body: bytes = b"", reason: str = "X") -> Handler:
    lines = b"".join(each + b"\r\n" for each in headers)
    head = f"HTTP/1.1 {code} {reason}\r\nContent-Length: {len(body)}\r\n".encode() + lines + b"\r\n"

    def handle(connection: socket.socket) -> None:
        while True:
            request(connection)
            connection.sendall(head + body)

    return handle


def _slow(connection: socket.socket) -> None:
    request(connection)
    time.sleep(3)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


def _hangs_in_answer(connection: socket.socket) -> None:
    request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    until_closed(connection)


def _http2(connection: socket.socket) -> None:
    connection.sendall(b"\0\0\0\4\0\0\0\0\0")
    until_closed(connection)


def _drips(connection: socket.socket) -> None:
    request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        connection.sendall(b"x")
        time.sleep(0.1)


def _closes_in_answer(connection: socket.socket) -> None:
    request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Le")


# An ExportMetricsServiceResponse: 5 points were rejected.
_PARTIAL: Final = b"\x0a\x0d\x08\x05\x12\x09too large"

_PROTOBUF: Final = b"Content-Type: application/x-protobuf"


def _rejected(message: bytes) -> bytes:
    """Return the same with this message."""
    inner = b"\x08\x05\x12" + bytes([len(message)]) + message
    return b"\x0a" + bytes([len(inner)]) + inner


_LOGGED: Final = "the exporter of OpenTelemetry logs the reason of a receiver as it is (docs/SECURITY.md)"
_ESCAPES: Final[Mapping[str, Handler]] = {
    "escapes-in-reason": _status(400, reason=ESCAPES),
    "escapes-in-body": _status(400, body=ESCAPES.encode()),
    "escapes-in-location": _status(307, b"Location: http://x/" + ESCAPES.encode()),
    "escapes-in-type": _status(200, b"Content-Type: " + ESCAPES.encode(), body=_PARTIAL),
    "escapes-in-partial-success": _status(200, _PROTOBUF, body=_rejected(ESCAPES.encode())),
}

_HTTP: Final[Mapping[str, Handler]] = {
    "503": _status(503),
    "503-retry-after": _status(503, b"Retry-After: 30"),
    "502": _status(502),
    "504": _status(504),
    "500": _status(500),
    "429": _status(429, b"Retry-After: 60"),
    "400": _status(400),
    "401": _status(401),
    "404": _status(404),
    "413": _status(413),
    "slow": _slow,
    "hangs-at-accept": until_closed,
    "hangs-in-answer": _hangs_in_answer,
    "drips": _drips,
    "closes-at-once": lambda connection: connection.close(),
    "closes-in-answer": _closes_in_answer,
    "redirect": _status(307, b"Location: http://127.0.0.1:9/v1/metrics"),
    "redirect-to-itself": _status(307, b"Location: /v1/metrics"),
    "garbage": lambda connection: connection.sendall(b"\0\xff" * 5000),
    "http2": _http2,
    "partial-success": _status(200, _PROTOBUF, body=_PARTIAL),
    "wrong-body": _status(200, _PROTOBUF, body=b"\xff" * 200),
    **_ESCAPES,
}

_GRPC: Final = {
    "unavailable": "UNAVAILABLE",
    "exhausted": "RESOURCE_EXHAUSTED",
    "invalid": "INVALID_ARGUMENT",
    "denied": "PERMISSION_DENIED",
    "unimplemented": "UNIMPLEMENTED",
    "internal": "INTERNAL",
    "slow": "",
    "hangs": "",
    "partial-success": "",
}


@contextmanager
def _grpc(name: str) -> Iterator[int]:
    """Run a gRPC server that answers every call in one way, and yield its port."""
    from concurrent.futures import ThreadPoolExecutor

    import grpc

    def answer(data: bytes, context: grpc.ServicerContext) -> bytes:
        if _GRPC[name]:
            context.abort(getattr(grpc.StatusCode, _GRPC[name]), "as the case wants")
        time.sleep({"slow": 3.0, "hangs": 60.0}.get(name, 0.0))
        return _PARTIAL if name == "partial-success" else b""

    class Every(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: object) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(answer)

    made = grpc.server(ThreadPoolExecutor(4), handlers=[Every()])
    port = made.add_insecure_port("127.0.0.1:0")
    made.start()
    try:
        yield port
    finally:
        made.stop(None)


def _at(make: Callable[[], AbstractContextManager[int]], protocol: str, scheme: str = "http") -> Surroundings:
    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        with make() as port:
            yield {
                "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
                "OTEL_EXPORTER_OTLP_ENDPOINT": f"{scheme}://127.0.0.1:{port}",
            }

    return around


def _connections(protocol: str) -> Iterator[tuple[str, Surroundings]]:
    """Yield the faults that both protocols can have."""
    yield "refused", _at(servers.refused, protocol)
    yield "dropped", _at(servers.not_accepted, protocol)
    yield "tls-refused", _at(servers.refused, protocol, "https")
    yield "tls-at-plain", _at(lambda: servers.server(_HTTP["503"]), protocol, "https")
    yield "tls-hangs", _at(lambda: servers.server(until_closed), protocol, "https")


def _faults() -> Iterator[tuple[str, Surroundings]]:
    for protocol, prefix in (("http/protobuf", "http"), ("grpc", "grpc")):
        for name, around in _connections(protocol):
            yield f"{prefix}-{name}", around
    for name, handle in _HTTP.items():
        yield f"http-{name}", _at(lambda handle=handle: servers.server(handle), "http/protobuf")  # type: ignore[misc]
    for name in _GRPC:
        yield f"grpc-{name}", _at(lambda name=name: _grpc(name), "grpc")  # type: ignore[misc]
    for name in ("hangs-at-accept", "garbage", "closes-at-once", "503"):
        yield f"grpc-at-{name}", _at(lambda name=name: servers.server(_HTTP[name]), "grpc")  # type: ignore[misc]


_PLACES: Final = {
    "unknown-host": "http://host.invalid:4318",
    "port-0": "http://127.0.0.1:0",
    "no-scheme": "127.0.0.1:4318",
    "no-host": "http://",
    "empty": "",
    "file": "file:///tmp/x",
    "password": "http://user:secret@127.0.0.1:9",
    "ipv6-refused": "http://[::1]:9",
}

# The faults that are tried with each way to end; the others only with an exit.
_MAIN: Final = frozenset(
    f"{protocol}-{fault}"
    for protocol, faults in {
        "http": "503 429 400 slow hangs-in-answer closes-in-answer redirect http2 partial-success",
        "grpc": "unavailable exhausted invalid slow hangs partial-success at-closes-at-once at-garbage at-503",
    }.items()
    for fault in (*faults.split(), "refused", "dropped", "tls-at-plain", "hangs-at-accept", "at-hangs-at-accept")
)

_FAST: Final = {"http-refused-exit", "http-hangs-at-accept-exit"}


def after_a_while(run: Run) -> None:
    """Let the program end while it has an export under way, or has failed to export."""
    run.until(run.has_started)
    time.sleep(2.0)
    run.go()


def cases() -> list[Case]:
    own = {"MATRIX_OWN": ABSENT, "OTEL_METRIC_EXPORT_INTERVAL": "3600000"}
    found = []
    for name, around in _faults():
        for way in _WAYS if name in _MAIN else ("exit",):
            found.append(
                Case(
                    f"{name}-{way}",
                    python("app", way),
                    environment=own,
                    around=around,
                    act=after_start,
                    lines=1,
                    delay=DELAY,
                    hosts=0,
                    expected=_LOGGED if name == "http-escapes-in-reason" else "",
                    fast=f"{name}-{way}" in _FAST,
                )
            )
        # The application ends during an export.
        often = {"MATRIX_OWN": ABSENT, "OTEL_METRIC_EXPORT_INTERVAL": "1500"}
        line = python("app", "exit")
        found.append(
            Case(
                f"{name}-during",
                line,
                often,
                around=around,
                act=after_a_while,
                lines=3,
                delay=DELAY,
                hosts=0,
                expected=_LOGGED if name == "http-escapes-in-reason" else "",
            )
        )
    for name, handle in _ESCAPES.items():
        around = _at(lambda handle=handle: servers.server(handle), "http/protobuf")  # type: ignore[misc]
        found.append(
            Case(
                f"http-{name}-agent",
                environment={"MATRIX_OWN": ABSENT},
                settings=AGENT,
                around=around,
                act=after_a_while,
                lines=3,
                delay=DELAY,
                hosts=0,
            )
        )
    for name, around in _connections("http/protobuf"):
        limited = {"OTEL_EXPORTER_OTLP_TIMEOUT": "2"}
        found.append(
            Case(f"own-{name}", environment=limited, around=around, shared=True, act=after_start, lines=1, hosts=0)
        )
    for name, url in _PLACES.items():
        place = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        found.append(
            Case(f"place-{name}", environment=own, settings=place, act=after_start, lines=1, hosts=0, delay=DELAY)
        )
    return found
