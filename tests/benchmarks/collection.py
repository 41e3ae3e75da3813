"""A collection of our default set: beside the same points as constants, and beside the official package.

The official package reads while it collects; we read before, in threads of our own. So both are shown: what a
collection costs, and what it costs with the reading that was made for it.
"""

from __future__ import annotations

from collections.abc import Callable

from opentelemetry.metrics import Meter, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric, MetricsData, Sum
from tests.benchmarks import peer
from tests.benchmarks.figure import Figure
from tests.benchmarks.ours import ByHand
from tests.benchmarks.steady import in_turn, milliseconds


def figures(quick: bool) -> list[Figure]:
    ours = ByHand()
    data = ours.collected()
    constants, official = _constants(data), peer.reader()
    readings: list[float] = []

    def collected() -> float:
        readings.append(ours.cost())
        return milliseconds(ours.reader.collect)

    def beside(reader: InMemoryMetricReader) -> Callable[[], float]:
        def run() -> float:
            ours.cost()
            return milliseconds(reader.collect)

        return run

    cost = in_turn(
        {"ours": collected, "constants": beside(constants), "peer": beside(official)}, rounds=5 if quick else 60
    )
    points, theirs = _points(data), _points(official.get_metrics_data())
    assert _points(constants.get_metrics_data()) == points, "the constants are not what we export"
    reading = sorted(readings)[len(readings) // 2]
    per_point, peers = 1e3 * cost["ours"] / points, 1e3 * cost["peer"] / theirs
    return [
        Figure(
            f"collection of the default set, {points} points",
            cost["ours"],
            "ms CPU",
            "the same points as constants, bare SDK",
            cost["constants"],
            1.15 * cost["constants"] + 0.3,
            "1.15 x + 0.3 ms",
        ),
        Figure("  a point", per_point, "us CPU", f"{peer.NAME}, {theirs} points", peers, 0.75 * peers, "0.75 x"),
        Figure(
            "  with the reading before it, which is ours", cost["ours"] + reading, "ms CPU", peer.NAME, cost["peer"]
        ),
        Figure("  the same, a point", per_point + 1e3 * reading / points, "us CPU", peer.NAME, peers),
    ]


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
        observations = [Observation(point.value, point.attributes) for point in metric.data.data_points]  # type: ignore[union-attr, arg-type]
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
