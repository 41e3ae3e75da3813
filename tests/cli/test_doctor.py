"""`otel-hardware doctor`: what is wrong is named with what to do about it. Reports are in `cli/doctor.txt`."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from opentelemetry.sdk import environment_variables
from tests.support.children import run
from tests.support.commands import otel_hardware, simulated
from tests.support.members import members
from tests.support.receivers import Answers, grpc_receiver, http_receiver
from tests.support.sink import Sink
from tests.tools import nvml

from opentelemetry.instrumentation.hardware.cli import delivery, doctor
from opentelemetry.instrumentation.hardware.cli.exporters import Destination, connection_failure, destination
from opentelemetry.instrumentation.hardware.cli.failures import Failure
from opentelemetry.instrumentation.hardware.cli.findings import Finding
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
QUICK = ["--sources", "process"]
READS_FILE = pytest.mark.skipif(
    not hasattr(environment_variables, "OTEL_CONFIG_FILE"), reason="this SDK ignores OTEL_CONFIG_FILE"
)


@pytest.fixture(scope="module")
def web_server() -> Iterator[str]:
    """A web server that returns 404 for OTLP."""
    with http_receiver(Answers(404, body=b"<p>Not found</p>")) as url:
        yield url


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


def problem(env: dict[str, str], *arguments: str) -> Finding:
    """The only problem that the command finds, for which its exit status is 1."""
    status, findings = examined(env, *arguments)
    (found,) = wrong(findings)
    assert status == 1
    return found


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


def test_grpc_endpoint_gets_an_empty_request() -> None:
    with grpc_receiver(Answers()) as url:
        status, findings = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": url})
    assert (status, wrong(findings)) == (0, [])
    assert subject(findings, "request").state == "ok"


def test_empty_endpoint_counts_as_unset() -> None:
    _, findings = examined({"OTEL_EXPORTER_OTLP_ENDPOINT": " ", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ""})
    assert "http://localhost:4317, grpc (default)" in subject(findings, "endpoint").text
    assert [each.text.split()[0] for each in findings if each.subject == "variable"] == [
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
    ]


def test_refused_connection_is_wrong(refusing: str) -> None:
    found = problem({"OTEL_EXPORTER_OTLP_ENDPOINT": refusing})
    assert (found.subject, found.text) == ("connection", f"cannot connect to {refusing}: connection refused")
    assert found.fix == "start a Collector there, or set OTEL_EXPORTER_OTLP_ENDPOINT"


def test_http_404_of_endpoint_is_wrong(web_server: str) -> None:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": web_server, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "NO_PROXY": "*"}
    found = problem(env)
    assert found.subject == "request"
    assert "404" in found.text
    assert "/v1/metrics" in found.fix


def test_grpc_request_to_a_web_server_is_wrong(web_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_TIMEOUT", 0.2)  # for which the exporter tries again
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": web_server, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
    assert problem(env).subject == "request"


def test_timeout_that_is_no_number_is_wrong_for_grpc() -> None:
    """The exporter for HTTP takes its default."""
    with grpc_receiver(Answers()) as url:
        found = problem({"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "abc"})
    assert found.subject == "request"
    assert "OTEL_EXPORTER_OTLP_TIMEOUT=abc" in found.text


def test_endpoint_without_a_scheme_is_wrong(sink: Sink) -> None:
    found = problem(sink.environment() | {"OTEL_EXPORTER_OTLP_ENDPOINT": f"localhost:{sink.port}"})
    assert found.subject == "request"
    assert found.text == "test export failed: the endpoint begins with neither http:// nor https://"


PROTOCOLS = "set OTEL_EXPORTER_OTLP_PROTOCOL to grpc or http/protobuf"


@pytest.mark.parametrize(
    ("env", "found"),
    [
        (
            {"OTEL_METRICS_EXPORTER": "abacus"},
            ("exporter", "no installed package provides the metrics exporter abacus", "set OTEL_METRICS_EXPORTER=otlp"),
        ),
        (
            {"OTEL_METRICS_EXPORTER": "prometeus"},
            ("exporter", "no installed package provides the metrics exporter prometeus", "did you mean prometheus?"),
        ),
        (
            {"OTEL_SDK_DISABLED": "true", "OTEL_METRICS_EXPORTER": "console"},
            ("SDK", "OTEL_SDK_DISABLED=true turns the SDK off", "unset it"),
        ),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "httpx"},
            ("protocol", "httpx is not a protocol of the Python SDK", PROTOCOLS),
        ),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuff"},
            ("protocol", "http/protobuff is not a protocol of the Python SDK", "did you mean http/protobuf?"),
        ),
        pytest.param(
            {"OTEL_CONFIG_FILE": "/no/such/file.yaml"},
            ("configuration", "OTEL_CONFIG_FILE=/no/such/file.yaml is not a file", "correct or unset it"),
            marks=READS_FILE,
        ),
        (
            {"OTEL_EXPERIMENTAL_CONFIG_FILE": "/etc/otel.yaml", "OTEL_METRICS_EXPORTER": "console"},
            ("configuration", "OTEL_EXPERIMENTAL_CONFIG_FILE is not read in Python", "set OTEL_CONFIG_FILE"),
        ),
        (
            {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "flask, hardware", "OTEL_METRICS_EXPORTER": "console"},
            (
                "entry point",
                "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS=flask, hardware turns this package off",
                "remove hardware from it",
            ),
        ),
    ],
)
def test_variable_that_disables_export_is_wrong(env: dict[str, str], found: tuple[str, str, str]) -> None:
    each = problem(env)
    assert (each.subject, each.text, each.fix) == found


def test_configuration_file_that_the_sdk_ignores_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "otel.yaml"
    file.touch()
    monkeypatch.delattr(environment_variables, "OTEL_CONFIG_FILE", raising=False)  # as before 1.43
    status, findings = examined({"OTEL_CONFIG_FILE": str(file), "OTEL_METRICS_EXPORTER": "console"})
    (found,) = wrong(findings)
    assert (status, found.subject) == (1, "configuration")
    assert found.text.endswith("ignores OTEL_CONFIG_FILE")
    assert "file-configuration" in found.fix
    assert subject(findings, "exporter").text.startswith("console")  # the variables count


def test_package_that_a_configuration_file_requires_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "otel.yaml"
    file.touch()
    monkeypatch.setattr(environment_variables, "OTEL_CONFIG_FILE", "OTEL_CONFIG_FILE", raising=False)
    monkeypatch.setattr(delivery, "requires", lambda name: ["no-such-package==1; extra == 'file-configuration'"])
    text = "OTEL_CONFIG_FILE requires no-such-package, which is not installed"
    assert problem({"OTEL_CONFIG_FILE": str(file)}).text == text


@pytest.mark.parametrize(
    ("env", "name", "word"),
    [
        ({"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "fast"}, "sample_interval", "seconds"),
        ({"OTEL_PYTHON_HARDWARE_SAMPEL_INTERVAL": "1"}, "warning", "OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL"),
    ],
)
def test_note_about_variable_keeps_exit_status_0(env: dict[str, str], name: str, word: str) -> None:
    status, findings = examined(env | {"OTEL_METRICS_EXPORTER": "console"})
    assert status == 0
    (found,) = [finding for finding in findings if finding.subject == name and finding.state == "note"]
    assert word in found.text + found.fix


def test_ignored_settings_are_listed_with_the_others() -> None:
    env = {"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "fast", "OTEL_PYTHON_HARDWARE_SAMPEL": "1", "COLUMNS": "200"}
    answer = otel_hardware("doctor", "--sources", "host", "--detail", "cpu", env=env)
    _, _, after = answer.out.partition("\nsettings\n")
    listed = after.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == ["sources", "detail", "sample_interval", "warning"]
    assert "OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL: " in listed[2]
    assert "OTEL_PYTHON_HARDWARE_SAMPEL is not a setting and is ignored" in listed[3]
    assert answer.out.count("OTEL_PYTHON_HARDWARE_SAMPEL ") == 1


def test_setting_with_the_word_of_its_default_has_its_default() -> None:
    env = {"OTEL_PYTHON_HARDWARE_INTERFACES": "auto", "OTEL_METRICS_EXPORTER": "console"}
    _, findings = examined(env, *QUICK)
    (found,) = [finding for finding in findings if finding.subject == "interfaces"]
    assert (found.state, found.text) == ("default", "auto")


@pytest.mark.parametrize(("flags", "given"), [((), "OTEL_PYTHON_HARDWARE_NVML"), (("--nvml", "/no/flag"), "--nvml")])
def test_path_that_does_not_exist_is_a_problem(flags: tuple[str, ...], given: str) -> None:
    env = {"OTEL_PYTHON_HARDWARE_NVML": "/no/variable", "OTEL_PYTHON_HARDWARE_DISK_PATHS": "/,/tmp"}
    found = problem(env | {"OTEL_METRICS_EXPORTER": "console"}, *QUICK, *flags)
    assert (found.subject, found.fix) == ("nvml", f"correct or unset {given}")


@pytest.mark.parametrize("disabled", ["system_metrics", "flask, system_metrics", "*"])
def test_disabled_system_metrics_gives_no_note_about_duplicates(disabled: str) -> None:
    subjects = {finding.subject for finding in delivery.zero_code({"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": disabled})}
    assert "entry point" in subjects
    assert "duplicates" not in subjects


@pytest.mark.parametrize("detectors", ["host", "process, host", "hardware_job", "*"])
def test_resource_detectors_with_the_host_give_host_name(detectors: str) -> None:
    findings = delivery.zero_code({"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": detectors})
    assert [finding.state for finding in findings if finding.subject == "host.name"] == ["ok"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_limit_that_leaves_too_little_memory_is_wrong() -> None:
    line = ["sh", "-c", "ulimit -v 600000; otel-hardware doctor --format json --sources process"]
    answer = run(line, {"OTEL_METRICS_EXPORTER": "console"})
    (found,) = wrong([Finding(**finding) for finding in json.loads(answer.stdout)["findings"]])
    assert (answer.returncode, found.subject) == (1, "limit")
    assert found.text == "RLIMIT_AS leaves less than 700 MiB of memory, so nothing is reported"


def test_note_about_job_names_reporter_and_setting(job: dict[str, str]) -> None:
    job["OTEL_METRICS_EXPORTER"] = "console"
    with members(job) as (reporter,):
        assert "job" not in {finding.subject for finding in examined(job)[1]}
        assert reporter.update()
        status, findings = examined(job)
    note = subject(findings, "job")
    assert (status, note.state) == (0, "note")
    assert f"process {reporter.pid} " in note.text
    assert "OTEL_PYTHON_HARDWARE_REPORTER" in note.fix


def test_source_that_hangs_while_it_opens_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    released = Event()
    monkeypatch.setattr(Nvidia, "is_present", lambda self: released.wait())
    monkeypatch.setattr(doctor, "_TIMEOUT", 0.5)
    try:
        answer = otel_hardware("doctor", "--sources", "nvidia")
    finally:
        released.set()
    assert answer.status == 1
    assert re.search(r"nvidia +no reading within 0\.5 s: the driver or file system hangs", answer.out)


def test_doctor_reports_gpu_models_and_why_metrics_are_missing(tmp_path: Path) -> None:
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
    assert any(line.startswith("  nvidia           hw.gpu.utilization (sm") for line in lines[lines.index("notes") :])


# -- exporters: in a child interpreter, without some of the installed packages


def _mirrored(source: Path, target: Path, without: Sequence[str]) -> None:
    """Fill a folder with links to what another one contains, except some paths in it (patterns)."""
    target.mkdir()
    for each in source.iterdir():
        below = [pattern.partition("/")[2] for pattern in without if fnmatchcase(each.name, pattern.partition("/")[0])]
        if "" in below:
            continue
        if below:
            _mirrored(each, target / each.name, below)
        else:
            (target / each.name).symlink_to(each)


def doctor_without(tmp_path: Path, without: Sequence[str], env: dict[str, str], command: str = "doctor") -> Any:
    """Run the command where some installed packages are missing."""
    packages, sources = Path(grpc.__file__).parents[1], Path(delivery.__file__).parents[4]
    target = tmp_path / "packages"
    _mirrored(packages, target, without)
    path = [str(target), *([] if sources == packages else [str(sources)])]
    line = [sys.executable, "-S", "-m", "opentelemetry.instrumentation.hardware", command, *QUICK]
    return run(line, {"PYTHONPATH": os.pathsep.join(path), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"} | env)


OTLP = "opentelemetry/exporter/otlp/proto"
GRPC = (f"{OTLP}/grpc", "opentelemetry_exporter_otlp_proto_grpc-*", "opentelemetry_exporter_otlp-*")
HTTP = (f"{OTLP}/http", "opentelemetry_exporter_otlp_proto_http-*", "opentelemetry_exporter_otlp-*")
PROMETHEUS = ("opentelemetry/exporter/prometheus", "opentelemetry_exporter_prometheus-*")


@pytest.mark.parametrize(
    ("without", "env", "text", "fix"),
    [
        (
            GRPC,
            {},
            "the exporter otlp_proto_grpc is not installed",
            "pip install opentelemetry-exporter-otlp-proto-grpc, or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, "
            "which is installed",
        ),
        (
            (*GRPC, *HTTP),
            {},
            "the exporter otlp_proto_grpc is not installed",
            "pip install opentelemetry-exporter-otlp-proto-grpc",
        ),
        (
            HTTP,
            {"OTEL_METRICS_EXPORTER": "otlp_proto_http"},
            "the exporter otlp_proto_http is not installed",
            "pip install opentelemetry-exporter-otlp-proto-http, or set OTEL_EXPORTER_OTLP_PROTOCOL=grpc, "
            "which is installed",
        ),
        (
            PROMETHEUS,
            {"OTEL_METRICS_EXPORTER": "prometheus"},
            "the exporter prometheus is not installed",
            "pip install opentelemetry-exporter-prometheus",
        ),
        (
            ("grpc",),
            {},
            "the exporter otlp_proto_grpc is installed, but cannot be loaded: ModuleNotFoundError: No module named "
            "'grpc'",
            "pip install --force-reinstall opentelemetry-exporter-otlp-proto-grpc",
        ),
        (
            (f"{OTLP}/http",),
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"},
            "the exporter otlp_proto_http is installed, but cannot be loaded: ModuleNotFoundError: No module named "
            "'opentelemetry.exporter.otlp.proto.http'",
            "pip install --force-reinstall opentelemetry-exporter-otlp-proto-http",
        ),
    ],
    ids=["no grpc", "no otlp", "no http", "no prometheus", "broken grpc", "broken http"],
)
def test_missing_and_broken_exporters_are_told_apart(
    tmp_path: Path, without: Sequence[str], env: dict[str, str], text: str, fix: str
) -> None:
    answer = doctor_without(tmp_path, without, env)
    assert (answer.returncode, answer.stderr) == (1, "")
    verdict = answer.stdout.splitlines()[1]
    assert verdict == "1 problem found:"
    problem = " ".join(answer.stdout.partition("\n\n")[0].partition(verdict)[2].split())
    assert problem == f"exporter {text} → {fix}"


def test_run_names_the_package_of_a_missing_exporter(tmp_path: Path) -> None:
    answer = doctor_without(tmp_path, (*GRPC, *HTTP), {}, "run")
    assert answer.returncode == 2
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("otel-hardware: the exporter otlp_proto_grpc is not installed; pip install ")


@pytest.mark.parametrize("value", ["5s", "0", "-1", "nan", "inf"])
def test_interval_that_the_sdk_cannot_use_is_wrong(value: str) -> None:
    env = {"OTEL_METRICS_EXPORTER": "console", "OTEL_METRIC_EXPORT_INTERVAL": value}
    found = problem(env)
    assert found.subject == "interval"
    assert f"={value} is not a positive number of milliseconds" in found.text


def test_prometheus_has_no_export_interval() -> None:
    status, findings = examined({"OTEL_METRICS_EXPORTER": "prometheus"})
    (found,) = [finding for finding in findings if finding.subject == "exporter"]
    assert (status, found.text) == (0, "prometheus (OTEL_METRICS_EXPORTER), at each scrape")


def test_port_of_prometheus_in_use_is_wrong() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        env = {"OTEL_METRICS_EXPORTER": "prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": str(port)}
        found = problem(env)
    assert (found.subject, found.text) == ("prometheus", f"localhost:{port} is in use")
    assert "OTEL_EXPORTER_PROMETHEUS_PORT" in found.fix
    status, findings = examined(env)
    assert (status, subject(findings, "prometheus").state) == (0, "ok")


@pytest.mark.parametrize("setting", [{"PORT": "web"}, {"PORT": "99999"}, {"HOST": "192.0.2.1"}])
def test_address_that_prometheus_cannot_listen_on_is_wrong(setting: dict[str, str]) -> None:
    settings = {f"OTEL_EXPORTER_PROMETHEUS_{name}": value for name, value in setting.items()}
    found = problem({"OTEL_METRICS_EXPORTER": "prometheus", **settings})
    assert found.subject == "prometheus"
    assert found.text.startswith("cannot listen on ")


def test_headers_without_name_are_wrong(sink: Sink) -> None:
    status, findings = examined(sink.environment() | {"OTEL_EXPORTER_OTLP_HEADERS": "secret-token"})
    (found,) = wrong(findings)
    assert (status, found.subject) == (1, "headers")
    assert "secret" not in str(findings)


# -- the report for people, and comparison


def test_absent_sources_are_one_line_or_with_all_one_each() -> None:
    env = {"OTEL_METRICS_EXPORTER": "console"}
    with simulated():
        short = otel_hardware("doctor", env=env).out
        full = otel_hardware("doctor", "--all", env=env).out
    (line,) = re.findall(r"^  absent +(.*(?:\n {19}.*)*)$", short, re.MULTILINE)
    assert {"amd", "tpu", "trainium", "graphcore", "apple"} <= {*re.findall(r"\w+", line)}
    assert line.endswith("(--all shows why)")
    assert re.search(r"^  apple            \w+ \w+", full, re.MULTILINE)
    assert "\n  absent" not in full


def test_number_of_series_is_the_same_in_each_run() -> None:
    """A utilization needs two readings."""
    line = ["otel-hardware", "doctor", "--format", "json", "--sources", "host"]
    series = json.loads(run(line, {"OTEL_METRICS_EXPORTER": "console"}).stdout)["series"]
    assert series["host"]["system.cpu.utilization"] >= 4


def compared(tmp_path: Path, report: object) -> tuple[int, list[Finding]]:
    before = tmp_path / "before.json"
    before.write_text(json.dumps(report))
    status, findings = examined({"OTEL_METRICS_EXPORTER": "console"}, *QUICK, "--compare", str(before))
    return status, [finding for finding in findings if finding.part == "compare"]


def test_comparison_names_missing_metrics_and_fewer_series(tmp_path: Path) -> None:
    with simulated():
        now = otel_hardware("doctor", "--format", "json", *QUICK, env={"OTEL_METRICS_EXPORTER": "console"}).out
    report = json.loads(now)
    assert compared(tmp_path, report) == (
        0,
        [Finding("compare", "ok", "comparison", "all metrics of the earlier report are there")],
    )
    report["series"]["process"] |= {"process.gone": 1, "process.cpu.time": 9}
    report["series"]["nvidia"] = {"hw.gpu.utilization": 8, "hw.power": 8}
    status, findings = compared(tmp_path, report)
    assert status == 1
    assert findings == [
        Finding("compare", "wrong", "process", "reported before, and not now: process.gone"),
        Finding("compare", "note", "process", "fewer series than before: process.cpu.time (2 of 9)"),
        Finding(
            "compare", "wrong", "nvidia", "the source was available before, with 2 metrics", "see its reason: --all"
        ),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"series": 1}', '{"series": {"host": []}}', '{"series": {"a": {"b": "c"}}}'),
        '{"series": {"a": {"b": Infinity}}}',
    ],
)
def test_file_that_is_no_report_is_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "report.json"
    file.write_text(text)
    answer = otel_hardware("doctor", "--compare", str(file))
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == f"otel-hardware: --compare: {file} is not the output of 'otel-hardware doctor --format json'\n"
    file.unlink()
    answer = otel_hardware("doctor", "--compare", str(file))
    assert answer.err == f"otel-hardware: --compare: cannot read {file}: no such file or directory\n"


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
    assert "not a valid address" in problem({ENDPOINT: "http://collector:port"}).text


def test_proxied_endpoint_is_not_connected_to(monkeypatch: pytest.MonkeyPatch, refusing: str) -> None:
    where = Destination("otlp", "http/protobuf", refusing, ENDPOINT)
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert connection_failure(where) == Failure("connection refused", is_unreachable=True)
    monkeypatch.setenv("http_proxy", "http://proxy.example:3128")
    assert connection_failure(where) is None


@pytest.mark.parametrize(
    ("variable", "direct", "used"),
    [
        ("grpc_proxy", "", True),
        ("https_proxy", "", True),  # also for http://
        ("http_proxy", "ocalhost", True),
        ("HTTP_PROXY", "", False),
        ("http_proxy", "x.example, localhost", False),
    ],
)
def test_proxy_that_grpc_uses_is_named_beside_a_collector_that_runs(
    variable: str, direct: str, used: bool, refusing: str
) -> None:
    with grpc_receiver(Answers()) as url:
        named = url.replace("127.0.0.1", "localhost")
        status, findings = examined({ENDPOINT: named, variable: refusing, "no_proxy": direct})
    assert subject(findings, "connection").text == (
        f"not tested, because the exporter uses the proxy in {variable}" if used else "connected"
    )
    assert [each.text.partition(",")[0] for each in wrong(findings)] == (
        [f"test export failed: no connection to the proxy in {variable}"] if used else []
    )
    assert status == int(used)


def test_only_the_findings_tell_of_a_handshake_that_fails() -> None:
    with grpc_receiver(Answers()) as url:
        env = {ENDPOINT: url.replace("http:", "https:"), "NO_PROXY": "*"}
        done = run(["otel-hardware", "doctor", *QUICK], env)
    assert "the endpoint does not use TLS" in done.stdout
    assert done.stderr == ""


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
