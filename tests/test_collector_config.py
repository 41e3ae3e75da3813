"""The files in `collector-config/`, tested with a real Collector: it accepts them and does what their comments say."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import Tracer
from prometheus_client.parser import text_string_to_metric_families
from tests.support.children import PATIENCE, started
from tests.tools import otelcol, python_tools
from tests.tools.collector import LOCAL, TOKEN, Collector, Config, Point, secure_gateway
from tests.tools.daemon import Daemon, free_addresses, get, own, wait
from tests.tools.stores import PrometheusStore, VictoriaMetrics
from tests.tools.tls import Certificate

FOLDER = LOCAL.parent
AGENT, BALANCE, GATEWAY, KUBERNETES, HONEYCOMB, DATADOG, JAEGER, JOULES, STEPS, VICTORIAMETRICS, PROMETHEUS = (
    FOLDER / f"{name}.yaml"
    for name in (
        *("agent", "balance", "gateway", "kubernetes", "honeycomb", "datadog", "jaeger", "joules", "steps"),
        *("victoriametrics", "prometheus"),
    )
)
BACKENDS = (HONEYCOMB, DATADOG, JAEGER, JOULES, STEPS, VICTORIAMETRICS, PROMETHEUS)
KEYS = {
    "HONEYCOMB_API_KEY": "none",
    "DD_API_KEY": "none",
    "GATEWAY_TOKEN": "none",
    "GATEWAY_ENDPOINT": "127.0.0.1:4317",
    "GATEWAY_HOST": "localhost",
    "GATEWAY_CERT_FILE": "cert.pem",
    "GATEWAY_KEY_FILE": "key.pem",
}
MANIFEST = FOLDER / "builder.yaml"

TOGETHER = [
    [LOCAL],
    [AGENT],
    [AGENT, BALANCE],
    [GATEWAY],
    [GATEWAY, KUBERNETES],
    *([base, backend] for base in (LOCAL, GATEWAY) for backend in BACKENDS),
    [LOCAL, *BACKENDS],
    [GATEWAY, KUBERNETES, *BACKENDS],
]
"""The files that are started together."""


def configurations() -> set[Path]:
    """The files for a Collector, without the manifest and the rules for databases."""
    return {path for path in FOLDER.glob("*.yaml") if "service:" in path.read_text()}


@pytest.mark.parametrize("paths", TOGETHER, ids=lambda paths: "+".join(path.stem for path in paths))
def test_collector_accepts_the_shipped_configuration(paths: Sequence[Path]) -> None:
    command = [str(otelcol()), "validate", *(f"--config={path}" for path in paths)]
    outcome = subprocess.run(command, env=os.environ | KEYS, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_every_file_is_tested_and_says_which_collector_it_needs() -> None:
    assert configurations() == {path for paths in TOGETHER for path in paths}
    (built,) = re.findall(r"^  version: 0\.(\d+)\.0$", MANIFEST.read_text(), re.MULTILINE)
    for path in configurations():
        (least,) = re.findall(r"0\.(\d+)\s*(?:#\s)?or newer", path.read_text())
        assert int(least) <= int(built), path


def test_all_configurations_together_use_no_deprecated_name(tmp_path: Path) -> None:
    with Collector(tmp_path, LOCAL, *BACKENDS, environment=KEYS) as collector:
        # A component's former name still works, with a warning, until a later release drops it.
        assert "deprecated" not in collector.log.read_text()


@contextmanager
def program(collector: Collector) -> Iterator[tuple[MeterProvider, TracerProvider]]:
    """The providers of a program that uses the OpenTelemetry SDK. They are flushed at the end of the block."""
    resource = Resource({"service.name": "trial", "host.name": "desk"})
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(collector.grpc), export_interval_millis=3_600_000)
    meters = MeterProvider([reader], resource, shutdown_on_exit=False)
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(collector.grpc)))
    try:
        yield meters, tracers
    finally:
        meters.shutdown()
        tracers.shutdown()


def values(points: list[Point], name: str) -> list[int | float]:
    return [point.value for point in points if point.name == name]


def test_local_writes_console_files_and_prometheus_page(tmp_path: Path) -> None:
    with Collector(tmp_path) as collector:
        with program(collector) as (meters, tracers):
            meters.get_meter("trial").create_counter("trial.io", "By").add(7, {"direction": "read"})
            tracers.get_tracer("trial").start_span("step").end()
        points = collector.wait(lambda points: values(points, "trial.io") == [7])
        (point,) = [each for each in points if each.name == "trial.io"]
        assert (point.attributes, point.resource["host.name"]) == ({"direction": "read"}, "desk")
        wait(lambda: any("resourceSpans" in line for line in collector.lines()), PATIENCE, "a span in the file")
        series = 'trial_io_bytes_total{direction="read",host_name="desk"'
        wait(lambda: series in collector.exposition(), PATIENCE, collector.exposition)
        assert '"metrics": 1' in collector.log.read_text()


def test_local_writes_everything_before_it_ends(tmp_path: Path) -> None:
    graceful = 0
    while graceful < 3:  # stopped while batches are pending, in which case a file shared by the pipelines fails
        with Collector(tmp_path) as collector, program(collector) as (meters, tracers):
            meters.get_meter("trial").create_counter("trial.io", "By").add(7)
            tracers.get_tracer("trial").start_span("step").end()
        if collector.status:  # the Collector reports that it is ready before it handles SIGTERM, and was killed by it
            continue
        graceful += 1
        assert values(collector.metrics(), "trial.io") == [7]
        assert any("resourceSpans" in line for line in collector.lines())


def test_datadog_receives_deltas(tmp_path: Path) -> None:
    with Collector(tmp_path) as far:
        here = {"exporters": {"otlp_http/datadog": {"endpoint": far.http}}}
        with Collector(tmp_path, LOCAL, DATADOG, here, environment=KEYS) as near:
            with program(near) as (meters, _):
                counter = meters.get_meter("trial").create_counter("trial.io")
                level = meters.get_meter("trial").create_up_down_counter("trial.level")
                for amount in (5, 2):
                    counter.add(amount)
                    level.add(amount)
                    meters.force_flush()
            far.wait(lambda points: len(values(points, "trial.level")) == 3)
            near.wait(lambda points: len(values(points, "trial.level")) == 3)
            assert values(far.metrics(), "trial.level") == [5, 7, 7]
            assert [(each.temporality, each.value) for each in far.metrics() if each.name == "trial.io"] == [
                ("delta", 2),  # the first total counts from the start of the machine, so it is dropped
                ("delta", 0),
            ]
            assert values(near.metrics(), "trial.io") == [5, 7, 7]


def strict(folder: Path, trusted: Certificate, header: str = "Authorization", scheme: str = "Bearer") -> Collector:
    """A receiver of OTLP that refuses connections without TLS and requests without the token."""
    server = {
        "tls": {"cert_file": str(trusted.file), "key_file": str(trusted.key)},
        "auth": {"authenticator": "bearertokenauth"},
    }
    settings = {
        "extensions": {"bearertokenauth": {"token": TOKEN, "header": header, "scheme": scheme}},
        "receivers": {"otlp": {"protocols": {"grpc": server, "http": server}}},
        "service": {"extensions": ["health_check", "file_storage", "bearertokenauth"]},
    }
    return Collector(folder, LOCAL, settings)


class Hosted(NamedTuple):
    """What a backend's file needs, so that it sends to a strict receiver."""

    config: Path
    environment: Mapping[str, str]
    settings: Mapping[str, object]
    header: str = "Authorization"
    scheme: str = "Bearer"


