"""The number of NVML calls per reading and GPU."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.slow.benchmarks import fresh, gpu
from tests.slow.benchmarks.gpu import EVERYTHING, GPUS, SAMPLE
from tests.tools import fake_nvml

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


def counted() -> dict[str, tuple[list[Counter[str]], Counter[str]]]:
    """By model, the calls for a sample and for what is read seldom, and those of a minute."""
    return {model: (gpu.asked(model), gpu.minute(model)) for model in SAMPLED}


Calls = dict[str, tuple[list[dict[str, int]], dict[str, int]]]


@pytest.fixture(scope="module")
def calls() -> Calls:
    """The same, counted by one fresh interpreter."""
    fake_nvml()
    answer: Calls = fresh.call("tests.sources.nvidia.test_cost:counted")
    return answer


@pytest.fixture(params=SAMPLED)
def model(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _of_each(calls: tuple[str, ...]) -> Counter[str]:
    return Counter(f"gpu{index}.{call}" for index in range(GPUS) for call in calls)


def test_each_nvml_call_is_made_once_per_reading_and_gpu(model: str, calls: Calls) -> None:
    sampled, seldom = calls[model][0]
    gpm = {"EventSetWait": 1, "GpmMetricsGet": GPUS} if model == "h100" else {}
    assert sampled == _of_each(SAMPLED[model]) | gpm
    assert seldom == _of_each(SELDOM[model])


def test_nvml_calls_per_gpu_are_bounded(model: str, calls: Calls) -> None:
    sampled, seldom = (sum(each.values()) / GPUS for each in calls[model][0])
    assert sampled <= SAMPLE
    assert sampled + seldom <= EVERYTHING


def test_process_lists_and_error_fields_are_read_every_ten_seconds_at_most(model: str, calls: Calls) -> None:
    """A minute in which something is collected every two seconds."""
    _, minute = calls[model]
    for index in range(GPUS):
        samples = minute[f"gpu{index}.PowerUsage"]
        assert samples >= 30
        assert all(5 <= minute[f"gpu{index}.{call}"] <= 7 for call in _PROCESSES)
        assert 5 <= minute[f"gpu{index}.FieldValues"] - samples <= 8  # one for errors, and one to count the links
        assert minute[f"gpu{index}.RepairStatus"] <= 2
    assert not any("PcieThroughput" in call for call in minute)  # it takes 20 ms
