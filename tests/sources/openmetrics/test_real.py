"""Real endpoints, compared with the Collector's Prometheus receiver and with regular expressions over their pages."""

from __future__ import annotations

import math
import re
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry, Counter, Enum, Gauge, Histogram, Info, Summary, generate_latest
from prometheus_client.exposition import start_http_server
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from tests.sources import pages
from tests.sources.reading import known
from tests.support.journal import flatten
from tests.support.samples import samples
from tests.support.web import Web, page
from tests.tools.collector import LOCAL, Collector, Point
from tests.tools.daemon import NodeExporter, Prometheus, get, wait

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.settings.endpoints import TOTAL

Series = tuple[str, frozenset[tuple[str, Any]]]

OURS = ("openmetrics.endpoint", "server.address", "server.port")


def series(name: str, attributes: Mapping[str, Any] | None) -> Series:
    return name, frozenset((key, value) for key, value in (attributes or {}).items() if key not in OURS)


@contextmanager
def instrumented(reader: Any, urls: Mapping[str, str], **options: Any) -> Iterator[None]:
    """The instrumentor with these endpoints, after the first scrape of each."""
    provider = MeterProvider([reader], resource=Resource({}), shutdown_on_exit=False)
    made = HardwareInstrumentor()
    limit = TOTAL // len(urls)
    named = {name: {"url": url, "max_series": limit, "timeout": 30} for name, url in urls.items()}
    made.instrument(meter_provider=provider, sources=["openmetrics"], openmetrics=named, **options)
    try:
        assert made._telemetry.session is not None
        made._telemetry.session.read_now(60)
        wait(lambda: known(made), 20, "instruments of all rows")
        assert [runner.problem for runner in made._telemetry.session.runners] == [None] * len(urls)
        yield
        provider.force_flush()
    finally:
        made.uninstrument()
        provider.shutdown()


def by_us(url: str) -> dict[Series, float]:
    """Points that the SDK collects when the source scrapes the endpoint."""
    reader = InMemoryMetricReader()
    with instrumented(reader, {"end": url}):
        points = [*flatten(reader.get_metrics_data())]
    return {
        series(each.name, each.attributes): each.value for each in points if each.scope.endswith(".openmetrics.end")
    }


LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ([-+.\deE]+|NaN|[-+]?Inf)(?: \d+)?$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def by_reading(text: str) -> dict[Series, float]:
    """Counters, gauges, counts and sums of a page in Prometheus's format, by regular expressions."""
    types: dict[str, str] = {}
    values: dict[Series, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            types[name] = kind
        match = None if line.startswith("#") else LINE.match(line)
        if match is None:
            assert line.startswith("#") or not line.strip(), line
            continue
        name, labels, number = match[1], dict(LABEL.findall(match[2] or "")), float(match[3])
        family = re.sub(r"_(bucket|count|sum)$", "", name)
        if types.get(name) == "summary" or (types.get(family) == "histogram" and name.endswith("_bucket")):
            continue
        if math.isfinite(number):
            plain = {key: re.sub(r"\\(.)", r"\1", value) for key, value in labels.items() if value}
            values[series(name, plain)] = number
    return values


def agree(url: str, scrape: Any = get, changing: float = 0.2) -> dict[Series, float]:
    """Values by the source, which have to lie between two plain readings of the page before and after.

    Series that come and go between the two readings are left out, and so are values that fall and rise meanwhile, as
    far as they are few.
    """
    before, ours, after = by_reading(scrape(url)), by_us(url), by_reading(scrape(url))
    assert set(ours) <= set(before) | set(after), sorted(map(str, set(ours) - set(before) - set(after)))[:5]
    assert set(before) & set(after) <= set(ours), sorted(map(str, (set(before) & set(after)) - set(ours)))[:5]
    odd = [
        key
        for key in set(before) & set(after)
        if not min(before[key], after[key]) <= ours[key] <= max(before[key], after[key])
    ]
    assert len(odd) <= changing * len(ours), odd[:5]
    assert all(not key[0].endswith("_total") for key in odd), odd[:5]
    return ours


def test_node_exporter_page_agrees_with_regular_expressions(tmp_path: Path) -> None:
    with NodeExporter(tmp_path) as exporter:
        values = agree(exporter.url)
    assert len(values) > 100
    assert {"node_cpu_seconds_total", "go_gc_duration_seconds_count", "node_load1"} <= {name for name, _ in values}


def test_prometheus_own_page_agrees_with_regular_expressions(tmp_path: Path) -> None:
    with Prometheus(tmp_path, {}) as prometheus:
        values = agree(f"{prometheus.url}/metrics")
    assert len(values) > 100
    assert "prometheus_build_info" in {name for name, _ in values}


def test_collector_prometheus_exporter_page_agrees_with_regular_expressions(tmp_path: Path) -> None:
    with Collector(tmp_path) as collector:
        exporter = OTLPMetricExporter(f"{collector.http}/v1/metrics")
        provider = MeterProvider([PeriodicExportingMetricReader(exporter, 60_000)], shutdown_on_exit=False)
        meter = provider.get_meter("test")
        meter.create_counter("jobs", unit="s").add(3.5, {"queue.name": 'a"b\\c'})
        meter.create_up_down_counter("depth").add(-2)
        provider.force_flush()
        wait(lambda: "jobs" in collector.exposition(), 20, "the metrics are served")
        values = agree(collector.prometheus)
        provider.shutdown()
    by_name = {name: value for (name, labels), value in values.items() if "target_info" not in name}
    assert (by_name["jobs_seconds_total"], by_name["depth"]) == (3.5, -2)


def registry() -> CollectorRegistry:
    """The metrics of an application that uses prometheus_client."""
    made = CollectorRegistry()
    Counter("jobs", "Jobs done.", ["queue"], registry=made).labels('a"b\\c\nd').inc(7)
    Gauge("depth", "Jobs waiting.", registry=made).set(-2.5)
    Histogram("job_time", "Time of a job.", unit="seconds", registry=made).observe(0.3)
    Summary("job_size", "Size of a job.", unit="bytes", registry=made).observe(4096)
    Info("build", "What it is.", registry=made).info({"version": "1.2"})
    Enum("mode", "How it is.", states=["idle", "busy"], registry=made).state("busy")
    Gauge("unset", "Not known.", registry=made).set(math.nan)
    return made


EXPECTED = {
    ("jobs_total", 'queue=a"b\\c\nd', 7.0),
    ("depth", "", -2.5),
    ("job_time_seconds_count", "", 1.0),
    ("job_time_seconds_sum", "", 0.3),
    ("job_size_bytes_count", "", 1.0),
    ("job_size_bytes_sum", "", 4096.0),
    ("build_info", "version=1.2", 1.0),
    ("mode", "mode=idle", 0.0),
    ("mode", "mode=busy", 1.0),
}


def comparable(values: Mapping[Series, float]) -> set[tuple[str, str, float]]:
    return {
        (name, ",".join(f"{key}={value}" for key, value in sorted(labels)), number)
        for (name, labels), number in values.items()
        if not name.endswith("_created")
    }


def test_prometheus_client_server_negotiates_openmetrics() -> None:
    server, thread = start_http_server(0, "127.0.0.1", registry())
    try:
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        assert comparable(by_us(url)) == EXPECTED
        request = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text;version=1.0.0"})
        with urllib.request.urlopen(request, timeout=10) as response:
            assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (generate_latest(registry()), pages.PROMETHEUS),
        (generate_openmetrics(registry()), pages.OPENMETRICS),  # type: ignore[no-untyped-call]  # it has no types
    ],
    ids=["prometheus", "openmetrics"],
)
def test_prometheus_and_openmetrics_formats_give_the_same_metrics(text: bytes, kind: str, packed: bool) -> None:
    import gzip

    answer = page(gzip.compress(text), kind, Content_Encoding="gzip") if packed else page(text, kind)
    with Web(answer) as web:
        assert comparable(by_us(web.url)) == EXPECTED


# -- recorded pages


