"""Fields: parsing, units and plausibility of a driver's values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.stage import PATIENT

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as f
from opentelemetry.instrumentation.hardware.model import Number, Rate


@pytest.mark.parametrize(
    ("field", "raw", "expected"),
    [
        (f.temperature("gpu"), 61, 61),
        (f.temperature("gpu"), "36.2 C", 36.2),
        (f.temperature("edge", "m°C"), b"45000\n", 45.0),
        (f.power("mW"), 251_300, 251.3),
        (f.power_limit("enforced", "mW"), 700_000, 700.0),
        (f.frequency("sm"), "1980 MHz", 1_980_000_000),
        (f.utilization("general"), "41.25%", 0.4125),
        (f.utilization("general"), 100.0001, 1.0),
        (f.memory_used("MiB|MB"), "12 mb", 12 << 20),
        (f.memory_used("MiB|MB"), "12 MiB", 12 << 20),
        (f.link("pcie", "transmit", "MiB/s"), 2.0, Rate(2 << 20)),
        (f.throttle("power_cap"), True and 1, Rate(1)),
        (f.throttle("power_cap", "ns"), 3_000_000_000, 3.0),
        (f.energy("mJ"), 7_500, 7.5),
        (f.energy(), Rate(100.0), Rate(100.0)),
        (f.Field(c.HW_FAN_SPEED_RATIO, unit=(1, 255)), 51, 0.2),
        (f.errors("corrected"), "12", 12),
    ],
)
def test_value_is_converted_to_the_unit_of_the_metric(field: f.Field, raw: object, expected: Number | Rate) -> None:
    assert field.value(raw) == expected


@pytest.mark.parametrize(
    ("field", "raw"),
    [
        (f.temperature("gpu"), 4_294_967_294),
        (f.temperature("gpu"), "97 F"),
        (f.temperature("gpu"), 0),
        (f.power("mW"), 0),
        (f.voltage("gpu"), 0),
        (f.temperature_limit("gpu", "max"), 0),
        (f.power(), "N/A"),
        (f.power(), "120 W W"),
        (f.power(), "120 kW"),
        (f.power(), ""),
        (f.power(), None),
        (f.power(), True),
        (f.power(), math.nan),
        (f.power(), math.inf),
        pytest.param(f.power("mW"), 10**400, id="larger than any float"),
        pytest.param(f.link("pcie", "transmit"), -(10**400), id="smaller than any float"),
        (f.power("mW"), -1),
        (f.utilization("general"), 101),
        (f.errors("xid"), 1.5),
        (f.link("pcie", "transmit", "MiB/s"), -1),
        (f.energy(), Rate(-1.0)),
        (f.energy(), Rate(math.nan)),
        (f.errors("xid"), Rate(math.inf)),
    ],
)
def test_implausible_value_is_refused_and_quoted(field: f.Field, raw: object) -> None:
    with pytest.raises(ValueError, match="the driver reports"):
        field.value(raw)


def test_counter_has_no_limit_of_a_gauge() -> None:
    assert f.link("nvlink", "transmit", "KiB").value(1 << 45) == 1 << 55, "36 PB, as after eleven hours"
    with pytest.raises(ValueError, match="not plausible"):
        f.link("nvlink", "transmit").value((1 << 64) - 1)


def test_limits_of_a_field_replace_the_plausible_range() -> None:
    assert f.errors("xid").value(2**32) == 2**32
    with pytest.raises(ValueError, match="not plausible"):
        f.errors("xid", most=2**32 - 2).value(2**32)
    with pytest.raises(ValueError, match="0 W, which is not plausible"):
        f.power(least=1e-9).value("0 W")


@PATIENT
@given(st.one_of(st.text(max_size=12), st.binary(max_size=12), st.integers(), st.floats(), st.none(), st.booleans()))
def test_any_value_is_plausible_or_refused(raw: object) -> None:
    for field in (f.power("mW"), f.utilization("sm"), f.frequency("sm"), f.link("pcie", "receive", "MiB/s")):
        try:
            value = field.value(raw)
        except ValueError:
            continue
        number = value.per_second if isinstance(value, Rate) else value
        assert 0 <= number <= 1 << 53


def test_type_of_errors_that_is_not_in_the_catalog_is_refused() -> None:
    assert f.errors("corrected").series.attributes == {c.ERROR_TYPE: "corrected"}
    with pytest.raises(ValueError, match="mem_corrected is not among the types of errors"):
        f.errors("mem_corrected")
