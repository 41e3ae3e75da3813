"""The name that each metric of the catalog gets in Prometheus, behind a real Collector and in a real Prometheus."""

from __future__ import annotations

import json
import urllib.parse
from collections.abc import Callable

import pytest
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from tests.support.children import PATIENCE
from tests.tools.collector import Collector
from tests.tools.daemon import Prometheus, get, wait

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.model import Kind


def export(endpoint: str) -> None:
    """Export one point of each metric of the catalog, with its name as an attribute."""
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint), export_interval_millis=3_600_000)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    meter = provider.get_meter("catalog")
    make: dict[Kind, Callable[..., object]] = {
        Kind.COUNTER: meter.create_observable_counter,
        Kind.UPDOWN: meter.create_observable_up_down_counter,
        Kind.GAUGE: meter.create_observable_gauge,
    }
    for row in CATALOG:
        attributes = {"name.in.catalog": row.name}
        if row.kind is Kind.HISTOGRAM:
            meter.create_histogram(row.name, row.unit, row.help).record(1, attributes)
            continue
        point = Observation(1, attributes)
        make[row.kind](row.name, [lambda _, point=point: [point]], unit=row.unit, description=row.help)
    provider.shutdown()


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By name in Prometheus, the name in the catalog. Of a histogram, the name of its count."""
    folder = tmp_path_factory.mktemp("names")
    with Collector(folder) as collector, Prometheus(folder, {"catalog": collector.prometheus.split("/")[2]}) as server:
        export(collector.grpc)
        query = urllib.parse.urlencode({"match[]": '{name_in_catalog!=""}'})
        found: dict[str, str] = {}

        def all_arrived() -> bool:
            series = json.loads(get(f"{server.url}/api/v1/series?{query}"))["data"]
            names = {labels["__name__"]: labels["name_in_catalog"] for labels in series}
            found.update({name: row for name, row in names.items() if not name.endswith(("_bucket", "_sum"))})
            return {row.name for row in CATALOG} <= set(found.values())

        wait(all_arrived, PATIENCE, lambda: f"missing: {sorted({row.name for row in CATALOG} - set(found.values()))}")
    return found


def test_every_metric_has_one_name_of_its_own(arrived: dict[str, str]) -> None:
    assert sorted(arrived.values()) == sorted(row.name for row in CATALOG)


def test_only_ratios_are_named_ratio(arrived: dict[str, str]) -> None:
    named = [name for ending, name in arrived.items() if ending.endswith("_ratio")]
    ratios = (".utilization", ".occupancy", "_ratio")
    assert len(named) > 10
    assert [name for name in named if not name.removesuffix(".peak").endswith(ratios)] == []


def test_ratios_are_named_ratio(arrived: dict[str, str]) -> None:
    ratios = [name for name, ours in arrived.items() if ours.endswith("utilization")]
    assert [name for name in ratios if not name.endswith("_ratio")] == []
