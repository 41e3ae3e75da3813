"""A collection of the default metrics, beside the same points as constants and beside the official package.

The official package reads during the collection, ours before it, in its own threads. So there are two figures: a
collection, and a collection with the reading before it.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from statistics import median

from opentelemetry.metrics import Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, MetricsData, Sum
from tests.slow.benchmarks import peer
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.ours import ByHand
from tests.slow.benchmarks.steady import Round, in_turn, milliseconds


def figures(seconds: float) -> list[Figure]:
    ours = ByHand()
    data = max((_next(ours) for _ in range(10)), key=_points)
    constants, official = _constants(data), peer.reader()
    reading = 0.0

    def collected() -> float:
        nonlocal reading
        reading = ours.cost()
        return milliseconds(ours.reader.collect)

    def beside(reader: InMemoryMetricReader) -> Callable[[], float]:
        def run() -> float:
            ours.cost()  # the same state of the caches
            return milliseconds(reader.collect)

        return run

    cost = in_turn(
        {"ours": collected, "reading": lambda: reading, "constants": beside(constants), "peer": beside(official)},
        seconds,
    )
    points, theirs = _points(data), _points(official.get_metrics_data())
    assert _points(constants.get_metrics_data()) == points, "the constants are not what we export"
    most = 1.15 + 0.3 / median(each["constants"] for each in cost)

    def whole(each: Round) -> float:
        return each["ours"] + each["reading"]

    def of_peer(each: Round) -> float:
        return 1e3 * each["peer"] / theirs

    def per_point(value: Callable[[Round], float]) -> Callable[[Round], float]:
        return lambda each: 1e3 * value(each) / points

    one = per_point(itemgetter("ours"))
    return [
        Figure("points of a collection", points, "points", peer.NAME, theirs),
        cost.figure("one collection", "ours", "ms of CPU", "bare SDK", "constants", bound=most, relative=True),
        cost.figure("one collection, per point", one, "µs of CPU", peer.NAME, of_peer),
        cost.figure("with reading", whole, "ms of CPU", peer.NAME, "peer"),
        cost.figure("with reading, per point", per_point(whole), "µs of CPU", peer.NAME, of_peer),
    ]


def _next(ours: ByHand) -> MetricsData:
    """One more collection. A CPU utilization has no value in it if no clock tick has passed since the one before."""
    ours.cost()
    return ours.collected()


def _points(data: MetricsData | None) -> int:
    return sum(len(metric.data.data_points) for metric in _metrics(data))


def _metrics(data: MetricsData | None) -> list[Metric]:
    assert data is not None
    return [
        metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
    ]


def _constants(data: MetricsData) -> InMemoryMetricReader:
    """The same instruments, attributes and values, ready made."""
    reader = InMemoryMetricReader()
    meter = MeterProvider([reader], shutdown_on_exit=False).get_meter("constants")
    for metric in _metrics(data):
        observations = [Observation(point.value, point.attributes) for point in metric.data.data_points]  # type: ignore[union-attr]
        _maker(meter, metric)(
            metric.name,
            [lambda options, observations=observations: observations],
            unit=metric.unit or "",
            description=metric.description or "",
        )
    reader.get_metrics_data()
    return reader


def _maker(meter: Meter, metric: Metric) -> Callable[..., object]:
    if not isinstance(metric.data, Sum):
        return meter.create_observable_gauge
    return meter.create_observable_counter if metric.data.is_monotonic else meter.create_observable_up_down_counter
