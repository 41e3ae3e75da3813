"""The exports of a MeterProvider: what arrived, what did not, and why."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry.instrumentation.hardware.cli.failures import Failure, failure, of_http
from opentelemetry.instrumentation.hardware.cli.messages import noted_logs
from opentelemetry.instrumentation.hardware.cli.text import counted
from opentelemetry.instrumentation.hardware.instruments import limit_messages
from opentelemetry.instrumentation.hardware.sdk import endpoint_of, exporter_of, readers, session_of, wrap_stub
from opentelemetry.instrumentation.hardware.settings.log import logger

if TYPE_CHECKING:
    import requests
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
    from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult, MetricsData

_LOG = logger(__name__)

# Seconds, and how many failures are printed in them if the endpoint comes and goes.
_PERIOD, _MAX_PER_PERIOD = 600.0, 5

_LATE = "no response in time"

_MESSAGES = 10  # how many different messages of a receiver are printed. Some contain times or values.


class Exports:
    """Counts the exports of one exporter, and prints a sentence for each new cause of a failure.

    The results of OTLP exporters are seen where they send, which has the reasons and partial success; the SDK passes
    on neither. Its own messages, which are repeated at each export, are not printed. Methods of the exporter are
    replaced. The name is the destination, for messages; ``report`` prints a sentence.

    Attributes:
        arrived: The number of exports that were accepted, at least in part.
        failed: The number of others.
        rejected: The number of values that the receiver rejected of accepted exports.
        failure: Why the last export failed; None if it arrived, or there was none.
    """

    def __init__(
        self,
        exporter: MetricExporter,
        name: str,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.arrived = self.failed = self.rejected = 0
        self.failure: Failure | None = None
        self.name = name
        self._last: Failure | None = None
        self._report = report
        self._clock = clock
        self._reported: set[str] = set()
        self._times: list[float] = []
        self._is_reported = True
        self._attempt: Failure | None = None
        self._logged = ""
        self._partial = 0
        self._rejection = ""
        self._is_exporting = False
        self._send = exporter.export
        exporter.export = self._export  # type: ignore[method-assign, assignment]
        for watch in (_watch_grpc, _watch_http):
            try:
                watch(exporter, self)
            except Exception:
                _LOG.debug("The responses to %r are not seen", exporter, exc_info=True)

    @property
    def status(self) -> str:
        """What is wrong now, in a few words; "" while exports arrive."""
        if self.failure is None:
            return ""
        return f"no Collector at {self.name} yet" if self.failure.is_unreachable else f"exports fail: {self.failure}"

    @property
    def summary(self) -> str:
        """Return how many exports failed, and values were rejected; "" if all arrived."""
        failed = self.failed + self._is_exporting  # that one has not ended in time
        attempt = (self._attempt or self.failure or _LATE) if self._is_exporting else None
        reason = attempt or self._last or self.failure or ""
        count = f"{counted(failed, 'export')} failed" if failed else ""
        found = []
        if not self.arrived:
            found.append(": ".join(filter(None, (f"no metrics were delivered to {self.name}", count, str(reason)))))
        elif failed:
            found.append(f"{failed} of {failed + self.arrived} exports to {self.name} failed: {reason}")
        if self.rejected:
            found.append(": ".join(filter(None, (f"{self.name} rejected {self.rejected} values", self._rejection))))
        return "; ".join(found)

    def end(self) -> None:
        """Print nothing more: the summary has the results of the last export, which may still hang then."""
        self._report = lambda sentence: None

    def log(self, text: str) -> None:
        """Note a message of the exporter: the reason of a failure, if there is no better one.

        Not that it was shut down before it could send the last values: the earlier failures have the reason.
        """
        if "already shutdown" not in text:
            self._logged = text

    # -- what happens in the exporter

    def attempt_failed(self, reason: Failure) -> None:
        """Note a failure, after which the exporter may try again."""
        if self._attempt is None or not reason.is_timeout:
            self._attempt = reason

    def attempt_succeeded(self, response: ExportMetricsServiceResponse) -> None:
        """Note a response."""
        self._attempt = None
        self._partial = response.partial_success.rejected_data_points
        message = response.partial_success.error_message.strip()
        if self._partial:
            self._rejection = message
            self._say_once(f"{self.name} rejects values: {message or 'it gives no reason'}")
        elif message:
            self._say_once(f"{self.name} accepts the values with a warning: {message}")

    def _export(self, data: MetricsData, *arguments: Any, **options: Any) -> MetricExportResult:
        from opentelemetry.sdk.metrics.export import MetricExportResult

        self._attempt, self._partial, self._logged, self._is_exporting = None, 0, "", True
        try:
            result = self._send(data, *arguments, **options)
        except Exception as error:  # the SDK would log a traceback each time
            result = MetricExportResult.FAILURE
            self._attempt = self._attempt or failure(f"{type(error).__name__}: {error}")
        finally:
            self._is_exporting = False
        if result is not MetricExportResult.SUCCESS or self._attempt is not None:
            logged = failure(self._logged) if self._logged or self._last is None else self._last
            self._has_failed(self._attempt or logged)
        elif self._partial and self._partial >= _count(data):
            self.failed += 1
            self.failure = self._last = Failure("all values were rejected")
        else:
            self.arrived += 1
            self.rejected += self._partial
            if self.failure is not None and self._is_reported:
                self._report(f"connected: metrics arrive at {self.name}")
            self.failure = None
        return result

    def _has_failed(self, reason: Failure) -> None:
        """Print a sentence, unless the previous export failed for the same reason or there were too many."""
        self.failed += 1
        before, self.failure, self._last = self.failure, reason, reason
        if before == reason:
            return
        now = self._clock()
        self._times = [each for each in self._times if now - each < _PERIOD]
        self._is_reported = len(self._times) < _MAX_PER_PERIOD
        if self._is_reported:
            self._times.append(now)
            waits = f"cannot connect to {self.name} ({reason.reason}); waiting for a Collector"
            self._report(waits if reason.is_unreachable else f"exports to {self.name} fail: {reason}")

    def _say_once(self, sentence: str) -> None:
        key = re.sub(r"\d+", "", sentence)
        if key not in self._reported and len(self._reported) < _MESSAGES:
            self._reported.add(key)
            self._report(sentence)


@contextmanager
def watched(provider: MeterProvider, url: str, report: Callable[[str], None]) -> Iterator[list[Exports]]:
    """Watch the exporters of a provider during the block. After it, their threads log nothing more.

    The URL is the destination of OTLP, for messages; "" if it is not known. The last argument prints a sentence.
    """
    exporters = [exporter_of(reader) for reader in readers(provider)]
    with listened([each for each in exporters if each is not None], url, report) as found:
        try:
            yield found
        finally:
            limit_messages(provider, 0)


@contextmanager
def listened(exporters: Sequence[MetricExporter], url: str, report: Callable[[str], None]) -> Iterator[list[Exports]]:
    """Watch exporters during the block, in which they log nothing themselves."""
    found = []
    for exporter in exporters:
        name = (url if "otlp" in type(exporter).__module__ else "") or endpoint_of(exporter) or type(exporter).__name__
        found.append(Exports(exporter, name, report))

    def note(text: str) -> None:
        for each in found:
            each.log(text)

    with noted_logs("opentelemetry.exporter", note):
        yield found


def _count(data: MetricsData) -> int:
    return sum(
        len(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


# -- where the exporters send


def _watch_grpc(exporter: MetricExporter, exports: Exports) -> None:
    class Stub:
        def __init__(self, stub: Any) -> None:
            self._stub = stub

        def Export(self, *request: Any, **call: Any) -> ExportMetricsServiceResponse:  # noqa: N802 - the exporter calls it
            import grpc

            try:
                response: ExportMetricsServiceResponse = self._stub.Export(*request, **call)
            except grpc.RpcError as error:
                exports.attempt_failed(failure(f"{error.code().name}: {error.details()}"))
                raise
            exports.attempt_succeeded(response)
            return response

    wrap_stub(exporter, Stub)


def _watch_http(exporter: MetricExporter, exports: Exports) -> None:
    session: requests.Session | None = session_of(exporter)
    if session is None:
        return
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
    from requests.adapters import BaseAdapter

    class Adapter(BaseAdapter):
        def __init__(self, adapter: BaseAdapter) -> None:
            super().__init__()
            self._adapter = adapter

        def send(self, request: requests.PreparedRequest, *arguments: Any, **options: Any) -> requests.Response:
            if request.method != "POST":  # requests follows a redirection; the export has failed already
                return self._adapter.send(request, *arguments, **options)
            try:
                response = self._adapter.send(request, *arguments, **options)
                content = response.content
            except Exception as error:
                exports.attempt_failed(failure(f"{type(error).__name__}: {error}"))
                raise
            found = of_http(response)
            if found is not None:
                exports.attempt_failed(found)
                return response
            try:
                exports.attempt_succeeded(ExportMetricsServiceResponse.FromString(content))
            except DecodeError:  # not an OTLP receiver, or one that responds in JSON
                exports.attempt_succeeded(ExportMetricsServiceResponse())
            return response

        def close(self) -> None:
            self._adapter.close()

    for prefix, adapter in [*session.adapters.items()]:
        session.mount(prefix, Adapter(adapter))