def hosted(address: Collector, trusted: Certificate, token: str) -> dict[str, Hosted]:
    web, grpc = address.http.replace("http:", "https:"), address.grpc.removeprefix("http://")
    ca, trust = str(trusted.file), {"SSL_CERT_FILE": str(trusted.file)}
    victoria = {"VICTORIAMETRICS_URL": web, "VICTORIAMETRICS_TOKEN": token, "VICTORIAMETRICS_CA_FILE": ca}
    jaeger = {"JAEGER_ENDPOINT": grpc, "JAEGER_INSECURE": "false", "JAEGER_TOKEN": token, "JAEGER_CA_FILE": ca}
    datadog = {"exporters": {"otlp_http/datadog": {"endpoint": web}}}
    # The path at which VictoriaMetrics receives OTLP.
    path = {"exporters": {"otlp_http/victoriametrics": {"metrics_endpoint": f"{web}/v1/metrics"}}}
    return {
        "victoriametrics": Hosted(VICTORIAMETRICS, victoria, path),
        "jaeger": Hosted(JAEGER, jaeger, {}),
        "honeycomb": Hosted(
            HONEYCOMB, trust | {"HONEYCOMB_ENDPOINT": web, "HONEYCOMB_API_KEY": token}, {}, "x-honeycomb-team", ""
        ),
        "datadog": Hosted(DATADOG, trust | {"DD_API_KEY": token}, datadog, "dd-api-key", ""),
    }


