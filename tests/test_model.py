from __future__ import annotations

import copy

import pytest

from opentelemetry.instrumentation.hardware.model import (
    Kind,
    Metric,
    Problem,
    Series,
    Share,
    Snapshot,
    Unavailable,
)

ROW = Metric("acme.power", Kind.GAUGE, "W", "Power.", ("part", "side"))
OTHER = Metric("acme.power", Kind.GAUGE, "W", "Power.", ("part", "side"))


def test_calling_a_row_makes_a_point() -> None:
    series, value = ROW(1.5, {"part": "left"})
    assert (series, value) == (Series(ROW, {"part": "left"}), 1.5)
    assert (series.metric, series.attributes) == (ROW, {"part": "left"})
    assert ROW(2)[0].attributes == {}


@pytest.mark.parametrize("make", [lambda attributes: ROW(1, attributes), lambda attributes: Series(ROW, attributes)])
def test_an_attribute_that_the_row_does_not_have_is_an_error_where_it_is_written(make: object) -> None:
    with pytest.raises(ValueError, match=r"acme\.power has no attribute 'prt'; it has part, side"):
        make({"part": "left", "prt": "x"})  # type: ignore[operator]
    with pytest.raises(ValueError, match="it has none"):
        Metric("acme.bare", Kind.GAUGE, "1", "Bare.")(1, {"part": "left"})


def test_a_series_is_its_row_and_its_attributes() -> None:
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


def test_a_series_can_be_kept_and_called_again() -> None:
    left = Series(ROW, {"part": "left"})
    assert left(1.0) == (left, 1.0)
    assert left(2.0)[0] is left


def test_a_series_does_not_follow_what_it_was_made_of() -> None:
    attributes: dict[str, str | int] = {"part": "left"}
    series = Series(ROW, attributes)
    attributes["part"] = "right"
    assert series.attributes == {"part": "left"}
    assert series == Series(ROW, {"part": "left"})


def test_rows_problems_and_snapshots_are_frozen() -> None:
    for frozen, name in ((ROW, "name"), (Problem("host", "gone"), "reason"), (Snapshot({}), "values")):
        with pytest.raises(AttributeError):
            setattr(frozen, name, "other")


def test_a_row_is_itself_alone() -> None:
    assert ROW != OTHER
    assert len({ROW, OTHER, copy.copy(ROW)}) == 3


def test_what_is_not_there_says_why_and_what_to_do() -> None:
    gone = Unavailable("no such device", "plug it in")
    assert (gone.reason, gone.fix, str(gone)) == ("no such device", "plug it in", "no such device")
    assert Unavailable("no such device").fix == ""


def test_a_share_is_two_totals() -> None:
    assert Share(1.0, 4.0) == (1.0, 4.0)
    assert Share(1.0, 4.0).part == 1.0
