"""What becomes of exports: real exporters and the real SDK, with a real Collector and receivers of both protocols."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import certifi
import grpc
import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    ConsoleMetricExporter,
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)
from tests.support.receivers import Answers, grpc_receiver, http_receiver
from tests.support.stage import Clock
from tests.tools.collector import LOCAL, Collector
from tests.tools.tls import Certificate

from opentelemetry.instrumentation.hardware.cli.exports import Exports, watched
from opentelemetry.instrumentation.hardware.cli.failures import failure

GRPC, HTTP = "grpc", "http/protobuf"
VALUES = 3
PROTOBUF = {"Content-Type": "application/x-protobuf"}


def receiver(protocol: str, answers: Answers) -> Any:
    return grpc_receiver(answers) if protocol == GRPC else http_receiver(answers)


# -- a program that exports


def exporter(protocol: str, url: str, timeout: float = 60.0, certificate: Path | None = None) -> MetricExporter:
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as Grpc

        credentials = None if certificate is None else grpc.ssl_channel_credentials(certificate.read_bytes())
        return Grpc(endpoint=url, timeout=timeout, credentials=credentials)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as Http

    path = None if certificate is None else str(certificate)
    return Http(endpoint=f"{url}/v1/metrics", timeout=timeout, certificate_file=path)


class Program:
    """A program with three values, whose exports are watched."""

    def __init__(self, stack: ExitStack, exporter: MetricExporter) -> None:
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
        self.provider = MeterProvider([reader], shutdown_on_exit=False)
        stack.callback(self.provider.shutdown)
        self.said: list[str] = []
        self.exports: Exports
        (self.exports,) = stack.enter_context(watched(self.provider, "URL", self.said.append))
        for number in range(VALUES):
            self.provider.get_meter("test").create_counter(f"counter.{number}").add(1)

    def export(self, times: int = 1) -> None:
        for _ in range(times):
            self.provider.force_flush(60_000)


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exporters give up after the first attempt. Otherwise, they retry with backoff until the timeout."""
    for name in ("proto.grpc.exporter", "proto.http.metric_exporter", "common.http"):
        with suppress(ImportError):  # the last one is new in SDK 1.44
            module = import_module(f"opentelemetry.exporter.otlp.{name}")
            for constant in {"_MAX_RETRYS", "_MAX_RETRIES"} & {*vars(module)}:
                monkeypatch.setattr(module, constant, 1)


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # requests prefers them to the exporter's certificate
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as each:
        yield each


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_accepted_exports_are_counted_without_a_message(protocol: str, stack: ExitStack) -> None:
    answers = Answers()
    program = Program(stack, exporter(protocol, stack.enter_context(receiver(protocol, answers))))
    program.export(2)
    exports = program.exports
    assert (exports.arrived, exports.failed, exports.summary, exports.status, program.said) == (2, 0, "", "", [])
    assert answers.calls == 2


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
@pytest.mark.parametrize(
    ("answers", "said", "counts", "summary"),
    [
        (
            Answers(rejected=2, message="too old"),
            "URL rejects values: too old",
            (2, 4, 0),
            "URL rejected 4 values: too old",
        ),
        (
            Answers(rejected=VALUES),
            "URL rejects values: it gives no reason",
            (0, 0, 2),
            "no metrics were delivered to URL: 2 exports failed: all values were rejected",
        ),
        (
            Answers(message="use a newer protocol"),
            "URL accepts the values with a warning: use a newer protocol",
            (2, 0, 0),
            "",
        ),
    ],
    ids=["part", "all", "warning"],
)
def test_answer_about_values_is_one_sentence_and_a_count(
    protocol: str, answers: Answers, said: str, counts: tuple[int, int, int], summary: str, stack: ExitStack
) -> None:
    program = Program(stack, exporter(protocol, stack.enter_context(receiver(protocol, answers))))
    program.export(2)
    exports = program.exports
    assert program.said == [said]
    assert (exports.arrived, exports.rejected, exports.failed, exports.summary) == (*counts, summary)


def test_messages_of_a_receiver_are_limited(stack: ExitStack) -> None:
    answers = Answers()
    program = Program(stack, exporter(HTTP, stack.enter_context(http_receiver(answers))))
    for number in range(20):
        answers.message = f"it is {number} o'clock"
        program.export()
    assert program.said == ["URL accepts the values with a warning: it is 0 o'clock"]
    for letter in "abcdefghijklmnopqrstuvwxyz":
        answers.message = letter
        program.export()
    assert len(program.said) == 10
    assert program.exports.arrived == 46