@pytest.mark.parametrize("name", ["victoriametrics", "jaeger", "honeycomb", "datadog"])
def test_strict_receiver_takes_what_has_the_token(name: str, tmp_path: Path, trusted: Certificate) -> None:
    form = hosted(Collector(tmp_path), trusted, TOKEN)[name]
    with strict(tmp_path, trusted, form.header, form.scheme) as far:
        it = hosted(far, trusted, TOKEN)[name]
        with Collector(tmp_path, LOCAL, it.config, it.settings, environment=KEYS | dict(it.environment)) as near:
            with program(near) as (meters, tracers):
                meters.get_meter("trial").create_gauge("trial.level").set(7)
                tracers.get_tracer("trial").start_span("step").end()
            if name in ("jaeger", "honeycomb"):
                wait(far.spans, PATIENCE, near.log.read_text)
            if name != "jaeger":
                far.wait(lambda points: values(points, "trial.level") == [7])
            near.wait(lambda points: values(points, "trial.level") == [7])
            assert bool(values(far.metrics(), "trial.level")) == (name != "jaeger")


def test_strict_receiver_refuses_a_wrong_token(tmp_path: Path, trusted: Certificate) -> None:
    with strict(tmp_path, trusted) as far:
        it = hosted(far, trusted, "wrong")["victoriametrics"]
        with Collector(tmp_path, LOCAL, it.config, it.settings, environment=KEYS | dict(it.environment)) as near:
            with program(near) as (meters, _):
                meters.get_meter("trial").create_gauge("trial.level").set(7)
            wait(lambda: "401" in near.log.read_text(), PATIENCE, near.log.read_text)
            assert far.metrics() == []


class TestAgent(Daemon):
    """Datadog's own test agent, which receives OTLP as Datadog does."""

    __test__ = False

    def __init__(self, directory: Path) -> None:
        traces, http, grpc = free_addresses(3)
        self.http = f"http://{http}"
        ports = [f"--port={traces}", f"--otlp-http-port={http}", f"--otlp-grpc-port={grpc}"]
        options = [re.sub(r"=.*:", "=", each) for each in ports]
        program = "from ddapm_test_agent.agent import main; main()"
        super().__init__(
            [python_tools(), "-c", program, *options], f"{self.http}/test/session/metrics", own(directory, "datadog")
        )

    def names(self) -> set[str]:
        found = json.loads(get(f"{self.http}/test/session/metrics"))
        return {
            metric["name"]
            for request in found
            for resource in request["resource_metrics"]
            for scope in resource["scope_metrics"]
            for metric in scope["metrics"]
        }


def test_test_agent_of_datadog_takes_our_export(tmp_path: Path) -> None:
    with TestAgent(tmp_path) as far:
        here = {"exporters": {"otlp_http/datadog": {"endpoint": far.http}}}
        with Collector(tmp_path, LOCAL, DATADOG, here, environment=KEYS) as near:
            line = ["otel-hardware", "run", "--simulate", "1xH100", "--interval", "1"]
            with started(line, {"OTEL_EXPORTER_OTLP_ENDPOINT": near.grpc}):
                wait(lambda: far.names() >= {"hw.power", "hw.energy", "system.cpu.time"}, PATIENCE, near.log.read_text)


def test_victoria_metrics_stores_the_names_of_the_pages(tmp_path: Path) -> None:
    with (
        VictoriaMetrics(tmp_path) as store,
        Collector(tmp_path, LOCAL, VICTORIAMETRICS, environment={"VICTORIAMETRICS_URL": store.url}) as near,
        started(
            ["otel-hardware", "run", "--simulate", "1xH100", "--interval", "1"],
            {"OTEL_EXPORTER_OTLP_ENDPOINT": near.grpc, "OTEL_RESOURCE_ATTRIBUTES": "host.name=desk"},
        ),
    ):
        series = 'hw_power_watts{hw_type="gpu",host_name="desk"}'
        wait(lambda: store.query(series), PATIENCE, near.log.read_text)
        wait(lambda: store.query("hw_energy_joules_total"), PATIENCE, near.log.read_text)


