"""What answers over gRPC: the metric service of a program that uses the TPU, and a TPU node's profiler.

Every call has a deadline and lets go of the interpreter lock. Of gRPC the channels of this module alone are used: none
goes through a proxy, and none is shared with the program's own.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import unwrap
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers import Refusal
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.tpu import wire

METRIC: Final = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
MONITOR: Final = "/tensorflow.ProfilerService/Monitor"

UNAVAILABLE: Final = 14
"""gRPC's code for a connection that cannot be made."""

DEADLINE: Final = 0.5
"""Seconds that the metric service may take for an answer; it takes milliseconds."""

_GRACE = 2.0
"""Seconds that a profiler may take beyond the time that it looks."""

_OPTIONS: Final = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", wire.LIMIT),
    # Programs come and go; by default one that comes is noticed after two minutes.
    ("grpc.initial_reconnect_backoff_ms", 1000),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
)


class Rpc:
    """The services, by their addresses.

    Raises:
        Unavailable: there is no gRPC.
    """

    def __init__(self) -> None:
        try:
            import grpc
        except ImportError as error:
            raise Unavailable(f"the Python module grpc cannot be imported: {error}", "pip install grpcio") from None
        self._grpc = grpc
        self._channels: dict[str, Any] = {}
        self._calls: dict[tuple[str, str], Callable[..., bytes]] = {}

    def metric(self, address: str, name: str, alone: bool) -> list[dict[str, Any]]:
        """The newest numbers of one metric, as :class:`~.wire.Series` has them.

        Args:
            address: whose.
            name: the service's own name for it.
            alone: leave out what other processes of the host measure.

        Raises:
            Refusal: nobody is there (code 14), or it is not known to whoever is (5, 12), or something else.
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
        if (address, method) not in self._calls:
            if address not in self._channels:
                # An instrumentation of gRPC would make spans of our calls.
                self._channels[address] = unwrap(self._grpc.insecure_channel)(address, _OPTIONS)
            self._calls[address, method] = self._channels[address].unary_unary(method)
        try:
            return self._calls[address, method](request, timeout=seconds)
        except self._grpc.RpcError as error:
            code = error.code()
            if code is self._grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(f"{address} did not answer within {seconds:g} s") from None
            raise Refusal(code.value[0], _sentence(error.details()) or code.value[1]) from None

    def release(self) -> None:
        """Close the connections."""
        self._calls.clear()
        while self._channels:
            self._channels.popitem()[1].close()


def _sentence(details: object) -> str:
    """What gRPC says, in one short line."""
    words = " ".join(str(details or "").split())
    return (
        words.rpartition("errors: UNKNOWN:")[2].rpartition("Failed to connect to remote host: ")[2][:200] or words[:200]
    )
