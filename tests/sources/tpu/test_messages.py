"""Protobuf messages, compared with the classes of tpu-info."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stage import PATIENT
from tests.tools.tpu import distribution, pb

from opentelemetry.instrumentation.hardware.sources.tpu import messages

ATTRIBUTES = st.one_of(
    st.integers(0, 1 << 20).map(lambda n: pb.Attribute(key="device-id", value=pb.AttrValue(int_attr=n))),
    st.text(max_size=8).map(lambda text: pb.Attribute(key="name", value=pb.AttrValue(string_attr=text))),
)
GAUGES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(lambda n: pb.Gauge(as_double=n)),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda n: pb.Gauge(as_int=n)),
)


@PATIENT
@given(st.lists(st.tuples(ATTRIBUTES, GAUGES), max_size=20))
def test_gauges_decode_as_protobuf_encodes_them(pairs: list[tuple[Any, Any]]) -> None:
    sent = pb.TPUMetric(name="n", metrics=[pb.Metric(attribute=key, gauge=gauge) for key, gauge in pairs])
    found = messages.samples(pb.MetricResponse(metric=sent).SerializeToString())
    for sample, (attribute, gauge) in zip(found, pairs, strict=True):
        assert sample["value"] == getattr(gauge, str(gauge.WhichOneof("value")))
        assert sample["labels"] == {attribute.key: getattr(attribute.value, str(attribute.value.WhichOneof("attr")))}


@PATIENT
@given(st.lists(st.integers(0, 1 << 40), min_size=3, max_size=60), st.floats(0, 1e12))
def test_distributions_decode_as_protobuf_encodes_them(buckets: list[int], mean: float) -> None:
    sent = pb.TPUMetric(name="n", metrics=[distribution(buckets, mean, 3.0, 1.5, buffer_size="1MB+")])
    (sample,) = messages.samples(pb.MetricResponse(metric=sent).SerializeToString())
    values = sample["distribution"]
    assert values is not None
    assert (values["count"], values["mean"], values["buckets"]) == (sum(buckets), mean, buckets)
    assert values["bounds"] == [3.0 * 1.5**place for place in range(len(buckets) - 1)]
    assert sample["labels"] == {"buffer-size": "1MB+"}


@pytest.mark.parametrize(
    ("buckets", "options"),
    [
        ([0, 1, 0], {"growth": 1.0}),
        ([0, 1, 0], {"growth": float("nan")}),
        ([0, 1, 0], {"scale": 0.0}),
        ([0, 1, 0], {"scale": float("inf")}),
        ([1] * 1000, {"growth": 2.0}),
        ([1] * 2000, {"growth": 1.01}),
        ([], {}),
    ],
)
def test_distribution_with_invalid_buckets_has_count_and_mean_only(buckets: list[int], options: Any) -> None:
    sent = pb.TPUMetric(name="n", metrics=[distribution(buckets, 5.0, **options)])
    (sample,) = messages.samples(pb.MetricResponse(metric=sent).SerializeToString())
    assert sample["distribution"] == {"count": sum(buckets), "mean": 5.0}


def test_distribution_with_an_infinite_mean_has_none() -> None:
    sent = pb.TPUMetric(name="n", metrics=[distribution([0, 1, 0], float("inf"))])
    (sample,) = messages.samples(pb.MetricResponse(metric=sent).SerializeToString())
    assert sample["distribution"] is not None
    assert "mean" not in sample["distribution"]


@pytest.mark.parametrize("alone", [False, True])
def test_metric_request_parses_with_protobuf(alone: bool) -> None:
    request = pb.MetricRequest.FromString(messages.metric_request("n" * 200, alone))
    assert (request.metric_name, request.skip_node_aggregation) == ("n" * 200, alone)
