"""Instruments of scraped metrics in the real SDK."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader, Metric, MetricsData, Sum
from opentelemetry.sdk.metrics.export import Gauge as GaugeData
from tests.sources.pages import ALL, OPENMETRICS
from tests.sources.reading import known, numbers
from tests.support import children
from tests.support.stage import warnings
from tests.support.waiting import wait_for
from tests.support.web import Web, page

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config

Reading = dict[tuple[str, str], Metric]


def collected(reader: InMemoryMetricReader) -> Reading:
    """The scraped metrics of one collection, by endpoint and name."""
    data = reader.get_metrics_data()
    assert isinstance(data, MetricsData)
    return {
        (scope.scope.name.rpartition(".openmetrics.")[2], metric.name): metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if ".openmetrics." in scope.scope.name
    }


@contextmanager
def instrumented(reader: InMemoryMetricReader, urls: Mapping[str, str], **options: Any) -> Iterator[Session]:
    """The instrumentor with these endpoints, after the first scrape of each."""
    provider = MeterProvider([reader], shutdown_on_exit=False)
    made = HardwareInstrumentor()
    made.instrument(meter_provider=provider, sources=["openmetrics"], openmetrics=dict(urls), **options)
    try:
        session = made._telemetry.session
        assert session is not None
        wait_for(lambda: all(runner.pace.duration is not None for runner in session.runners), 20, "first scrape")
        session.read_now(20)
        wait_for(lambda: known(made), 20, "instruments of all rows")
        yield session
    finally:
        made.uninstrument()
        provider.shutdown()


def test_metric_names_keep_case_colons_and_utf_8(caplog: pytest.LogCaptureFixture) -> None:
    text = (
        "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL 5\ndcgm_fi_dev_gpu_util 6\n"
        "vllm:x 1\nvllm_x 2\n_led 3\n" + "n" * 300 + " 4\n"
        '# TYPE "a b.ü" gauge\n{"a b.ü"} 7\n'
    )
    reader = InMemoryMetricReader()
    with Web(page(text)) as web, instrumented(reader, {"own": web.url}):
        metrics = {name: [point.value for point in numbers(metric)] for (_, name), metric in collected(reader).items()}
    assert metrics == {
        "DCGM_FI_DEV_GPU_UTIL": [5],
        "dcgm_fi_dev_gpu_util": [6],
        "vllm:x": [1],
        "vllm_x": [2],
        "_led": [3],
        "n" * 300: [4],
        "a b.ü": [7],
    }
    assert warnings(caplog) == []


def test_same_metric_name_on_two_endpoints_with_different_types(caplog: pytest.LogCaptureFixture) -> None:
    first = "# HELP x One.\n# TYPE x counter\nx 1\n"
    second = "# HELP x Two.\n# TYPE x gauge\nx 2\n"
    reader = InMemoryMetricReader()
    with Web(page(first)) as a, Web(page(second)) as b, instrumented(reader, {"a": a.url, "b": b.url}):
        metrics = collected(reader)
    assert {key: metric.description for key, metric in metrics.items()} == {("a", "x"): "One.", ("b", "x"): "Two."}
    assert isinstance(metrics["a", "x"].data, Sum)
    assert isinstance(metrics["b", "x"].data, GaugeData)
    values = {key: [point.value for point in numbers(metric)] for key, metric in metrics.items()}
    assert values == {("a", "x"): [1], ("b", "x"): [2]}
    assert warnings(caplog) == []


def test_new_metric_on_a_page_gets_an_instrument() -> None:
    reader = InMemoryMetricReader()
    with Web(page("a 1\n")) as web, instrumented(reader, {"own": web.url}) as session:
        assert [name for _, name in collected(reader)] == ["a"]
        web.answer = page("a 1\nb 2\n")
        session.read_now(20)
        assert sorted(name for _, name in collected(reader)) == ["a", "b"]


def test_scraped_instruments_are_kept_over_uninstrument() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    made = HardwareInstrumentor()
    with Web(page("# TYPE a counter\na 1\n")) as web:
        for value in (1, 3):
            web.answer = page(f"# TYPE a counter\na {value}\n")
            made.instrument(meter_provider=provider, sources=["openmetrics"], openmetrics={"own": web.url})
            assert made._telemetry.session is not None
            made._telemetry.session.read_now(20)
            ((_, metric),) = collected(reader).items()
            assert [point.value for point in numbers(metric)] == [value]
            made.uninstrument()
            assert reader.get_metrics_data() is None
    provider.shutdown()


def test_delta_counters_start_at_the_first_scrape_of_each_session() -> None:
    from opentelemetry.sdk.metrics import ObservableCounter

    reader = InMemoryMetricReader({ObservableCounter: AggregationTemporality.DELTA})
    provider = MeterProvider([reader], shutdown_on_exit=False)
    made = HardwareInstrumentor()
    exported = []
    with Web(page("")) as web:
        for values in ((100, 107), (108, 110)):
            web.answer = page(f"# TYPE a counter\na {values[0]}\n")
            made.instrument(
                meter_provider=provider, sources=["openmetrics"], openmetrics={"own": web.url}, counter_origin="start"
            )
            assert made._telemetry.session is not None
            for value in values:
                web.answer = page(f"# TYPE a counter\na {value}\n")
                made._telemetry.session.read_now(20)
                ((_, metric),) = collected(reader).items()
                exported += [point.value for point in numbers(metric)]
            made.uninstrument()
    provider.shutdown()
    assert exported == [0, 7, 0, 2]


@pytest.mark.whole
def test_late_meter_provider_gets_scraped_metric_names() -> None:
    code = """
