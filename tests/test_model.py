"""Metrics, series, points and the other values that sources and readers exchange."""

from __future__ import annotations

import copy

import pytest

from opentelemetry.instrumentation.hardware.model import (
    Kind,
    Metric,
    Problem,
    Series,
    SeriesCache,
    Snapshot,
)

ROW = Metric(Kind.GAUGE, "acme.power", "W", ("part", "side"), "Power.")
OTHER = Metric(Kind.GAUGE, "acme.power", "W", ("part", "side"), "Power.")


def test_calling_metric_makes_point() -> None:
    series, value = ROW(1.5, {"part": "left"})
    assert (series, value) == (Series(ROW, {"part": "left"}), 1.5)
    assert (series.metric, series.attributes) == (ROW, {"part": "left"})
    assert ROW(2)[0].attributes == {}


@pytest.mark.parametrize("make", [lambda attributes: ROW(1, attributes), lambda attributes: Series(ROW, attributes)])
def test_unknown_attribute_raises_value_error(make: object) -> None:
    with pytest.raises(ValueError, match=r"acme\.power has no attribute 'prt'; it has part, side"):
        make({"part": "left", "prt": "x"})  # type: ignore[operator]
    with pytest.raises(ValueError, match="it has none"):
        Metric(Kind.GAUGE, "acme.bare", "1", (), "Bare.")(1, {"part": "left"})


def test_series_equality_and_hash() -> None:
    left = Series(ROW, {"part": "left", "side": 1})
    assert left == Series(ROW, {"side": 1, "part": "left"})
    assert hash(left) == hash(Series(ROW, {"side": 1, "part": "left"}))
    for different in (
        Series(ROW, {"part": "left"}),
        Series(ROW, {"part": "left", "side": 2}),
        Series(OTHER, {"part": "left", "side": 1}),
        "acme.power",
    ):
        assert left != different
    assert repr(left) == "acme.power{'part': 'left', 'side': 1}"
    assert repr(Series(ROW)) == "acme.power"


def test_long_text_of_an_attribute_is_cut() -> None:
    assert Series(ROW, {"part": "[" * 5000, "side": 1}).attributes == {"part": "[" * 4096, "side": 1}
    assert Series(ROW, {"part": "[" * 4096}).attributes == {"part": "[" * 4096}


def test_kept_series_are_made_once() -> None:
    kept = SeriesCache()
    left = kept[ROW, "part", "left"]
    assert left == Series(ROW, {"part": "left"})
    assert kept[ROW, "part", "left"] is left
    assert kept[ROW, "part", "left", "side", 1] == Series(ROW, {"part": "left", "side": 1})
    assert kept[ROW] == Series(ROW)


def test_series_copies_its_attributes() -> None:
    attributes: dict[str, str | int] = {"part": "left"}
    series = Series(ROW, attributes)
    attributes["part"] = "right"
    assert series.attributes == {"part": "left"}
    assert series == Series(ROW, {"part": "left"})


def test_metric_problem_and_snapshot_are_frozen() -> None:
    for frozen, name in ((ROW, "name"), (Problem("host", "gone"), "reason"), (Snapshot({}), "values")):
        with pytest.raises(AttributeError):
            setattr(frozen, name, "other")


def test_metric_equality_is_identity() -> None:
    assert ROW != OTHER
    assert len({ROW, OTHER, copy.copy(ROW)}) == 3