def test_prometheus_stores_what_is_written_with_tls(tmp_path: Path, trusted: Certificate) -> None:
    web = tmp_path / "web.json"
    web.write_text(json.dumps({"tls_server_config": {"cert_file": str(trusted.file), "key_file": str(trusted.key)}}))
    with PrometheusStore(tmp_path) as plain:
        environment = {"PROMETHEUS_URL": plain.url}
        with Collector(tmp_path, LOCAL, PROMETHEUS, environment=environment) as near:
            with program(near) as (meters, _):
                meters.get_meter("trial").create_counter("trial.io", "By").add(7)
            wait(lambda: plain.query('trial_io_bytes_total{host_name="desk"}'), PATIENCE, near.log.read_text)
    with PrometheusStore(tmp_path, f"--web.config.file={web}", scheme="https") as secure:
        environment = {"PROMETHEUS_URL": secure.url, "PROMETHEUS_CA_FILE": str(trusted.file)}
        with Collector(tmp_path, LOCAL, PROMETHEUS, environment=environment) as near:
            with program(near) as (meters, _):
                meters.get_meter("trial").create_counter("trial.io", "By").add(7)
            wait(lambda: secure.query('trial_io_bytes_total{host_name="desk"}'), PATIENCE, near.log.read_text)


def test_remote_write_has_a_longer_timeout_than_its_queue() -> None:
    """Its own timeout is an error that the queue does not retry."""
    queue, remote_write = map(int, re.findall(r"^    timeout: (\d+)s", PROMETHEUS.read_text(), re.MULTILINE))
    assert queue < remote_write


def gateway(folder: Path, trusted: Certificate, *backends: Config, **environment: str) -> Collector:
    """A gateway that writes what it sends to a backend to files."""
    files = {
        "exporters": {
            f"file/{signal}": {"path": f"${{env:TELEMETRY_DIRECTORY}}/{signal}.jsonl", "flush_interval": "50ms"}
            for signal in ("metrics", "traces")
        },
        "service": {
            "pipelines": {
                f"{signal}/files": {"receivers": ["forward"], "exporters": [f"file/{signal}"]}
                for signal in ("metrics", "traces")
            }
        },
    }
    return secure_gateway(folder, trusted, *backends, files, **environment)


def agent(folder: Path, trusted: Certificate, far: Collector, *more: Config, **environment: str) -> Collector:
    """An agent that sends to a gateway."""
    keys = {
        "GATEWAY_ENDPOINT": far.grpc.replace("http://127.0.0.1", "localhost"),
        "GATEWAY_CA_FILE": str(trusted.file),
        "GATEWAY_TOKEN": TOKEN,
    }
    return Collector(folder, AGENT, *more, environment=keys | environment)


def test_agent_sends_all_signals_to_the_gateway(tmp_path: Path, trusted: Certificate) -> None:
    with gateway(tmp_path, trusted) as far, agent(tmp_path, trusted, far) as near:
        with program(near) as (meters, tracers):
            meters.get_meter("trial").create_gauge("trial.level").set(7)
            tracers.get_tracer("trial").start_span("step").end()
        points = far.wait(lambda points: values(points, "trial.level") == [7])
        wait(far.spans, PATIENCE, near.log.read_text)
        assert points[0].resource["host.name"] == "desk", "that of the program"
        for collector in (far, near):
            assert "deprecated" not in collector.log.read_text()


def test_gateway_refuses_an_agent_with_a_wrong_token(tmp_path: Path, trusted: Certificate) -> None:
    with gateway(tmp_path, trusted) as far, agent(tmp_path, trusted, far, GATEWAY_TOKEN="wrong") as near:
        with program(near) as (meters, _):
            meters.get_meter("trial").create_gauge("trial.level").set(7)
        wait(lambda: "Unauthenticated" in near.log.read_text(), PATIENCE, near.log.read_text)
        assert far.metrics() == []


def test_points_of_one_resource_reach_one_of_two_gateways(tmp_path: Path, trusted: Certificate) -> None:
    with gateway(tmp_path, trusted) as first, gateway(tmp_path, trusted) as second:
        # Both listen on one address here, so they are told apart by their ports.
        peers = [each.grpc.removeprefix("http://") for each in (first, second)]
        both = {"exporters": {"load_balancing": {"resolver": {"dns": None, "static": {"hostnames": peers}}}}}
        with agent(tmp_path, trusted, first, BALANCE, both, GATEWAY_HOST="localhost") as near:
            for number in range(16):
                resource = Resource({"service.name": "trial", "service.instance.id": f"instance {number}"})
                reader = PeriodicExportingMetricReader(OTLPMetricExporter(near.grpc), 3_600_000)
                provider = MeterProvider([reader], resource, shutdown_on_exit=False)
                for value in (1, 2):
                    provider.get_meter("trial").create_gauge("trial.level").set(value)
                    provider.force_flush()
                provider.shutdown()

            def last() -> set[Any]:
                points = [*first.metrics(), *second.metrics()]
                return {point.resource["service.instance.id"] for point in points if point.value == 2}

            wait(lambda: len(last()) == 16, PATIENCE, near.log.read_text)
        ids = [{point.resource["service.instance.id"] for point in each.metrics()} for each in (first, second)]
        assert ids[0]
        assert ids[1]
        assert not ids[0] & ids[1]


