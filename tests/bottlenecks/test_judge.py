"""The judge: how long it looks, when it abstains, and what it says of simulated machines."""

from __future__ import annotations

import pytest
from tests.bottlenecks.trial import EXPECTED, STEP, TRUE, verdicts

from opentelemetry.instrumentation.hardware.bottlenecks.judge import Judge, Verdict
from opentelemetry.instrumentation.hardware.simulator.scenarios import HostLoad

STORAGE = {"busy": 0.2, "memory": 0.5, "io_stall": 0.4, "iowait": 0.0}
BUSY = {"busy": 0.95, "sm": 0.8, "memory": 0.5, "io_stall": 0.0, "iowait": 0.0}


def said(judge: Judge) -> Verdict:
    (verdict,) = judge.verdicts().values()
    return verdict


def show(judge: Judge, what: dict[str, float], begin: float, end: float) -> None:
    """Show the same signals for a while."""
    now = begin
    while now < end:
        now += STEP
        judge.observe(now, STEP, {"gpu": dict(what)})


# -- the window


def test_no_verdict_before_40_seconds() -> None:
    judge = Judge()
    show(judge, STORAGE, 0.0, 38.0)
    assert said(judge).name == "unknown"
    show(judge, STORAGE, 38.0, 40.0)
    assert said(judge).name == "storage"


def test_verdict_looks_at_the_last_minute_and_says_since_when() -> None:
    judge = Judge()
    show(judge, STORAGE, 0.0, 100.0)
    assert (said(judge).name, said(judge).share) == ("storage", 1.0)
    show(judge, STORAGE, 100.0, 200.0)
    assert said(judge).since == pytest.approx(158.0)
    show(judge, BUSY, 200.0, 230.0)
    assert 0.4 < said(judge).share < 0.6
    show(judge, BUSY, 230.0, 270.0)
    assert said(judge).name == "none"


def test_signal_that_some_samples_lack_is_unknown() -> None:
    judge = Judge()
    show(judge, STORAGE, 0.0, 58.0)
    show(judge, {"busy": 0.2, "memory": 0.5}, 58.0, 60.0)
    verdict = said(judge)
    assert verdict.name == "unknown"
    assert "storage" in verdict.undecided


def test_no_verdict_while_a_program_loads() -> None:
    judge = Judge()
    show(judge, {"busy": 0.0, "memory": 0.0, "iowait": 0.9, "io_stall": 0.9}, 0.0, 60.0)
    show(judge, STORAGE, 60.0, 170.0)
    assert said(judge).name == "unknown"
    show(judge, STORAGE, 170.0, 250.0)
    assert said(judge).name == "storage"


def test_no_verdict_while_memory_fills() -> None:
    judge = Judge()
    show(judge, STORAGE, 0.0, 60.0)
    for step in range(10):
        show(judge, STORAGE | {"memory": 0.5 + 0.05 * step}, 60.0 + STEP * step, 62.0 + STEP * step)
    assert said(judge).name == "unknown"


def test_fault_in_one_sample_is_seen() -> None:
    judge = Judge()
    show(judge, BUSY | {"xids": 0.0}, 0.0, 30.0)
    show(judge, BUSY | {"xids": 0.5}, 30.0, 32.0)
    show(judge, BUSY | {"xids": 0.0}, 32.0, 60.0)
    assert said(judge).name == "failed"


def test_device_that_is_not_reported_any_more_has_no_verdict() -> None:
    judge = Judge()
    show(judge, STORAGE, 0.0, 60.0)
    judge.observe(62.0, STEP, {})
    assert said(judge).name == "unknown"


HANGS = {"busy": 1.0, "memory": 0.5, "power": 0.2, "power_peak": 1.01}