import sys, time
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.instrumentation.hardware import HardwareInstrumentor
HardwareInstrumentor().instrument(sources=["openmetrics"], openmetrics={"own": sys.argv[1]})
session = HardwareInstrumentor()._telemetry.session
session.read_now(20)
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
session.read_now(20)
data = reader.get_metrics_data()
print([metric.name for scope in data.resource_metrics[0].scope_metrics for metric in scope.metrics])
"""
    with Web(page("DCGM_X 1\n")) as web:
        outcome = children.run([sys.executable, "-c", code, web.url])
    assert "'DCGM_X'" in outcome.stdout, outcome.stderr


def test_slow_endpoint_does_not_delay_others() -> None:
    going = threading.Event()

    def slow(request: BaseHTTPRequestHandler) -> None:
        going.wait(30)

    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    made = HardwareInstrumentor()
    with Web(slow) as stuck, Web(page("a 1\n")) as quick:
        made.instrument(
            meter_provider=provider, sources=["openmetrics"], openmetrics={"stuck": stuck.url, "quick": quick.url}
        )
        try:
            session = made._telemetry.session
            assert session is not None
            wait_for(lambda: stuck.requests, 20, "request to the slow one")
            runners = {runner.name: runner for runner in session.runners}
            wait_for(lambda: runners["openmetrics:quick"].pace.duration is not None, 20, "answer of the quick one")
            assert runners["openmetrics:stuck"].pace.duration is None
        finally:
            going.set()
            made.uninstrument()
            provider.shutdown()


def test_collection_does_not_scrape() -> None:
    reader = InMemoryMetricReader()
    with Web(page("a 1\n")) as web, instrumented(reader, {"own": web.url}):
        before = len(web.requests)
        for _ in range(10):
            collected(reader)
        assert len(web.requests) - before <= 1, "a reading may have come due meanwhile"


def test_description_of_an_instrument_is_that_of_the_page() -> None:
    reader = InMemoryMetricReader()
    with Web(page(ALL, OPENMETRICS)) as web, instrumented(reader, {"own": web.url}):
        metrics = collected(reader)
    assert metrics["own", "requests_total"].description == 'Requests that were "seen",\nall of them.'


def test_scrape_interval_follows_the_collection_interval() -> None:
    urls = {"own": {"url": "http://127.0.0.1:1/m", "interval": 300}, "often": "http://127.0.0.1:1/m"}
    config = Config.read({"sources": ["openmetrics"], "sample_interval": 0.05, "openmetrics": urls}, {})
    session = Session(config, interval=60.0)
    try:
        for runner in session.runners:
            runner.read()
            now = session.schedule._last
            wait = runner.next_reading(now) - now
            assert (50 < wait <= 60) if runner.name == "openmetrics:often" else (299 < wait < 310)
    finally:
        session.close()