def test_balance_asks_a_name_for_the_gateways(tmp_path: Path, trusted: Certificate) -> None:
    with gateway(tmp_path, trusted) as far:
        port = far.grpc.rpartition(":")[2]
        # `localhost` may have an address of IPv6, at which nobody listens.
        here = {"exporters": {"load_balancing": {"resolver": {"dns": {"hostname": "127.0.0.1"}}}}}
        with agent(tmp_path, trusted, far, BALANCE, here, GATEWAY_HOST="localhost", GATEWAY_PORT=port) as near:
            with program(near) as (meters, _):
                meters.get_meter("trial").create_gauge("trial.level").set(7)
            far.wait(lambda points: values(points, "trial.level") == [7])


def test_gateway_bounds_what_becomes_a_label(tmp_path: Path, trusted: Certificate) -> None:
    attributes: dict[str, Any] = {
        "service.name": "trial",
        "service.instance.id": "one",
        "host.name": "desk",
        "process.pid": 7,
        "process.command_line": "python secret.py",
        "host.ip": ["10.0.0.1"],
        "slurm.job.id": "42",
        "rack": "r12",
        "team": "vision",
        "k8s.cluster.name": "c1",
        "cloud.region": "eu-1",
        "price": 2.5,
    }
    with gateway(tmp_path, trusted) as far, agent(tmp_path, trusted, far) as near:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter(near.grpc), 3_600_000)
        provider = MeterProvider([reader], Resource(attributes), shutdown_on_exit=False)
        meter = provider.get_meter("trial", "1.2.3")
        meter.create_gauge("trial.level").set(7, {"url.full": "/?user=7", "hw.id": "GPU-1"})
        provider.shutdown()
        points = far.wait(lambda points: values(points, "trial.level") == [7])
    assert points[0].attributes == {"hw.id": "GPU-1"}
    assert (points[0].scope, points[0].version) == ("trial", "")
    kept = {"service.name", "service.instance.id", "host.name", "host.id", "slurm.job.id"}
    kept |= {"rack", "team", "k8s.cluster.name", "cloud.region"}  # those of docs/fleet.md
    assert {*points[0].resource} - {"host.id"} == kept - {"host.id"}


def test_joules_are_added_up_by_attributes_of_the_spans(tmp_path: Path) -> None:
    with Collector(tmp_path, LOCAL, JOULES) as collector:
        for joules in (1.5, 0.25):  # two processes of one service
            with program(collector) as (_, tracers):
                tracer = tracers.get_tracer("trial")
                for route in ("/chat", "/embed", "/chat"):
                    span(tracer, "POST", {"http.route": route, "hw.share.energy": joules, "hw.energy": 9.0})
                span(tracer, "chat", {"gen_ai.request.model": "small", "hw.share.energy": 2 * joules})
                span(tracer, "step", {"hw.share.energy": 4 * joules, "train.step.number": 7})
                span(tracer, "short", {})
        expected = {
            ("POST", "/chat", ""): 3.5,
            ("POST", "/embed", ""): 1.75,
            ("chat", "", "small"): 3.5,
            ("step", "", ""): 7.0,
        }
        wait(lambda: sums(collector.exposition()) == expected, PATIENCE, collector.exposition)
        wait(lambda: len(collector.spans()) == 12, PATIENCE, "all spans in the file")
        assert not any("span.name" in each.attributes for each in collector.spans())


def span(tracer: Tracer, name: str, attributes: Mapping[str, str | float]) -> None:
    tracer.start_span(name, attributes=attributes).end()


def sums(page: str) -> dict[tuple[str, str, str], float]:
    """The joules of the service on a page for Prometheus, by name of the span, route and model."""
    samples = [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "otel_hardware_spans_energy_joules_total"
    ]
    assert {sample.labels["service_name"] for sample in samples} <= {"trial"}
    keys = ("span_name", "http_route", "gen_ai_request_model")
    found = {tuple(sample.labels.get(key, "") for key in keys): sample.value for sample in samples}
    assert len(found) == len(samples), page
    return {(name, route, model): value for (name, route, model), value in found.items()}