def test_nothing_is_printed_after_the_end() -> None:
    with ExitStack() as stack:
        program = Program(stack, exporter(HTTP, stack.enter_context(http_receiver(Answers(400)))))
        exports = program.exports
        assert exports.summary == "no metrics were delivered to URL"
        exports.end()
        program.export()
    assert (exports.failed, program.said) == (1, [])
    assert exports.summary == "no metrics were delivered to URL: 1 export failed: HTTP 400 Bad Request"


def test_export_that_ends_after_the_block_logs_nothing(stack: ExitStack, caplog: pytest.LogCaptureFixture) -> None:
    each = exporter(HTTP, stack.enter_context(http_receiver(Answers(400))))
    provider = MeterProvider([PeriodicExportingMetricReader(each, 3_600_000)], shutdown_on_exit=False)
    provider.get_meter("test").create_counter("counter").add(1)
    with watched(provider, "URL", lambda sentence: None) as (exports,):
        pass
    provider.shutdown()
    assert (exports.failed, caplog.messages) == (1, [])


@pytest.mark.parametrize(
    ("protocol", "answers", "sentence"),
    [
        (GRPC, Answers(code=grpc.StatusCode.UNAUTHENTICATED), "UNAUTHENTICATED: no; set the key of the backend in"),
        (GRPC, Answers(code=grpc.StatusCode.PERMISSION_DENIED), "PERMISSION_DENIED: no; set the key of the backend in"),
        (GRPC, Answers(code=grpc.StatusCode.UNIMPLEMENTED), "UNIMPLEMENTED: no; check that this is an OTLP receiver"),
        (GRPC, Answers(code=grpc.StatusCode.INVALID_ARGUMENT), "INVALID_ARGUMENT: no"),
        (HTTP, Answers(401), "HTTP 401 Unauthorized; set the key of the backend in OTEL_EXPORTER_OTLP_HEADERS"),
        (HTTP, Answers(403), "HTTP 403 Forbidden; set the key of the backend in OTEL_EXPORTER_OTLP_HEADERS"),
        (HTTP, Answers(404), "HTTP 404 Not Found; check that this is an OTLP receiver"),
        (HTTP, Answers(400), "HTTP 400 Bad Request"),
        (
            HTTP,
            Answers(400, headers=PROTOBUF, body=Status(message="no").SerializeToString()),
            "HTTP 400 Bad Request: no",
        ),
        (HTTP, Answers(400, headers=PROTOBUF, body=b"<html>"), "HTTP 400 Bad Request"),
        (HTTP, Answers(400, body=b"<html>"), "HTTP 400 Bad Request"),
        (HTTP, Answers(409, body=b"x" * 500), "HTTP 409 Conflict: xxx"),
    ],
)
def test_rejected_export_is_one_sentence_and_a_count(
    protocol: str, answers: Answers, sentence: str, stack: ExitStack
) -> None:
    program = Program(stack, exporter(protocol, stack.enter_context(receiver(protocol, answers))))
    program.export(2)
    (said,) = program.said
    assert said.startswith(f"exports to URL fail: {sentence}")
    exports = program.exports
    assert (exports.arrived, exports.failed) == (0, 2)
    reason = sentence.partition(";")[0]
    assert exports.summary.startswith(f"no metrics were delivered to URL: 2 exports failed: {reason}")
    assert exports.status.startswith(f"exports fail: {reason}")


@pytest.mark.parametrize("location", ["http://no-such-host.invalid", "/login"])
def test_redirection_is_one_sentence(location: str, stack: ExitStack) -> None:
    """SDK 1.39 follows it with a GET, which a page such as a login answers with 200."""
    answers = Answers(301, headers={"Location": location})
    program = Program(stack, exporter(HTTP, stack.enter_context(http_receiver(answers))))
    program.export()
    (said,) = program.said
    assert f"the endpoint redirects to {location}" in said
    assert (program.exports.arrived, program.exports.failed) == (0, 1)


def test_secret_that_a_receiver_returns_is_removed_before_its_message_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abcdefghijklmnop")
    assert "abcdef" not in str(failure("HTTP 401 Unauthorized: " + 160 * "x" + " token abcdefghijklmnop"))


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_temporary_failure_is_followed_by_a_message_of_success(protocol: str, stack: ExitStack) -> None:
    answers = Answers(400, grpc.StatusCode.INVALID_ARGUMENT)
    program = Program(stack, exporter(protocol, stack.enter_context(receiver(protocol, answers))))
    program.export()
    answers.status, answers.code = 200, grpc.StatusCode.OK
    program.export(2)
    exports = program.exports
    assert program.said[1:] == ["connected: metrics arrive at URL"]
    assert (exports.arrived, exports.failed, exports.status) == (2, 1, "")
    assert exports.summary.startswith("1 of 3 exports to URL failed: ")


