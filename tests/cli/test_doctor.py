"""`otel-hardware doctor`: what is wrong is named with what to do about it. Reports are in `cli/doctor.txt`."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from tests.children import run
from tests.commands import otel_hardware, simulated
from tests.members import members
from tests.sink import Sink
from tests.tools import fake_nvml, need, nvml

from opentelemetry.instrumentation.hardware.cli import delivery
from opentelemetry.instrumentation.hardware.cli.findings import Finding
from opentelemetry.instrumentation.hardware.cli.otlp import Destination, connection_error, destination
from opentelemetry.instrumentation.hardware.pipeline.reporter import JOB

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
QUICK = ["--sources", "process"]


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as each:
        yield each


@pytest.fixture(scope="module")
def collector() -> Iterator[str]:
    """The endpoint of an OTLP receiver for gRPC."""

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service calls it so
            return metrics_service_pb2.ExportMetricsServiceResponse()

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"http://127.0.0.1:{port}"
        server.stop(None).wait()


@pytest.fixture(scope="module")
def web_server() -> Iterator[str]:
    """A web server that returns 404 for OTLP."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def refusing() -> Iterator[str]:
    """An endpoint that refuses connections while the test lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


def examined(env: dict[str, str], *arguments: str) -> tuple[int, list[Finding]]:
    """Exit status and findings of the command on a simulated machine."""
    with simulated():
        answer = otel_hardware("doctor", "--format", "json", *(arguments or QUICK), env=env)
    assert answer.err == ""
    report = json.loads(answer.out)
    findings = [Finding(**finding) for finding in report["findings"]]
    assert report["wrong"] == sum(finding.state == "wrong" for finding in findings)
    return answer.status, findings


def wrong(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.state == "wrong"]


def subject(findings: list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.subject == name]
    return found


def test_doctor_command_on_this_machine_exits_with_0(sink: Sink) -> None:
    answer = run(
        ["otel-hardware", "doctor", "--format", "json", "--sources", "host,process,filesystem"], sink.environment()
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    findings = [Finding(**finding) for finding in json.loads(answer.stdout)["findings"]]
    assert wrong(findings) == []
    assert subject(findings, "request").state == "ok"
    host = subject(findings, "host")
    assert (host.part, host.state) == ("sources", "ok")
    assert f"{os.sysconf('SC_NPROCESSORS_ONLN')} logical CPUs" in host.text
    assert "mount" in subject(findings, "filesystem").text
    assert subject(findings, "container").text == "turned off by SOURCES"


def test_grpc_endpoint_gets_an_empty_request(collector: str) -> None:
    status, findings = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": collector})
    assert (status, wrong(findings)) == (0, [])
    assert subject(findings, "request").state == "ok"


def test_refused_connection_is_wrong(refusing: str) -> None:
    status, findings = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": refusing})
    assert status == 1
    (found,) = wrong(findings)
    assert found.subject == "connection"
    assert "connection refused" in found.text
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in found.fix


def test_http_404_of_endpoint_is_wrong(web_server: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": web_server, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "NO_PROXY": "*"}
    status, findings = examined(env)
    assert status == 1
    (found,) = wrong(findings)
    assert found.subject == "request"
    assert "404" in found.text
    assert "/v1/metrics" in found.fix


def test_grpc_request_to_a_web_server_is_wrong(web_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_TIMEOUT", 0.2)  # for which the exporter tries again
    status, findings = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": web_server, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert status == 1
    assert [finding.subject for finding in wrong(findings)] == ["request"]


@pytest.mark.parametrize(
    ("env", "part", "name", "word"),
    [
        ({"OTEL_METRICS_EXPORTER": "none"}, "export", "exporter", "OTEL_METRICS_EXPORTER=none"),
        ({"OTEL_METRICS_EXPORTER": "abacus"}, "export", "exporter", "abacus"),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_METRICS_EXPORTER": "console"}, "export", "SDK", "OTEL_SDK_DISABLED"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon"}, "export", "protocol", "carrier/pigeon"),
        ({"OTEL_CONFIG_FILE": "/no/such/file.yaml"}, "export", "configuration", "/no/such/file.yaml"),
        (
            {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "flask, hardware", "OTEL_METRICS_EXPORTER": "console"},
            "zero code",
            "entry point",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS",
        ),
    ],
)
def test_variable_that_disables_export_is_wrong(env: dict[str, str], part: str, name: str, word: str) -> None:
    status, findings = examined(env)
    assert status == 1
    (found,) = wrong(findings)
    assert (found.part, found.subject) == (part, name)
    assert word in found.text
    assert found.fix


@pytest.mark.parametrize(
    ("env", "name", "word"),
    [
        ({}, "host.name", "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=hardware_job"),
        ({}, "duplicates", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics"),
        ({"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "fast"}, "sample_interval", "seconds"),
        ({"OTEL_PYTHON_HARDWARE_SAMPEL_INTERVAL": "1"}, "warning", "OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL"),
    ],
)
def test_note_about_variable_keeps_exit_status_0(env: dict[str, str], name: str, word: str) -> None:
    status, findings = examined(env | {"OTEL_METRICS_EXPORTER": "console"})
    assert status == 0
    (found,) = [finding for finding in findings if finding.subject == name and finding.state == "note"]
    assert word in found.text + found.fix


@pytest.mark.parametrize("disabled", ["system_metrics", "flask, system_metrics", "*"])
def test_disabled_system_metrics_gives_no_note_about_duplicates(disabled: str) -> None:
    subjects = {finding.subject for finding in delivery.zero_code({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": disabled})}
    assert "entry point" in subjects
    assert "duplicates" not in subjects


@pytest.mark.parametrize("detectors", ["host", "process, host", "hardware_job", "*"])
def test_resource_detectors_with_the_host_give_host_name(detectors: str) -> None:
    findings = delivery.zero_code({"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": detectors})
    assert [finding.state for finding in findings if finding.subject == "host.name"] == ["ok"]


@pytest.mark.parametrize(
    ("protocol", "error", "advice"),
    [
        ("grpc", "error code: UNAVAILABLE", "check that the port accepts OTLP over gRPC"),
        ("http/protobuf", "error code: 502", "check that the port accepts OTLP over HTTP"),
        ("grpc", "error code: UNIMPLEMENTED", "check that this is an OTLP receiver"),
        ("http/protobuf", "error code: 404", "check that this is an OTLP receiver"),
        ("grpc", "error code: UNAUTHENTICATED", "set the backend's key in OTEL_EXPORTER_OTLP_HEADERS"),
        ("http/protobuf", "error code: 403", "set the backend's key in OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_advice_for_a_failed_request_follows_error_and_protocol(protocol: str, error: str, advice: str) -> None:
    assert delivery._advice(error, Destination("otlp", protocol, "http://c.example:9", ENDPOINT)).startswith(advice)


def test_note_about_job_names_reporter_and_setting() -> None:
    job = {JOB: f"{os.geteuid()}/test:{uuid4()}", "OTEL_METRICS_EXPORTER": "console"}
    with members(job) as (reporter,):
        assert "job" not in {finding.subject for finding in examined(job)[1]}
        assert reporter.update()
        status, findings = examined(job)
    note = subject(findings, "job")
    assert (status, note.state) == (0, "note")
    assert f"process {reporter.pid} " in note.text
    assert "OTEL_PYTHON_HARDWARE_REPORTER" in note.fix


def test_doctor_reports_gpu_models_and_why_metrics_are_missing(tmp_path: Path) -> None:
    need(fake_nvml)
    fake = nvml.FakeNvml(tmp_path, nvml.h100(0), nvml.h100(1), nvml.geforce(2))
    env = fake.environment | {"OTEL_METRICS_EXPORTER": "console", "COLUMNS": "80"}
    status, findings = examined(env, "--sources", "nvidia")
    assert status == 0
    source, *missing = [each for each in findings if each.subject == "nvidia"]
    assert "2 x NVIDIA H100 80GB HBM3; NVIDIA GeForce RTX 4090; driver 570.86.15" in source.text
    (lacking,) = [each.text for each in missing if each.text.startswith("hw.gpu.utilization (sm, tensor")]
    assert lacking.endswith(" of GPU 2: Not Supported")
    lines = otel_hardware("doctor", "--sources", "nvidia", env=env).out.partition("\nsettings")[0].splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert any(line.startswith("  note   nvidia           hw.gpu.utilization (sm") for line in lines)


@pytest.mark.parametrize(
    ("env", "package"),
    [
        ({}, "opentelemetry-exporter-otlp-proto-grpc"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "opentelemetry-exporter-otlp-proto-http"),
        ({"OTEL_METRICS_EXPORTER": "otlp_proto_http"}, "opentelemetry-exporter-otlp-proto-http"),
        ({"OTEL_METRICS_EXPORTER": "prometheus"}, "opentelemetry-exporter-prometheus"),
    ],
)
def test_missing_exporter_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], package: str
) -> None:
    monkeypatch.setattr(delivery, "entry_points", lambda **chosen: [])
    (found,) = delivery.export(env)
    assert (found.state, found.subject, found.fix) == ("wrong", "exporter", f"pip install {package}")


def test_missing_distro_and_entry_point_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "entry_points", lambda **chosen: [])
    findings = list(delivery.zero_code({}))
    assert "pip install opentelemetry-distro" in subject(findings, "distro").fix
    assert subject(findings, "entry point").state == "wrong"


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, Destination("otlp", "grpc", "http://localhost:4317", "")),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            Destination("otlp", "http/protobuf", "http://localhost:4318/v1/metrics", ""),
        ),
        (
            {"OTEL_METRICS_EXPORTER": "console,otlp_proto_http", "OTEL_EXPORTER_OTLP_ENDPOINT": "https://a.example/x/"},
            Destination(
                "otlp_proto_http", "http/protobuf", "https://a.example/x/v1/metrics", "OTEL_EXPORTER_OTLP_ENDPOINT"
            ),
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://b.example:99/metrics",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a.example",
            },
            Destination("otlp", "http/protobuf", "http://b.example:99/metrics", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
        ),
        ({"OTEL_METRICS_EXPORTER": "console"}, None),
    ],
)
def test_destination_follows_otlp_variables(env: dict[str, str], expected: Destination | None) -> None:
    assert destination(env) == expected


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://c.example:4317", ("c.example", 4317)),
        ("c.example:4317", ("c.example", 4317)),
        ("https://c.example/otlp", ("c.example", 443)),
        ("http://[::1]:4317", ("::1", 4317)),
        ("unix:/run/otlp.sock", None),
        ("dns:///c.example:4317", None),
    ],
)
def test_endpoint_url_gives_host_and_port(url: str, address: tuple[str, int] | None) -> None:
    assert Destination("otlp", "grpc", url, ENDPOINT).address == address


def test_invalid_port_of_endpoint_is_wrong() -> None:
    status, findings = examined({ENDPOINT: "http://collector:port"})
    assert status == 1
    assert "not a valid address" in wrong(findings)[0].text


def test_proxied_endpoint_is_not_connected_to(monkeypatch: pytest.MonkeyPatch, refusing: str) -> None:
    where = Destination("otlp", "http/protobuf", refusing, ENDPOINT)
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert connection_error(where) == "connection refused"
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert connection_error(where) == ""


@pytest.mark.parametrize(
    ("url", "protocol", "right"),
    [
        ("http://c.example:4318", "grpc", "http/protobuf"),
        ("http://c.example:4317/v1/metrics", "http/protobuf", "grpc"),
        ("http://c.example:4317", "grpc", ""),
        ("https://c.example", "grpc", ""),
    ],
)
def test_protocol_at_the_port_of_the_other_protocol_is_named(url: str, protocol: str, right: str) -> None:
    text = Destination("otlp", protocol, url, "OTEL_EXPORTER_OTLP_ENDPOINT").mismatch
    assert bool(text) == bool(right)
    assert f"OTEL_EXPORTER_OTLP_PROTOCOL={right}" in text or not right
