"""``otel-hardware doctor``: every fault is named with what to do, and what is well is not called a fault."""

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

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from tests.children import run
from tests.sink import Sink
from tests.tools import nvml

from opentelemetry.instrumentation.hardware.cli import delivery
from opentelemetry.instrumentation.hardware.cli.findings import Finding
from opentelemetry.instrumentation.hardware.cli.otlp import Destination, destination, silence
from opentelemetry.instrumentation.hardware.cli.view import told
from opentelemetry.instrumentation.hardware.identity import JOB, key

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
QUICK = ["--sources", "process"]


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as each:
        yield each


@pytest.fixture(scope="module")
def collector() -> Iterator[str]:
    """The endpoint of an OTLP receiver that speaks gRPC."""

    class Service(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> Any:  # noqa: N802 - the service calls it so
            return metrics_service_pb2.ExportMetricsServiceResponse()

    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Service(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        yield f"http://127.0.0.1:{port}"
        server.stop(None).wait()


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    """A web server that knows nothing of OTLP."""

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
def nobody() -> Iterator[str]:
    """An endpoint where nobody listens, nor can while the test lasts."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{probe.getsockname()[1]}"


def examined(env: dict[str, str], *arguments: str) -> tuple[int, list[Finding]]:
    """Exit status and findings of the command under an environment."""
    answer = run(["otel-hardware", "doctor", "--json", *(arguments or QUICK)], env)
    assert answer.stderr == ""
    said = json.loads(answer.stdout)
    findings = [Finding(**finding) for finding in said["findings"]]
    assert said["wrong"] == sum(finding.state == "wrong" for finding in findings)
    return answer.returncode, findings


def wrong(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.state == "wrong"]


def subject(findings: list[Finding], name: str) -> Finding:
    (found,) = [finding for finding in findings if finding.subject == name]
    return found


def test_where_all_is_well_the_status_is_0(sink: Sink) -> None:
    status, findings = examined(sink.environment(), "--sources", "host,process,filesystem")
    assert (status, wrong(findings)) == (0, [])
    assert subject(findings, "request").state == "ok"
    host = subject(findings, "host")
    assert (host.part, host.state) == ("sources", "ok")
    assert f"{os.sysconf('SC_NPROCESSORS_ONLN')} logical CPUs" in host.text
    assert "mount" in subject(findings, "filesystem").text
    assert subject(findings, "container").text == "switched off by SOURCES"


def test_grpc_is_asked_in_grpc(collector: str) -> None:
    status, findings = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": collector})
    assert (status, wrong(findings)) == (0, [])
    assert subject(findings, "request").state == "ok"


def test_an_endpoint_where_nobody_answers(nobody: str) -> None:
    status, findings = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": nobody})
    assert status == 1
    (found,) = wrong(findings)
    assert found.subject == "connection"
    assert "connection refused" in found.text
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in found.fix


def test_an_endpoint_that_is_no_otlp_receiver(stranger: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": stranger, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "NO_PROXY": "*"}
    status, findings = examined(env)
    assert status == 1
    (found,) = wrong(findings)
    assert found.subject == "request"
    assert "404" in found.text
    assert "/v1/metrics" in found.fix


def test_grpc_spoken_to_a_web_server(stranger: str) -> None:
    status, findings = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": stranger, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert status == 1
    assert [finding.subject for finding in wrong(findings)] == ["request"]


@pytest.mark.parametrize(
    ("env", "part", "name", "word"),
    [
        ({"OTEL_METRICS_EXPORTER": "none"}, "otlp", "exporter", "OTEL_METRICS_EXPORTER=none"),
        ({"OTEL_METRICS_EXPORTER": "abacus"}, "otlp", "exporter", "abacus"),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_METRICS_EXPORTER": "console"}, "otlp", "SDK", "OTEL_SDK_DISABLED"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "carrier/pigeon"}, "otlp", "protocol", "carrier/pigeon"),
        ({"OTEL_CONFIG_FILE": "/no/such/file.yaml"}, "otlp", "configuration", "/no/such/file.yaml"),
        (
            {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "flask, hardware", "OTEL_METRICS_EXPORTER": "console"},
            "zero code",
            "entry point",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS",
        ),
    ],
)
def test_a_variable_that_loses_all_numbers_is_named(env: dict[str, str], part: str, name: str, word: str) -> None:
    status, findings = examined(env)
    assert status == 1
    (found,) = wrong(findings)
    assert (found.part, found.subject) == (part, name)
    assert word in found.text
    assert found.fix


@pytest.mark.parametrize(
    ("env", "name", "word"),
    [
        ({}, "host.name", "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS=host,process"),
        ({}, "duplicates", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=system_metrics"),
        ({"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "fast"}, "sample_interval", "seconds"),
        ({"OTEL_PYTHON_HARDWARE_SAMPEL_INTERVAL": "1"}, "warning", "OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL"),
        ({JOB: key(os.getpid())}, "job", JOB),
    ],
)
def test_what_is_good_to_know_is_no_fault(env: dict[str, str], name: str, word: str) -> None:
    status, findings = examined(env | {"OTEL_METRICS_EXPORTER": "console"})
    assert status == 0
    (found,) = [finding for finding in findings if finding.subject == name and finding.state == "note"]
    assert word in found.text + found.fix


def test_the_settings_are_shown_with_their_origin() -> None:
    env = {"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "0.5", "OTEL_METRICS_EXPORTER": "console"}
    _, findings = examined(env, *QUICK, "--detail", "cpu")
    assert subject(findings, "sample_interval").text == "0.5 (from OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL)"
    assert subject(findings, "detail").text == "cpu (from the command line)"
    assert subject(findings, "disk_paths").text == "auto (default)"


def test_a_path_that_cannot_be_read_is_said() -> None:
    env = {"OTEL_PYTHON_HARDWARE_DISK_PATHS": "/,/no/such/path", "OTEL_METRICS_EXPORTER": "console"}
    status, findings = examined(env, "--sources", "filesystem")
    assert status == 0
    assert subject(findings, "/no/such/path").text == "No such file or directory"


def test_gpus_are_said_by_their_models_and_what_they_lack_by_its_reason(tmp_path: Path) -> None:
    fake = nvml.FakeNvml(tmp_path, nvml.h100(0), nvml.h100(1), nvml.geforce(2))
    env = fake.environment | {"OTEL_METRICS_EXPORTER": "console"}
    status, findings = examined(env, "--sources", "nvidia")
    assert status == 0
    (source, *_), lacking = [each for each in findings if each.subject == "nvidia"], subject(findings, "GPU 2")
    assert "2 x NVIDIA H100 80GB HBM3; NVIDIA GeForce RTX 4090; driver 570.86.15" in source.text
    assert lacking.text.startswith("Not Supported: hw.gpu.utilization (sm, tensor")
    answer = run(["otel-hardware", "doctor", "--sources", "nvidia"], env | {"COLUMNS": "80"})
    lines = answer.stdout.partition("\nsettings")[0].splitlines()
    assert max(map(len, lines[1:])) <= 80
    assert any(line.startswith("  note   GPU 2            Not Supported: hw.gpu") for line in lines)


@pytest.mark.parametrize(
    ("sentence", "subject", "text"),
    [
        ("hw.energy: no zone", "hw.energy", "no zone"),
        ("hw.errors (xid) of GPU 1: not told", "hw.errors (xid) of GPU 1", "not told"),
        ("hw.gpu.io (a, b), hw.power of GPU 1: no", "GPU 1", "no: hw.gpu.io (a, b), hw.power"),
        ("hw.gpu.io (a, b), hw.temperature: no", "", "no: hw.gpu.io (a, b), hw.temperature"),
        (f"hw.power of {'GPU 1, ' * 9}GPU 9: no", "", f"{'GPU 1, ' * 9}GPU 9: no: hw.power"),
        ("GPU-00002330-0000-4000 does not answer: lost", "", "GPU-00002330-0000-4000 does not answer: lost"),
        ("nvidia-smi is asked instead", "", "nvidia-smi is asked instead"),
    ],
)
def test_a_long_list_of_what_is_missing_stands_behind_its_reason(sentence: str, subject: str, text: str) -> None:
    assert told(sentence, 24) == (subject, text)


def test_without_a_distro_zero_code_is_said_to_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "entry_points", lambda **chosen: [])
    findings = list(delivery.zero_code({}))
    assert "pip install opentelemetry-distro" in subject(findings, "distro").fix
    assert subject(findings, "entry point").state == "wrong"


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_the_report_reads_well(columns: int) -> None:
    answer = run(["otel-hardware", "doctor", *QUICK], {"OTEL_METRICS_EXPORTER": "console", "COLUMNS": str(columns)})
    assert answer.returncode == 0
    lines = answer.stdout.splitlines()
    assert lines[-1] == "All is well."
    headings = [line for line in lines if line in ("sources", "settings", "zero code", "otlp")]
    assert headings == ["sources", "settings", "zero code", "otlp"]
    long = [
        line for line in lines if len(line) > columns and not any(len(word) > columns - 26 for word in line.split())
    ]
    assert long == lines[:1] * (len(lines[0]) > columns)


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
def test_the_endpoint_is_the_one_that_the_sdk_takes(env: dict[str, str], expected: Destination | None) -> None:
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
def test_an_endpoint_has_an_address(url: str, address: tuple[str, int] | None) -> None:
    assert Destination("otlp", "grpc", url, ENDPOINT).address == address


def test_an_endpoint_that_is_no_address_is_said() -> None:
    status, findings = examined({ENDPOINT: "http://collector:port"})
    assert status == 1
    assert "no address" in wrong(findings)[0].text


def test_what_goes_through_a_proxy_is_left_to_the_exporter(monkeypatch: pytest.MonkeyPatch, nobody: str) -> None:
    where = Destination("otlp", "http/protobuf", nobody, ENDPOINT)
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert silence(where) == "connection refused"
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert silence(where) == ""


@pytest.mark.parametrize(
    ("url", "protocol", "right"),
    [
        ("http://c.example:4318", "grpc", "http/protobuf"),
        ("http://c.example:4317/v1/metrics", "http/protobuf", "grpc"),
        ("http://c.example:4317", "grpc", ""),
        ("https://c.example", "grpc", ""),
    ],
)
def test_a_protocol_at_the_others_port_is_noticed(url: str, protocol: str, right: str) -> None:
    said = Destination("otlp", protocol, url, "OTEL_EXPORTER_OTLP_ENDPOINT").mismatch
    assert bool(said) == bool(right)
    assert f"OTEL_EXPORTER_OTLP_PROTOCOL={right}" in said or not right
