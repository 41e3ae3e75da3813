"""What answers over gRPC: the metric service of a program that uses the TPU, and a TPU node's profiler.

Every call has a deadline. Of gRPC only the protocol is used, by a socket of our own: see :mod:`.http2`. None goes
through a proxy, and none is a span of the program's. https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import struct
import time
from typing import Any, Final
from urllib.parse import unquote

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.tpu import wire
from opentelemetry.instrumentation.hardware.sources.tpu.http2 import Answer, Away, Connection, Reset
from opentelemetry.instrumentation.hardware.version import __version__

METRIC: Final = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
MONITOR: Final = "/tensorflow.ProfilerService/Monitor"

UNAVAILABLE: Final = 14
"""gRPC's code for a connection that cannot be made."""

_UNKNOWN, _LATE, _UNIMPLEMENTED, _INTERNAL = 2, 4, 12, 13

_RESETS: Final = {7: UNAVAILABLE, 8: 1, 11: 8, 12: 7}
"""What HTTP/2's codes mean, as gRPC has it."""

_PAGES: Final = {"400": _INTERNAL, "401": 16, "403": 7, "404": _UNIMPLEMENTED} | dict.fromkeys(
    ("429", "502", "503", "504"), UNAVAILABLE
)
"""What the answers of a server mean that is none of gRPC's."""

DEADLINE: Final = 0.5
"""Seconds that the metric service may take for an answer; it takes milliseconds."""

_GRACE = 2.0
"""Seconds that a profiler may take beyond the time that it looks."""

_AROUND: Final = 1 << 16
"""Bytes that may come around a message."""


class Rpc:
    """The services, by their addresses."""

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def metric(self, address: str, name: str, alone: bool) -> list[dict[str, Any]]:
        """The newest numbers of one metric, as :class:`~.wire.Series` has them.

        Args:
            address: whose.
            name: the service's own name for it.
            alone: leave out what other processes of the host measure.

        Raises:
            DriverError: nobody is there (code 14), or it is not known to whoever is (5, 12), or something else.
            TimeoutError: it takes too long.
            ValueError: the answer is none.
        """
        answer = self._call(address, METRIC, wire.metric_request(name, alone), DEADLINE)
        return [each._asdict() for each in wire.response(answer)]

    def monitor(self, address: str, milliseconds: int, level: int) -> str:
        """What a profiler says after it looked for so long; raises as :meth:`metric` does."""
        request = wire.monitor_request(milliseconds, level)
        return wire.text(self._call(address, MONITOR, request, milliseconds / 1000 + _GRACE))

    def _call(self, address: str, method: str, request: bytes, seconds: float) -> bytes:
        headers = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            (":authority", "localhost" if address.startswith("unix:") else address),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", f"opentelemetry-instrumentation-hardware/{__version__}"),
            ("grpc-timeout", f"{seconds * 1000:.0f}m"),
        )
        try:
            return _message(self._answer(address, headers, b"\0" + struct.pack(">I", len(request)) + request, seconds))
        except TimeoutError:
            raise TimeoutError(f"{address} did not answer within {seconds:g} s") from None
        except Away as error:
            raise DriverError(UNAVAILABLE, str(error)) from None
        except Reset as error:
            raise DriverError(_RESETS.get(error.code, _INTERNAL), f"the call was reset ({error})") from None

    def _answer(self, address: str, headers: tuple[tuple[str, str], ...], body: bytes, seconds: float) -> Answer:
        deadline = time.monotonic() + seconds
        while True:
            kept = address in self._connections
            connection = self._connections.setdefault(address, Connection(address))
            try:
                return connection.ask(headers, body, wire.LIMIT + _AROUND, deadline)
            except Away:
                if not kept:
                    raise  # else it had ended meanwhile: whoever is there now has not been asked yet
            finally:
                if not connection.usable:
                    del self._connections[address]
                    connection.close()

    def close(self) -> None:
        """Close the connections; also in a forked child, in the midst of a call of its parent's."""
        while self._connections:
            self._connections.popitem()[1].close()


def _message(answer: Answer) -> bytes:
    """The message of an answer that has one, and is none of a failure."""
    page = answer.headers.get(":status", "")
    said = answer.headers.get("grpc-status", "")
    if page != "200" and not said:
        raise DriverError(_PAGES.get(page, _UNKNOWN), f"it answers HTTP {page or 'nothing'}")
    code = int(said) if said.isascii() and said.isdigit() and len(said) < 3 else _UNKNOWN
    if code == _LATE:
        raise TimeoutError
    if code:
        words = " ".join(unquote(answer.headers.get("grpc-message", "")).split())[:200]
        raise DriverError(code, words or "it does not say why")
    body = answer.body
    if len(body) < 5 or body[0] or int.from_bytes(body[1:5], "big") != len(body) - 5:
        raise ValueError("the answer is not one message")
    return bytes(body[5:])
