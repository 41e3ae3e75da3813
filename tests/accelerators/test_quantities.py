"""Quantities by name, for vendors that are not ported to fields: metrics, attributes and derived values."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.stage import PATIENT

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import BUSY, QUANTITIES, STATES, UNITS, Device
from opentelemetry.instrumentation.hardware.model import Kind, Metric, Number, Rate, Series, Value

WHO = {c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT}


def said(device: Device, **reading: Number | Rate) -> dict[tuple[str, str], Value]:
    """The values by metric and distinguishing attributes; a double underscore in a keyword is a dot."""
    points = list(device.points({name.replace("__", "."): value for name, value in reading.items()}))
    found = {_key(series): value for series, value in points}
    assert len(found) == len(points), "a series appears twice"
    return found


def _key(series: Series) -> tuple[str, str]:
    words = [str(word) for name, word in sorted(series.attributes.items()) if name not in WHO]
    return series.metric.name, " ".join(words)


def gpu() -> Device:
    return Device("GPU-1", "GPU 0")


def test_quantity_yields_a_point_per_metric() -> None:
    assert said(gpu(), temperature__gpu=61) == {("hw.temperature", "gpu"): 61, ("hw.temperature.peak", "gpu"): 61}
    assert said(gpu(), memory__used=5) == {("hw.gpu.memory.usage", ""): 5, ("hw.gpu.memory.peak", ""): 5}
    assert said(gpu(), io__pcie__transmit=Rate(3.0)) == {("hw.gpu.io", "pcie transmit"): Rate(3.0)}


def test_missing_quantities_yield_no_derived_points() -> None:
    assert said(gpu()) == {}
    assert set(said(gpu(), memory__total=5)) == {("hw.gpu.memory.limit", "")}
    assert set(said(gpu(), power__limit__enforced=5)) == {("hw.power.limit", "enforced")}


def test_ratio_needs_numerator_and_denominator() -> None:
    assert said(gpu(), memory__used=3, memory__total=12)["hw.gpu.memory.utilization", ""] == 0.25
    assert ("hw.gpu.memory.utilization", "") not in said(gpu(), memory__used=3, memory__total=0)
    device = gpu()
    assert ("hw.power.utilization", "") not in said(device, power=100.0)
    said(device, power__limit__enforced=400.0)
    assert said(device, power=100.0)["hw.power.utilization", ""] == 0.25, "the limit of an earlier reading is not used"
    assert said(device, power=100.0, power__limit__enforced=200.0)["hw.power.utilization", ""] == 0.5


def test_energy_is_integrated_from_power_without_energy_counter() -> None:
    assert said(gpu(), power=100.0)["hw.energy", ""] == Rate(100.0)
    assert said(gpu(), power=100.0, energy=7.5)["hw.energy", ""] == 7.5


@pytest.mark.parametrize("task", BUSY)
def test_busy_utilization_is_integrated_to_time(task: str) -> None:
    assert said(gpu(), **{f"utilization__{task}": 0.5})["hw.gpu.time", task] == Rate(0.5)


@pytest.mark.parametrize("task", UNITS)
def test_unit_utilization_is_not_integrated_to_time(task: str) -> None:
    assert set(said(gpu(), **{f"utilization__{task}": 0.5})) == {("hw.gpu.utilization", task)}


def test_utilization_peak_falls_back_to_utilization() -> None:
    assert said(gpu(), utilization__general=0.5)["hw.gpu.utilization.peak", ""] == 0.5
    both = said(gpu(), utilization__general=0.5, utilization__peak=0.9)
    assert both["hw.gpu.utilization.peak", ""] == 0.9
    assert ("hw.gpu.utilization.peak", "") not in said(gpu(), utilization__memory=0.5)


def test_status_has_one_active_state() -> None:
    for state in STATES:
        points = {series.attributes[c.HW_STATE]: value for series, value in gpu().status(state)}
        assert points == {each: int(each == state) for each in STATES}


def test_points_have_identity_attributes_of_device() -> None:
    part = Device("MIG-1", "MIG 0/3", parent="GPU-1")
    fan = Device("GPU-1/fan0", "GPU 0 fan 0", "fan", "GPU-1")
    points = [
        *part.points({"power": 1.0, "memory.used": 1}),
        *part.status("ok"),
        part.info({c.HW_VENDOR: "NVIDIA"}),
        *fan.points({"fan.ratio": 0.5, "fan.speed": 900}),
    ]
    assert len(points) > 10
    for series, _ in points:
        own = fan if series.metric.name.startswith("hw.fan") else part
        expected = {c.HW_ID: own.id, c.HW_NAME: own.name, c.HW_PARENT: "GPU-1"}
        if c.HW_TYPE in series.metric.attributes:
            expected[c.HW_TYPE] = "gpu"
        assert expected.items() <= series.attributes.items(), series


def test_unknown_quantity_raises_key_error() -> None:
    with pytest.raises(KeyError):
        list(gpu().points({"powr": 1.0}))


def test_quantities_have_distinct_series() -> None:
    rows: dict[tuple[Metric, frozenset[tuple[str, object]]], str] = {}
    for quantity, made in QUANTITIES.items():
        for row in made:
            key = row.metric, frozenset(row.attributes.items())
            assert key not in rows, f"{quantity} and {rows[key]}"
            rows[key] = quantity


@PATIENT
@given(
    reading=st.dictionaries(
        st.sampled_from(sorted(QUANTITIES)), st.one_of(st.integers(0, 2**40), st.floats(0, 1e12)), max_size=20
    )
)
def test_points_of_any_reading_are_unchanged_and_unique(reading: Mapping[str, Number]) -> None:
    device = gpu()
    points = list(device.points(reading))
    assert len({series for series, _ in points}) == len(points)
    values = dict(points)
    for quantity, number in reading.items():
        for metric, attributes in QUANTITIES[quantity]:
            assert values[device.series(metric, attributes)] == number
    for series, value in points:
        assert not isinstance(value, Rate) or series.metric.kind is Kind.COUNTER
