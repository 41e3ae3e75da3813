"""The number of NVML calls per reading and GPU."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.benchmarks import fresh
from tests.benchmarks.gpu import EVERYTHING, GPUS, SAMPLE
from tests.tools import fake_nvml, need

_SAMPLED = (
    *("UtilizationRates", "Samples.1", "MemoryInfo_v2", "Temperature.0", "PowerUsage", "ClockInfo.1", "ClockInfo.2"),
    *("CurrentClocksEventReasons", "FieldValues"),
)
_PROCESSES = tuple(f"{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics"))
_SELDOM = (
    *("EncoderUtilization", "DecoderUtilization", "JpgUtilization", "OfaUtilization", "ClockInfo.0", "ClockInfo.3"),
    *("PerformanceState", "EnforcedPowerLimit", "FieldValues", "ProcessUtilization", *_PROCESSES),
)
_FANS = ("FanSpeed_v2.0", "FanSpeed_v2.1", "FanSpeedRPM.0")

SAMPLED = {"h100": (*_SAMPLED, "GpmSampleGet"), "geforce": _SAMPLED}
SELDOM = {"h100": _SELDOM, "geforce": (*_SELDOM, *_FANS)}


@pytest.fixture(scope="module", params=["h100", "geforce"])
def model(request: pytest.FixtureRequest) -> str:
    need(fake_nvml)
    return str(request.param)


@pytest.fixture(scope="module")
def asked(model: str) -> list[dict[str, int]]:
    """For a sample, and for what is read seldom."""
    answer: list[dict[str, int]] = fresh.call("tests.benchmarks.gpu:asked", model)
    return answer


def _of_each(calls: tuple[str, ...]) -> Counter[str]:
    return Counter(f"gpu{index}.{call}" for index in range(GPUS) for call in calls)


def test_each_nvml_call_is_made_once_per_reading_and_gpu(model: str, asked: list[dict[str, int]]) -> None:
    sampled, seldom = asked
    gpm = {"EventSetWait": 1, "GpmMetricsGet": GPUS} if model == "h100" else {}
    assert sampled == _of_each(SAMPLED[model]) | gpm
    assert seldom == _of_each(SELDOM[model])


def test_nvml_calls_per_gpu_are_bounded(model: str, asked: list[dict[str, int]]) -> None:
    sampled, seldom = (sum(calls.values()) / GPUS for calls in asked)
    assert sampled <= SAMPLE
    assert sampled + seldom <= EVERYTHING


def test_process_lists_and_error_fields_are_read_every_ten_seconds_at_most(model: str) -> None:
    """A minute in which something is collected every two seconds."""
    calls = fresh.call("tests.benchmarks.gpu:minute", model)
    for index in range(GPUS):
        samples = calls[f"gpu{index}.PowerUsage"]
        assert samples >= 30
        assert all(5 <= calls[f"gpu{index}.{call}"] <= 7 for call in _PROCESSES)
        assert 5 <= calls[f"gpu{index}.FieldValues"] - samples <= 7  # a batch of them is for errors
    assert not any("PcieThroughput" in call for call in calls)  # it takes 20 ms