@pytest.mark.parametrize("path", samples("openmetrics/*.prom"))
def test_recorded_page_agrees_with_regular_expressions(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    sound = "".join(f"{line}\n" for line in text.splitlines() if line.startswith("#") or LINE.match(line))
    whole = text if text.endswith("\n") else f"{text}\n"  # one was saved without the last line feed
    with Web(page(whole)) as web:
        values = by_us(web.url)
    expected = by_reading(sound)
    assert len(values) > 2
    assert values == expected
    if "mig" in path.name:
        assert {dict(labels).get("GPU_I_PROFILE") for _, labels in values} >= {"1g.5gb"}


# -- the Collector's Prometheus receiver


@dataclass(frozen=True)
class Compared:
    """The parts of a point that are compared."""

    kind: str
    monotonic: bool
    unit: str
    description: str
    value: float


def of(points: Sequence[Point], renamed: Mapping[str, str] | None = None) -> dict[Series, Compared]:
    compared = {}
    for point in points:
        attributes = {(renamed or {}).get(key, key): value for key, value in point.attributes.items()}
        compared[series(point.name, attributes)] = Compared(
            point.kind, point.monotonic, point.unit, point.description, float(point.value)
        )
    return compared


# A page on which the lines of a family are not together, with counters with and without ``_total``.
MIXED = """\
# TYPE done counter
# TYPE temp gauge
# TYPE done_total counter
done{gpu="0"} 1
temp{gpu="0"} 40
done{gpu="1"} 2
temp{gpu="1"} 41
done_total 3
"""


def test_collector_prometheus_receiver_agrees_with_the_source(tmp_path: Path) -> None:
    """All but histograms: the Collector has their buckets, the source count and sum."""
    texts = {"dcgm": (pages.dcgm(0), pages.PROMETHEUS), "vllm": (pages.VLLM, pages.PROMETHEUS)}
    texts["all"] = (pages.ALL, pages.OPENMETRICS)
    texts["client"] = (generate_latest(registry()).decode(), pages.PROMETHEUS)
    texts["mixed"] = (MIXED.removesuffix("\n"), pages.PROMETHEUS)  # the server gives its length
    with ExitStack() as stack:
        webs = {name: stack.enter_context(Web(page(*each))) for name, each in texts.items()}
        scrapes = [
            {"job_name": name, "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{web.port}"]}]}
            for name, web in webs.items()
        ]
        extra = {
            "receivers": {"prometheus": {"config": {"scrape_configs": scrapes}, "discovery_reload_on_startup": True}},
            "service": {"pipelines": {"metrics": {"receivers": ["otlp", "prometheus"]}}},
        }
        collector = stack.enter_context(Collector(tmp_path, LOCAL, extra))
        exporter = OTLPMetricExporter(f"{collector.http}/v1/metrics")
        reader = PeriodicExportingMetricReader(exporter, 60_000)
        with instrumented(reader, {name: web.url for name, web in webs.items()}):
            pass
        points = collector.wait(
            lambda points: all(
                any((each.name, each.value, each.resource.get("service.name")) == ("up", 1, name) for each in points)
                and any(each.scope.endswith(f".openmetrics.{name}") for each in points)
                for name in webs
            ),
        )
    for name in webs:
        scraped = [each for each in points if each.resource.get("service.name") == name]
        known = [each for each in scraped if each.name != "up" and not each.name.startswith("scrape_")]
        theirs = of(known, {"server.port": "exported_server.port"})  # the Collector has the address in the resource
        ours = of([each for each in points if each.scope.endswith(f".openmetrics.{name}")])
        theirs = {key: each for key, each in theirs.items() if math.isfinite(each.value)}
        if name == "all":  # a gauge histogram is a histogram there, and _info is removed from names
            theirs = {key: each for key, each in theirs.items() if not key[0].startswith("queue_bytes")}
            theirs = {("build_info" if key[0] == "build" else key[0], key[1]): each for key, each in theirs.items()}
        apart = re.compile(r"(latency|job|rpc|gc_duration|job_time|job_size)_(seconds|bytes)_(count|sum)|queue_bytes_g")
        assert {key: each for key, each in ours.items() if not apart.search(key[0])} == theirs
        assert len(theirs) > 2
