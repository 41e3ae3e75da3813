"""Unary gRPC calls through h2, with one socket for each address and without threads or locks.

grpcio is not used: it starts threads and takes locks that a forked child inherits, so children of programs that fork
(multiprocessing, a DataLoader) can hang in it. https://github.com/grpc/grpc/blob/master/doc/fork_support.md

Calls never use a proxy. https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import logging
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import H2Error

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.child import file_identity
from opentelemetry.instrumentation.hardware.drivers.rpc_status import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    UNAVAILABLE,
    UNIMPLEMENTED,
    UNKNOWN,
)
from opentelemetry.instrumentation.hardware.version import __version__

MAX_MESSAGE: Final = 1 << 20
"""Maximum size of an answer in bytes. Headers and other frames may add 64 KiB."""

_RESET_CODES: Final = {7: UNAVAILABLE, 8: 1, 11: 8, 12: 7}
"""The gRPC status for an HTTP/2 error code of RST_STREAM; INTERNAL for others."""

_HTTP_CODES: Final = {"400": INTERNAL, "401": 16, "403": 7, "404": UNIMPLEMENTED} | dict.fromkeys(
    ("429", "502", "503", "504"), UNAVAILABLE
)
"""The gRPC status for an HTTP status without a gRPC one; UNKNOWN for others."""

_LAST_STREAM: Final = 4000
"""The number of the stream after which a connection is replaced, because h2 keeps state for every closed stream."""

_HPACK_LOGGER: Final = logging.getLogger("hpack")
if _HPACK_LOGGER.level == logging.NOTSET:  # else a program that logs at DEBUG gets 30 lines for each call
    _HPACK_LOGGER.setLevel(logging.INFO)


class Channels:
    """Connections by address. Each is opened for its first call and kept for the next ones."""

    def __init__(self) -> None:
        self._connections: dict[str, _Connection] = {}

    def call(self, address: str, method: str, request: bytes, timeout: float) -> bytes:
        """Call a method and return the message of the answer.

        If a kept connection fails, it is replaced and the call is repeated once.

        Args:
            address: ``host:port``, or ``unix:`` and a path.
            method: ``/package.Service/Method``.
            request: The encoded message.
            timeout: Seconds for the whole call. A lookup of a host name that takes longer is not interrupted.

        Raises:
            DriverError: The call failed. The code is a gRPC status.
        """
        deadline = time.monotonic() + timeout
        while True:
            kept = self._connections.get(address)
            connection = kept or self._connections.setdefault(address, _Connection(address))
            try:
                return _message(*connection.call(method, request, timeout, deadline))
            except TimeoutError:
                raise DriverError(DEADLINE_EXCEEDED, f"timed out after {timeout:g} s") from None
            except (OSError, OverflowError) as error:  # OverflowError: no such port
                if kept is None:
                    raise DriverError(UNAVAILABLE, getattr(error, "strerror", None) or str(error)) from None
            except (H2Error, ValueError) as error:
                if kept is None:
                    raise DriverError(INTERNAL, f"invalid answer: {error or type(error).__name__}") from None
            finally:
                if not connection.reusable:
                    del self._connections[address]
                    connection.close()

    def close(self) -> None:
        """Close all connections. Safe in a forked child, even if the fork happened during a call."""
        while self._connections:
            self._connections.popitem()[1].close()


class _Connection:
    """An HTTP/2 connection for one call at a time.

    Attributes:
        reusable: Whether the connection can be used for another call.
    """

    def __init__(self, address: str) -> None:
        self.reusable = False
        self._address = address
        self._socket: socket.socket | None = None
        self._file: tuple[int, int] | None = None
        self._http2 = H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._http2.initiate_connection()

    def call(self, method: str, request: bytes, timeout: float, deadline: float) -> tuple[dict[str, str], bytes]:
        """Send a request; return the headers and trailers of the answer, and its body."""
        self.reusable = False
        channel = self._socket or self._connect(deadline)
        if file_identity(channel.fileno()) != self._file:
            raise ConnectionError("the program closed the connection")
        stream = self._http2.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost" if self._address.startswith("unix:") else self._address),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", f"opentelemetry-instrumentation-hardware/{__version__}"),
            ("grpc-timeout", f"{timeout * 1000:.0f}m"),
        ]
        self._http2.send_headers(stream, headers)
        self._http2.send_data(stream, b"\0" + struct.pack(">I", len(request)) + request, end_stream=True)
        answer: dict[str, str] = {}
        body = bytearray()
        for event in self._events(channel, deadline):
            if isinstance(event, ConnectionTerminated):
                raise ConnectionError("the server closed the connection")
            if getattr(event, "stream_id", None) != stream:
                continue
            if isinstance(event, (ResponseReceived, TrailersReceived)):
                answer.update((str(name), str(value)) for name, value in event.headers or ())
            elif isinstance(event, DataReceived):
                body += event.data or b""
                self._http2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
            elif isinstance(event, StreamReset):
                code = int(event.error_code or 0)
                raise DriverError(_RESET_CODES.get(code, INTERNAL), f"the call was reset (HTTP/2 error {code})")
            elif isinstance(event, StreamEnded):
                break
        self.reusable = stream < _LAST_STREAM
        return answer, bytes(body)

    def _events(self, channel: socket.socket, deadline: float) -> Iterator[Event]:
        """Send pending data and yield the events that arrive, up to the maximum size of an answer."""
        left = MAX_MESSAGE + (1 << 16)
        while left > 0:
            channel.settimeout(_remaining(deadline))
            channel.sendall(self._http2.data_to_send())
            channel.settimeout(_remaining(deadline))
            data = channel.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            if data.startswith(b"HTTP/1"):
                raise ValueError("the server speaks HTTP/1")
            left -= len(data)
            yield from self._http2.receive_data(data)
        raise ValueError(f"it has more than {MAX_MESSAGE} bytes")

    def _connect(self, deadline: float) -> socket.socket:
        """Connect to the first endpoint of the address that accepts."""
        failure: Exception = ConnectionError("the host has no address")
        for family, endpoint in _endpoints(self._address):
            try:
                self._socket = channel = socket.socket(family, socket.SOCK_STREAM)  # set first: close() in a fork
                self._file = file_identity(channel.fileno())
                channel.settimeout(_remaining(deadline))
                channel.connect(endpoint)
                if not self._address.startswith("unix:"):
                    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return channel
            except TimeoutError:
                raise
            except (OSError, OverflowError) as error:
                failure = error
                self.close()
        raise failure

    def close(self) -> None:
        """Close the socket, unless the program has closed it and reused its descriptor number."""
        if self._socket is not None:
            if file_identity(self._socket.fileno()) == self._file:
                self._socket.close()
            else:
                self._socket.detach()


def _remaining(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _endpoints(address: str) -> Iterator[tuple[int, Any]]:
    """Yield the endpoints of an address. localhost is not looked up: a fork during a lookup can leave locks held."""
    host, _, port = address.rpartition(":")
    if address.startswith("unix:"):
        yield getattr(socket, "AF_UNIX", -1), f"/{address.removeprefix('unix:').lstrip('/')}"
    elif host == "localhost":
        yield socket.AF_INET, ("127.0.0.1", int(port))
        yield socket.AF_INET6, ("::1", int(port))
    else:
        resolved = socket.getaddrinfo(host.strip("[]").encode(), port.encode(), type=socket.SOCK_STREAM)
        yield from ((family, endpoint) for family, _, _, _, endpoint in resolved)


def _message(headers: dict[str, str], body: bytes) -> bytes:
    """Return the message of a successful answer.

    Raises:
        DriverError: The status is an error.
        TimeoutError: The status is DEADLINE_EXCEEDED.
        ValueError: The body is not one uncompressed message.
    """
    http, status = headers.get(":status", ""), headers.get("grpc-status", "")
    if http != "200" and not status:
        raise DriverError(_HTTP_CODES.get(http, UNKNOWN), f"the server returned HTTP status {http}")
    code = int(status) if status.isascii() and status.isdigit() and len(status) < 3 else UNKNOWN
    if code == DEADLINE_EXCEEDED:
        raise TimeoutError
    if code:
        text = " ".join(unquote(headers.get("grpc-message", "")).split())
        text = "".join(filter(str.isprintable, text))[:200]
        raise DriverError(code, text or f"gRPC status {code} without a message")
    if len(body) < 5 or body[0] or int.from_bytes(body[1:5], "big") != len(body) - 5:
        raise ValueError("its body is not one message")
    return body[5:]