@pytest.mark.parametrize(
    ("signals", "expected"),
    [
        pytest.param({"sm": 0.1, "tensor": 0.0, "links": 0.0}, "stuck", id="a rank waits for another one"),
        pytest.param({"sm": 0.1, "tensor": 0.0, "links": 5e9}, "communication", id="a rank waits, and data arrives"),
        pytest.param({"sm": 0.25, "tensor": 0.2, "links": 5e9, "power": 0.6, "power_peak": 1.3}, "communication"),
        pytest.param({"sm": 0.1, "tensor": 0.0, "links": 0.0, "power_peak": 1.2}, "kernels_small", id="power varies"),
        pytest.param({"power_before": 0.5}, "stuck", id="older card: half of its usual power"),
        pytest.param({"power_before": 1.0}, "unknown", id="older card: its usual power"),
    ],
)
def test_hang_and_communication_are_told_apart(signals: dict[str, float], expected: str) -> None:
    judge = Judge()
    show(judge, HANGS | {"pcie": 0.0} | signals, 0.0, 60.0)
    assert said(judge).name == expected


def test_usual_power_lies_between_the_readings_also_with_one_in_an_hour() -> None:
    judge = Judge()
    for hour, watts in enumerate((300.0, 100.0, 300.0), 1):
        judge.observe(3600.0 * hour, 3600.0, {"gpu": HANGS | {"watts": watts}})
    assert said(judge).name == "unknown"


# -- simulated machines


@pytest.mark.parametrize("card", ["H100", "T4"])
@pytest.mark.parametrize("scenario", EXPECTED)
def test_verdicts_of_scenarios_are_right_or_abstain(scenario: str, card: str) -> None:
    names = {each.name for each in verdicts(f"2x{card}:{scenario}@7").values()}
    assert names <= {*EXPECTED[scenario], "unknown"}
    if scenario in TRUE and (card == "H100" or scenario not in ("small-kernels", "transfer")):
        assert TRUE[scenario] in names


@pytest.mark.parametrize("card", ["H100", "T4"])
def test_hang_is_still_one_after_ten_minutes(card: str) -> None:
    assert "stuck" in {each.name for each in verdicts(f"2x{card}:stuck@7", 600.0).values()}


def host(**stalls: float) -> HostLoad:
    return HostLoad(stalls={("cpu", "some"): 0.0, ("memory", "some"): 0.0, ("io", "some"): 0.0} | _some(stalls))


def _some(stalls: dict[str, float]) -> dict[tuple[str, str], float]:
    return {(resource, "some"): share for resource, share in stalls.items()}


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        pytest.param(host(io=0.11), "storage", id="disks, past the threshold"),
        pytest.param(host(io=0.09), "waiting", id="disks, before the threshold"),
        pytest.param(host(memory=0.055), "host_memory", id="memory, past the threshold"),
        pytest.param(host(memory=0.045), "waiting", id="memory, before the threshold"),
        pytest.param(host(io=0.09, memory=0.2), "host_memory", id="swapping, with some work of disks"),
        pytest.param(host(io=0.4, memory=0.04), "storage", id="disks, with some page cache pressure"),
        pytest.param(HostLoad(iowait=0.22), "storage", id="iowait, past the threshold"),
        pytest.param(HostLoad(iowait=0.18), "waiting", id="iowait, before the threshold"),
        pytest.param(HostLoad(program=1.0), "cpu", id="one core"),
        pytest.param(HostLoad(program=0.5), "waiting", id="half a core"),
        pytest.param(HostLoad(program=0.2, others=0.95), "neighbours", id="neighbours"),
        pytest.param(HostLoad(program=0.2, others=0.6), "waiting", id="some neighbours"),
        pytest.param(HostLoad(program=1.0, quota=1.0, throttled=0.3), "cpu_quota", id="quota, past the threshold"),
    ],
)
def test_causes_on_the_host_are_told_apart(load: HostLoad, expected: str) -> None:
    (verdict,) = verdicts("1xH100:storage@3", host=load).values()
    assert verdict.name == expected
