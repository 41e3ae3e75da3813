"""The dashboard of spans, and the steps of a job, on spans of real programs, in Prometheus and VictoriaMetrics."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from tests.alerts.stored import DASHBOARDS, inlined
from tests.support.children import AUTO_INSTRUMENTATION, PATIENCE, PEERS, command, started
from tests.tools.collector import LOCAL, Collector, Span
from tests.tools.daemon import wait
from tests.tools.stores import PrometheusStore, Store, VictoriaMetrics

CONFIGS = [LOCAL.with_name(f"{name}.yaml") for name in ("joules", "steps", "victoriametrics", "prometheus")]
JOULES = "otel_hardware_spans_energy_joules_total"
RANKS = {"0": 0.2, "1": 0.5}  # seconds of a step


@dataclass(frozen=True)
class Measured:
    """What the programs did, and the databases that have it."""

    spans: list[Span]
    stores: dict[str, Store]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    folder = tmp_path_factory.mktemp("spans")
    with ExitStack() as stack:
        prometheus, victoria = PrometheusStore(folder), VictoriaMetrics(folder)
        stores: dict[str, Store] = {"prometheus": prometheus, "victoriametrics": victoria}
        for store in stores.values():
            stack.enter_context(store)
        where = {"PROMETHEUS_URL": prometheus.url, "VICTORIAMETRICS_URL": victoria.url}
        collector = stack.enter_context(Collector(folder, LOCAL, *CONFIGS, environment=where))
        common = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.grpc,
            "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "hardware_job",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            "OTEL_BSP_SCHEDULE_DELAY": "1000",
            "OTEL_PYTHON_HARDWARE_SIMULATE": "2xH100",
            "OTEL_PYTHON_HARDWARE_REPORTER": "always",
            "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": PEERS,
            **AUTO_INSTRUMENTATION,
        }
        service = [(command("spans/work", "serve"), {"OTEL_SERVICE_NAME": "chat"})]
        job = {"OTEL_SERVICE_NAME": "training", "TORCHELASTIC_RUN_ID": "seven", "WORLD_SIZE": str(len(RANKS))}
        ranks = [
            (command("spans/work", "train", seconds), job | {"RANK": rank, "LOCAL_RANK": rank})
            for rank, seconds in RANKS.items()
        ]
        # Each simulates GPUs of its own, so each is a host.
        children = [
            stack.enter_context(started(line, common | own | {"OTEL_RESOURCE_ATTRIBUTES": f"host.name=host-{number}"}))
            for number, (line, own) in enumerate(service + ranks)
        ]
        names = ("POST /chat", "POST /embed", "chat small", "train.step")

        def are_there() -> bool:
            seen = [span.name for span in collector.spans() if "hw.share.energy" in span.attributes]
            return all(seen.count(name) >= 10 for name in names)

        wait(are_there, PATIENCE, "ten spans of each name with joules")
        rounds = []
        for child in children:
            rounds.append(int(child.communicate(timeout=PATIENCE)[0]))
            assert child.returncode == 0
        # A round of the service has three spans, that of a rank has one.
        expected = {"train.step": sum(rounds[1:]), **dict.fromkeys(names[:3], rounds[0])}
        wait(lambda: Counter(span.name for span in collector.spans()) == expected, PATIENCE, "all spans")
        spans = collector.spans()
        for store in stores.values():
            count = "sum(traces_span_metrics_duration_seconds_count)"
            wait(lambda: store.query(count)[0][1] == expected["train.step"], PATIENCE, "all steps")  # noqa: B023 - at once
            wait(lambda: stored(store) == pytest.approx(spent(spans)), PATIENCE, "all joules")  # noqa: B023
        yield Measured(spans, stores)


@pytest.fixture(params=["prometheus", "victoriametrics"])
def store(request: pytest.FixtureRequest, measured: Measured) -> Store:
    return measured.stores[request.param]


def spent(spans: list[Span]) -> dict[tuple[str, str, str], float]:
    """The joules of spans, by name, route and model."""
    found: dict[tuple[str, str, str], float] = defaultdict(float)
    for span in spans:
        attributes = {key: str(value) for key, value in span.attributes.items()}
        if "hw.share.energy" in attributes:
            key = (span.name, attributes.get("http.route", ""), attributes.get("gen_ai.request.model", ""))
            found[key] += float(attributes["hw.share.energy"])
    return found


def stored(store: Store) -> dict[tuple[str, str, str], float]:
    return {
        (labels["span_name"], labels.get("http_route", ""), labels.get("gen_ai_request_model", "")): value
        for labels, value in store.query(f"sum by (span_name, http_route, gen_ai_request_model) ({JOULES})")
    }


def panel(store: Store, board: str, title: str) -> list[tuple[dict[str, str], float]]:
    (query,) = (
        target["expr"]
        for panel in json.loads((DASHBOARDS / f"{board}.json").read_text())["panels"]
        for target in panel["targets"]
        if panel["title"] == title
    )
    return store.query(inlined(query.replace('{training_job_id=~"$job"}', "").replace("$__range", "30m")))


def test_joules_of_the_database_are_those_of_the_spans(measured: Measured, store: Store) -> None:
    expected = spent(measured.spans)
    assert set(expected) == {
        ("POST /chat", "/chat", ""),
        ("POST /embed", "/embed", ""),
        ("chat small", "", "small"),
        ("train.step", "", ""),
    }
    assert stored(store) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("title", "label", "values"),
    [
        ("Watts of spans by route", "http_route", {"", "/chat", "/embed"}),
        ("Watts of spans by model", "gen_ai_request_model", {"", "small"}),
        ("Joules by name of the span", "span_name", {"POST /chat", "POST /embed", "chat small", "train.step"}),
    ],
)
def test_panel_divides_the_joules_as_the_spans_do(
    measured: Measured, store: Store, title: str, label: str, values: set[str]
) -> None:
    found = {labels.get(label, ""): value for labels, value in panel(store, "spans", title)}
    assert set(found) == values
    place = ("span_name", "http_route", "gen_ai_request_model").index(label)
    joules: dict[str, float] = defaultdict(float)
    for key, part in spent(measured.spans).items():
        joules[key[place]] += part
    for each in values:  # rate() and increase() extrapolate, and miss what a series begins with
        assert found[each] / sum(found.values()) == pytest.approx(joules[each] / sum(joules.values()), abs=0.1)


def test_spans_use_a_part_of_all_power(store: Store) -> None:
    ((_, part),) = panel(store, "spans", "Of all power, by span")
    assert 0 < part < 1.1


def test_steps_of_a_rank_are_those_of_its_spans(measured: Measured, store: Store) -> None:
    seconds = {labels["dl_rank"]: value for labels, value in panel(store, "job", "Seconds of a step by rank")}
    for rank in RANKS:
        own = [
            each.seconds
            for each in measured.spans
            if each.name == "train.step" and str(each.resource["dl.rank"]) == rank
        ]
        assert seconds[rank] == pytest.approx(sum(own) / len(own), rel=0.2)
    late = {labels["dl_rank"]: value for labels, value in panel(store, "job", "Step over the median")}
    assert late["1"] == pytest.approx(seconds["1"] / (sum(seconds.values()) / 2))
