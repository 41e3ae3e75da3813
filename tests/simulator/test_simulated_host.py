"""The host of a simulated machine: its times are conserved, and each scenario shows in the numbers that it is about."""

from __future__ import annotations

import os
import sys
from itertools import count

import pytest
from tests.support.stage import Clock

from opentelemetry.instrumentation.hardware.drivers.simulated import SimulatedHost
from opentelemetry.instrumentation.hardware.simulator.scenarios import HOSTS
from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the files are Linux's")

SECONDS = 60.0


def simulated(scenario: str) -> tuple[LinuxMachine, Clock]:
    clock = Clock()
    start = clock()
    host = SimulatedHost(HOSTS[scenario], lambda: clock() - start, os.getpid())
    return LinuxMachine(host), clock


@pytest.mark.parametrize("scenario", HOSTS)
def test_times_of_each_cpu_add_up_to_the_time_that_passed(scenario: str) -> None:
    machine, clock = simulated(scenario)
    before, whole = machine.cpu_times_by_cpu(), machine.cpu_times()
    clock.now += SECONDS
    after = machine.cpu_times_by_cpu()
    for cpu, times in after.items():
        assert sum(times.values()) - sum(before[cpu].values()) == pytest.approx(SECONDS, abs=0.05)
    passed = sum(machine.cpu_times().values()) - sum(whole.values())
    assert passed == pytest.approx(SECONDS * len(after), abs=0.05 * len(after))


@pytest.mark.parametrize("scenario", HOSTS)
def test_program_uses_the_cpus_of_the_scenario_and_the_host_has_them(scenario: str) -> None:
    machine, clock = simulated(scenario)
    begun, before = machine.process(os.getpid()), machine.cpu_times()
    clock.now += SECONDS
    ended, after = machine.process(os.getpid()), machine.cpu_times()
    used = ended.user - begun.user
    assert used == pytest.approx(HOSTS[scenario].program * SECONDS, abs=0.05)
    (tree,) = (each for each in machine.tree(os.getpid()) if each.pid == os.getpid())
    assert tree.cpu_time >= used
    busy = sum(after[mode] - before[mode] for mode in ("user", "system"))
    cpus = len(machine.cpu_times_by_cpu())
    assert busy >= min(used, SECONDS * cpus) - 1.0
    assert all(after[mode] >= before[mode] for mode in after)


@pytest.mark.parametrize("scenario", HOSTS)
def test_pressure_is_a_share_of_the_time(scenario: str) -> None:
    machine, clock = simulated(scenario)
    before = machine.pressure()
    clock.now += SECONDS
    shares = {key: (now - before.get(key, 0.0)) / SECONDS for key, now in machine.pressure().items()}
    stalls = HOSTS[scenario].stalls
    assert shares == pytest.approx({key: stalls.get(key, 0.0) for key in shares}), "nothing of the real host"


def test_memory_that_the_real_host_lacks_is_not_that_of_the_simulated_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bottleneck of its GPUs would be ``host_memory``, which a test had that ran beside one with OOM kills."""
    real, kills = SimulatedHost._real, count()

    def kill(host: SimulatedHost, path: str) -> bytes:
        return b"oom_kill %d\n" % next(kills) if path == "/proc/vmstat" else real(host, path)

    monkeypatch.setattr(SimulatedHost, "_real", kill)
    machine, _ = simulated("one-core")
    assert machine.vmstat() == machine.vmstat() == {"oom_kill": 0}


def test_quota_throttles_its_share_of_the_periods() -> None:
    machine, clock = simulated("quota")
    before = machine.cgroup(os.getpid())
    clock.now += SECONDS
    after = machine.cgroup(os.getpid())
    assert after.cpu_limit == 2.0
    assert after.periods is not None
    assert before.periods is not None
    assert after.throttled_periods is not None
    assert before.throttled_periods is not None
    throttled = after.throttled_periods - before.throttled_periods
    assert throttled / (after.periods - before.periods) == pytest.approx(HOSTS["quota"].throttled)
    assert machine.limits(os.getpid()).cpus <= 2.0
