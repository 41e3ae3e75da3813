"""The files in `collector-config/`, tested with a real Collector: it accepts them and does what their comments say."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

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
from tests.support.children import PATIENCE
from tests.tools import need, otelcol
from tests.tools.collector import LOCAL, Collector, Point
from tests.tools.daemon import wait

SHIPPED = sorted(LOCAL.parent.glob("*.yaml"))
HONEYCOMB, DATADOG, JAEGER, JOULES = (
    LOCAL.with_name(f"{name}.yaml") for name in ("honeycomb", "datadog", "jaeger", "joules")
)
KEYS = {"HONEYCOMB_API_KEY": "none", "DD_API_KEY": "none"}


@pytest.mark.parametrize(
    "paths",
    [[path] for path in SHIPPED] + [[LOCAL, path] for path in SHIPPED if path != LOCAL],
    ids=lambda paths: "+".join(path.stem for path in paths),
)
def test_collector_accepts_the_shipped_configuration(paths: Sequence[Path]) -> None:
    command = [str(need(otelcol)), "validate", *(f"--config={path}" for path in paths)]
    outcome = subprocess.run(command, env=os.environ | KEYS, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr


def test_all_configurations_together_use_no_deprecated_name(tmp_path: Path) -> None:
    need(otelcol)
    with Collector(tmp_path, LOCAL, HONEYCOMB, DATADOG, JAEGER, JOULES, environment=KEYS) as collector:
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
    need(otelcol)
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
    need(otelcol)
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


def test_honeycomb_receives_metrics_and_traces(tmp_path: Path) -> None:
    need(otelcol)
    with Collector(tmp_path) as far:
        environment = KEYS | {"HONEYCOMB_ENDPOINT": far.http}
        with Collector(tmp_path, LOCAL, HONEYCOMB, environment=environment) as near:
            with program(near) as (meters, tracers):
                meters.get_meter("trial").create_counter("trial.io").add(7)
                tracers.get_tracer("trial").start_span("step").end()
            far.wait(lambda points: values(points, "trial.io") == [7])
            wait(lambda: any("resourceSpans" in line for line in far.lines()), PATIENCE, "a span at the far end")
            near.wait(lambda points: values(points, "trial.io") == [7])


def test_datadog_receives_deltas(tmp_path: Path) -> None:
    need(otelcol)
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


def test_jaeger_receives_traces_only(tmp_path: Path) -> None:
    need(otelcol)
    with Collector(tmp_path) as far:
        environment = {"JAEGER_ENDPOINT": far.grpc.removeprefix("http://")}
        with Collector(tmp_path, LOCAL, JAEGER, environment=environment) as near:
            with program(near) as (meters, tracers):
                meters.get_meter("trial").create_counter("trial.io").add(7)
                tracers.get_tracer("trial").start_span("step").end()
            wait(lambda: any("resourceSpans" in line for line in far.lines()), PATIENCE, "a span at the far end")
            assert values(far.metrics(), "trial.io") == []


def test_joules_are_added_up_by_attributes_of_the_spans(tmp_path: Path) -> None:
    need(otelcol)
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