def test_proxy_that_is_down_is_named(stack: ExitStack, monkeypatch: pytest.MonkeyPatch, refusing: str) -> None:
    for name in ("NO_PROXY", "no_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", refusing)
    sentence = failed(stack, HTTP, "http://collector.example:4318")
    reason = "no connection to the proxy in HTTP_PROXY or HTTPS_PROXY"
    assert sentence == f"cannot connect to URL ({reason}); waiting for a Collector"


def test_proxy_that_is_down_is_named_for_grpc(stack: ExitStack, monkeypatch: pytest.MonkeyPatch, refusing: str) -> None:
    url = stack.enter_context(grpc_receiver(Answers())).replace("127.0.0.1", "localhost")
    for name in ("no_grpc_proxy", "no_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", refusing)
    monkeypatch.setenv("NO_PROXY", "localhost")  # gRPC does not read it
    reason = "no connection to the proxy in http_proxy, which gRPC uses unless no_proxy has localhost"
    assert failed(stack, GRPC, url) == f"cannot connect to URL ({reason}); waiting for a Collector"


def test_path_that_is_in_the_wrong_variable_is_named(stack: ExitStack) -> None:
    url = stack.enter_context(http_receiver(Answers(404)))
    assert "OTEL_EXPORTER_OTLP_ENDPOINT must not" in failed(stack, HTTP, f"{url}/v1/metrics")


def test_scheme_that_is_missing_for_grpc_without_tls_is_named(
    stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = stack.enter_context(grpc_receiver(Answers())).removeprefix("http://")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    sentence = "the endpoint does not use TLS; begin it with http://, because gRPC uses TLS without a scheme"
    assert failed(stack, GRPC, url) == sentence


def test_endpoint_without_a_scheme_is_named(stack: ExitStack) -> None:
    reason = "the endpoint begins with neither http:// nor https://; begin it with one of the two"
    assert failed(stack, HTTP, "localhost:4318").startswith(reason)
    assert failed(stack, HTTP, "localhost").startswith(reason)


def test_exporter_that_raises_is_a_failure_without_a_traceback(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    broken = exporter(HTTP, "http://127.0.0.1:1")
    broken.export = lambda *_, **__: 1 / 0  # type: ignore[method-assign, assignment]
    program = Program(stack, broken)
    program.export()
    assert program.said == ["exports to URL fail: ZeroDivisionError: division by zero"]
    assert caplog.messages == []


class Without:
    """Something that works as before, but lacks an attribute, and cannot be called."""

    def __init__(self, real: Any, hidden: str) -> None:
        self._real, self._hidden = real, hidden

    def __getattr__(self, name: str) -> Any:
        if name == self._hidden:
            raise AttributeError(name)
        return getattr(self._real, name)


@pytest.mark.parametrize(
    ("protocol", "name", "hidden"),
    [(GRPC, "_stub", ""), (GRPC, "_stub", "__call__"), (HTTP, "_session", "adapters"), (HTTP, "_session", "mount")],
)
def test_exporter_with_other_private_attributes_is_judged_by_its_results(
    protocol: str, name: str, hidden: str, stack: ExitStack
) -> None:
    answers = Answers()
    each: Any = exporter(protocol, stack.enter_context(receiver(protocol, answers)))
    owner = getattr(getattr(each, "_client", None), "_transport", each)  # since SDK 1.44
    if hidden:
        setattr(owner, name, Without(getattr(owner, name), hidden))
    else:
        delattr(owner, name)
    program = Program(stack, each)
    program.export()
    answers.status, answers.code = 400, grpc.StatusCode.INVALID_ARGUMENT
    program.export()
    exports = program.exports
    assert (answers.calls, exports.arrived, exports.failed) == (2, 1, 1)
    assert exports.status.startswith("exports fail: ")


def test_closed_output_of_the_console_is_not_taken_for_an_endpoint(stack: ExitStack) -> None:
    """As in ``otel-hardware run | head``."""
    end, begin = os.pipe()
    os.close(end)
    out = os.fdopen(begin, "w")
    try:
        program = Program(stack, ConsoleMetricExporter(out=out))
        program.export()
    finally:
        with suppress(BrokenPipeError):
            out.close()
    (said,) = program.said
    assert said.startswith("exports to ConsoleMetricExporter fail: BrokenPipeError: ")
    assert "HTTP" not in said


def test_messages_about_an_endpoint_that_comes_and_goes_are_limited(stack: ExitStack) -> None:
    answers, clock = Answers(400), Clock()
    said: list[str] = []
    each = exporter(HTTP, stack.enter_context(http_receiver(answers)))
    exports = Exports(each, "URL", said.append, clock=clock)
    program = Program(stack, each)
    for status in (400, 200) * 7:
        answers.status = status
        program.export()
    assert said == ["exports to URL fail: HTTP 400 Bad Request", "connected: metrics arrive at URL"] * 5
    clock.now += 3600
    answers.status = 400
    program.export()
    assert len(said) == 11
    assert (exports.arrived, exports.failed) == (7, 8)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["UNAVAILABLE: Connection refused", "DEADLINE_EXCEEDED: x"], "connection refused"),
        (["DEADLINE_EXCEEDED: x", "UNAVAILABLE: Connection refused"], "connection refused"),
        (["DEADLINE_EXCEEDED: x", "DEADLINE_EXCEEDED: x"], "no response before the timeout"),
    ],
)
def test_cause_is_kept_if_the_last_attempt_has_no_time_left(texts: list[str], reason: str, stack: ExitStack) -> None:
    each = exporter(HTTP, "http://127.0.0.1:1")

    def export(*_: object, **__: object) -> MetricExportResult:
        for text in texts:
            program.exports.attempt_failed(failure(text))
        return MetricExportResult.FAILURE

    each.export = export  # type: ignore[method-assign]
    program = Program(stack, each)
    program.export()
    assert program.exports.failure is not None
    assert program.exports.failure.reason == reason


