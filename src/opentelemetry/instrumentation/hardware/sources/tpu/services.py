"""The gRPC services of a TPU: the metrics of a program that uses it, and the profiler of a TPU node."""

from __future__ import annotations

from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.rpc import Channels

TIMEOUT: Final = 0.5  # seconds for a call of the metric service; it usually answers within milliseconds

_METRIC: Final = "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric"
_MONITOR: Final = "/tensorflow.ProfilerService/Monitor"

_MONITOR_GRACE: Final = 2.0  # seconds that a profiler may take in addition to the time that it profiles


class Services:
    """A client of the services at any address. Its calls raise the errors of :meth:`.rpc.Channels.call`.

    Raises:
        Unavailable: grpcio is not installed.
    """

    def __init__(self) -> None:
        from opentelemetry.instrumentation.hardware.sources.tpu import messages

        self._messages = messages
        self._channels = Channels()

    def metric(self, address: str, name: str, skip_node_aggregation: bool) -> list[dict[str, Any]]:
        """Return the current samples of a runtime metric, as dicts with the fields of :class:`~.runtime.Sample`.

        Args:
            address: ``host:port``, or ``unix:`` and a path.
            name: The runtime's name of the metric.
            skip_node_aggregation: Leave out the samples of other processes of the host.
        """
        request = self._messages.metric_request(name, skip_node_aggregation)
        return self._channels.call(address, _METRIC, request, TIMEOUT, self._messages.samples)

    def monitor(self, address: str, milliseconds: int, level: int) -> str:
        """Return the page that a profiler makes after profiling for some milliseconds."""
        request = self._messages.monitor_request(milliseconds, level)
        seconds = milliseconds / 1000 + _MONITOR_GRACE
        return self._channels.call(address, _MONITOR, request, seconds, self._messages.page)

    def close(self) -> None:
        """End the child that calls. Safe in a forked child."""
        self._channels.close()
