"""Points of a device, and values that are derived from others."""

from __future__ import annotations

import logging

import pytest

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as f
from opentelemetry.instrumentation.hardware.accelerators.device import STATES, TIMED, Device
from opentelemetry.instrumentation.hardware.model import Rate, Series, Value

IDENTITY = {c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT}


def gpu() -> Device:
    return Device("GPU-1", "GPU 0")


def reported(device: Device, *values: tuple[f.Field, object]) -> dict[tuple[str, str], Value]:
    """The points by metric and distinguishing attributes."""
    points = [*device.points(dict(values))]
    found = {_key(series): value for series, value in points}
    assert len(found) == len(points), "a series appears twice"
    return found


def _key(series: Series) -> tuple[str, str]:
    words = [str(word) for name, word in sorted(series.attributes.items()) if name not in IDENTITY]
    return series.metric.name, " ".join(words)


def test_peaks_are_derived() -> None:
    assert reported(gpu(), (f.temperature("gpu"), 61)) == {
        ("hw.temperature", "gpu"): 61,
        ("hw.temperature.peak", "gpu"): 61,
    }
    assert reported(gpu(), (f.memory_used(), 5)) == {("hw.gpu.memory.usage", ""): 5, ("hw.gpu.memory.peak", ""): 5}


def test_utilization_peak_of_the_driver_is_preferred() -> None:
    general = f.utilization("general", ""), 0.5
    assert reported(gpu(), general)["hw.gpu.utilization.peak", ""] == 0.5
    both = reported(gpu(), general, (f.Field(c.HW_GPU_UTILIZATION_PEAK), 0.9))
    assert both["hw.gpu.utilization.peak", ""] == 0.9
    assert ("hw.gpu.utilization.peak", "") not in reported(gpu(), (f.utilization("memory", ""), 0.5))


@pytest.mark.parametrize(("task", "is_timed"), [*((task, True) for task in TIMED), ("sm", False), ("tensor", False)])
def test_utilization_is_integrated_to_busy_time_for_shares_of_time(task: str, is_timed: bool) -> None:
    found = reported(gpu(), (f.utilization(task, ""), 0.5))
    assert found.get(("hw.gpu.time", task)) == (Rate(0.5) if is_timed else None)


def test_ratio_uses_the_newest_known_limit() -> None:
    device = gpu()
    assert ("hw.gpu.memory.utilization", "") not in reported(device, (f.memory_used(), 3))
    assert reported(device, (f.memory_used(), 3), (f.memory_total(), 12))["hw.gpu.memory.utilization", ""] == 0.25
    assert reported(device, (f.memory_used(), 6))["hw.gpu.memory.utilization", ""] == 0.5
    assert ("hw.power.utilization", "") not in reported(device, (f.power(), 100.0))
    reported(device, (f.power_limit("enforced"), 400))
    assert reported(device, (f.power(), 100.0))["hw.power.utilization", ""] == 0.25


def test_more_used_memory_than_there_is_is_dropped() -> None:
    device = gpu()
    found = reported(device, (f.memory_used(), 13), (f.memory_total(), 12))
    assert found == {("hw.gpu.memory.limit", ""): 12}
    assert device.unsupported == {f.memory_used().series: "the driver reports 13 of 12 bytes in use"}
    reported(device, (f.memory_used(), 12))
    assert device.unsupported == {}


def test_energy_is_integrated_from_power_only_without_a_counter() -> None:
    device, counting = gpu(), gpu()
    counting.counters.add(f.energy().series)
    assert reported(device, (f.power(), 100.0))["hw.energy", ""] == Rate(100.0)
    assert ("hw.energy", "") not in reported(counting, (f.power(), 100.0)), "the counter cannot be read for a moment"
    assert reported(counting, (f.power(), 100.0), (f.energy(), 7.5))["hw.energy", ""] == 7.5


def test_first_value_decides_whether_energy_is_counted_or_integrated() -> None:
    device, counting = gpu(), gpu()
    power, energy = (f.power(), 100.0), (f.energy(), 7.5)
    assert reported(device, power)["hw.energy", ""] == Rate(100.0)
    assert reported(device, power, energy)["hw.energy", ""] == Rate(100.0), "the total would begin again"
    assert reported(counting, power, energy)["hw.energy", ""] == 7.5
    assert ("hw.energy", "") not in reported(counting, power)


def test_implausible_value_is_dropped_until_it_is_plausible() -> None:
    device = gpu()
    assert reported(device, (f.temperature("gpu"), "N/A")) == {}
    assert device.unsupported == {f.temperature("gpu").series: "the driver reports 'N/A'"}
    assert reported(device, (f.temperature("gpu"), 61))
    assert device.unsupported == {}


def test_status_has_one_active_state() -> None:
    device = gpu()
    assert [*device.identity_points()] == []
    for state in STATES:
        device.state, device.trouble = ("ok", "lost") if state == "failed" else (state, "")
        points = {series.attributes[c.HW_STATE]: value for series, value in device.identity_points()}
        assert points == {each: int(each == state) for each in STATES}


def test_points_have_the_identity_of_the_device() -> None:
    part = Device("MIG-1", "MIG 0/3", parent="GPU-1")
    part.facts, part.state = {c.HW_VENDOR: "NVIDIA"}, "ok"
    points = [*part.points({f.power(): 1.0, f.memory_used(): 1}), *part.identity_points()]
    assert len(points) > 7
    for series, _ in points:
        expected = {c.HW_ID: "MIG-1", c.HW_NAME: "MIG 0/3", c.HW_PARENT: "GPU-1", c.HW_TYPE: "gpu"}
        expected = {name: word for name, word in expected.items() if name in series.metric.attributes}
        assert expected.items() <= series.attributes.items(), series


def test_failed_device_is_logged_once_and_retried_with_backoff(caplog: pytest.LogCaptureFixture) -> None:
    device, tried = gpu(), []
    with caplog.at_level(logging.INFO):
        for reading in range(1, 20):
            device.readings = reading
            if not device.backoff.is_waiting(reading):
                tried.append(reading)
                device.fail("lost")
        device.recover()
        device.recover()
    assert tried == [1, 3, 7, 15]
    assert [record.getMessage() for record in caplog.records] == [
        "GPU 0 (GPU-1): lost; its metrics are missing until it responds",
        "GPU 0 (GPU-1) responds again",
    ]