# -- a real Collector


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, trusted: Certificate) -> Iterator[Collector]:
    files = {"tls": {"cert_file": str(trusted.file), "key_file": str(trusted.key)}}
    config = {"receivers": {"otlp": {"protocols": {"grpc": files, "http": files}}}}
    with Collector(tmp_path_factory.mktemp("secured"), LOCAL, config) as each:
        yield each


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_collector_accepts_exports(collector: Collector, protocol: str, stack: ExitStack) -> None:
    program = Program(stack, exporter(protocol, collector.grpc if protocol == GRPC else collector.http))
    program.export()
    exports = program.exports
    assert (exports.arrived, exports.summary, program.said) == (1, "", [])


def failed(stack: ExitStack, protocol: str, url: str) -> str:
    """The one sentence about an export that fails, after the beginning that is the same for all."""
    program = Program(stack, exporter(protocol, url))
    program.export()
    (sentence,) = program.said
    assert program.exports.arrived == 0
    assert program.exports.summary.startswith("no metrics were delivered to URL: 1 export failed: ")
    return sentence.removeprefix("exports to URL fail: ")


def test_wrong_protocol_is_named(collector: Collector, stack: ExitStack) -> None:
    assert failed(stack, GRPC, collector.http).startswith("the endpoint does not speak gRPC; check the port, usually")
    assert failed(stack, HTTP, collector.grpc).startswith("the endpoint closes the connection without a response in")


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_tls_to_an_endpoint_without_is_named(collector: Collector, protocol: str, stack: ExitStack) -> None:
    url = (collector.grpc if protocol == GRPC else collector.http).replace("http:", "https:")
    assert failed(stack, protocol, url) == "the endpoint does not use TLS; use http:// instead of https://"


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_no_tls_to_an_endpoint_that_requires_it_is_named(secured: Collector, protocol: str, stack: ExitStack) -> None:
    sentence = failed(stack, protocol, secured.grpc if protocol == GRPC else secured.http)
    assert "use https://" in sentence


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_unknown_certificate_is_named(
    secured: Collector, trusted: Certificate, protocol: str, stack: ExitStack
) -> None:
    url = (secured.grpc if protocol == GRPC else secured.http).replace("http:", "https:")
    assert failed(stack, protocol, url).startswith(
        "the certificate of the endpoint is not trusted; set OTEL_EXPORTER_OTLP_CERTIFICATE"
    )
    program = Program(stack, exporter(protocol, url, certificate=trusted.file))
    program.export()
    assert (program.exports.arrived, program.said) == (1, [])


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_variable_that_overrides_the_certificate_is_named(
    secured: Collector, trusted: Certificate, variable: str, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, certifi.where())
    program = Program(stack, exporter(HTTP, secured.http.replace("http:", "https:"), certificate=trusted.file))
    program.export()
    if program.exports.arrived:
        pytest.skip("the variable does not override the certificate in this version of the SDK")
    (sentence,) = program.said
    assert f"; add its authority to the file in {variable}, or unset that" in sentence


@pytest.mark.parametrize("protocol", [GRPC, HTTP])
def test_unknown_host_is_named(protocol: str, stack: ExitStack) -> None:
    sentence = failed(stack, protocol, "http://no-such-host.invalid:4317")
    assert sentence == "cannot connect to URL (the host name cannot be resolved); waiting for a Collector"
