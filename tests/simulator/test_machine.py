"""The physics of simulated GPUs, on a clock that is set by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
from tests.support.stage import Clock

from opentelemetry.instrumentation.hardware.simulator.cards import CARDS
from opentelemetry.instrumentation.hardware.simulator.machine import STEP, Gpu, Machine, Spec
from opentelemetry.instrumentation.hardware.simulator.scenarios import SCENARIOS

EVERY = [f"2x{card}:{scenario}@7" for card in CARDS for scenario in SCENARIOS]


def steps(text: str, seconds: float) -> Iterator[Gpu]:
    """Each GPU after each step."""
    machine = Machine(Spec.parse(text), Clock())
    for number in range(round(seconds / STEP)):
        for gpu in machine.gpus:
            gpu.step(number * STEP)
            yield gpu


def state(gpu: Gpu) -> tuple[float, ...]:
    return gpu.power, gpu.temperature, gpu.clock, gpu.energy, gpu.sent, gpu.linked, *gpu.work.values()


@pytest.mark.parametrize("text", EVERY)
def test_energy_is_the_integral_of_a_power_within_the_limit(text: str) -> None:
    energy = [0.0, 0.0]
    for gpu in steps(text, 90.0):
        if not gpu.load.is_lost:
            energy[gpu.index] += gpu.power * STEP
        assert gpu.energy == pytest.approx(energy[gpu.index])
        assert gpu.card.idle <= gpu.power <= gpu.card.limit + 1e-6
        assert 0.0 < gpu.clock <= 1.0
        assert gpu.temperature < gpu.card.slowdown + 2.0


@pytest.mark.parametrize("text", EVERY)
def test_counters_never_fall(text: str) -> None:
    rows: list[list[tuple[float, ...]]] = [[], []]
    for gpu in steps(text, 90.0):
        counters = gpu.energy, gpu.sent, gpu.received, gpu.linked, *gpu.work.values(), *gpu.throttled.values()
        rows[gpu.index].append((*counters, len(gpu.xids)))
    for each in rows:
        assert all(now >= then for before, after in pairwise(each) for then, now in zip(before, after))


@pytest.mark.parametrize("text", EVERY)
def test_clocks_are_lowered_when_and_only_when_a_limit_acts(text: str) -> None:
    throttled = [0.0, 0.0]
    for gpu in steps(text, 90.0):
        if gpu.load.is_lost:
            continue
        throttled[gpu.index] += STEP * bool(gpu.reason)
        assert (gpu.clock < 1.0 and gpu.load.busy > 0.0) == bool(gpu.reason)
        assert sum(gpu.throttled.values()) == pytest.approx(throttled[gpu.index])


@pytest.mark.parametrize(
    ("scenario", "reasons"),
    [("hot", {"thermal"}), ("brake", {"brake"}), ("training", set()), ("straggler", {"thermal"})],
)
@pytest.mark.parametrize("card", ["a100", "h100", "h200", "b200"])
def test_scenario_has_its_limit(card: str, scenario: str, reasons: set[str]) -> None:
    *_, first, second = steps(f"2x{card}:{scenario}", 60.0)
    found = {name for gpu in (first, second) for name, seconds in gpu.throttled.items() if seconds > 5.0}
    assert found == reasons


def test_same_seed_has_the_same_numbers() -> None:
    first, same, other = ([state(gpu) for gpu in steps(f"2xh100@{seed}", 20.0)] for seed in (7, 7, 8))
    assert first == same
    assert first != other


def test_pauses_are_caught_up_up_to_an_hour() -> None:
    clock = Clock()
    machine = Machine(Spec.parse("h100:idle"), clock)
    clock.now += 100.0
    machine.advance()
    assert machine.gpus[0].energy == pytest.approx(100.0 * CARDS["h100"].idle, rel=0.01)
    clock.now += 10 * 3600.0
    machine.advance()
    assert machine.gpus[0].energy == pytest.approx(3700.0 * CARDS["h100"].idle, rel=0.01)


def test_time_can_be_sped_up() -> None:
    clock = Clock()
    machine = Machine(Spec.parse("t4:idle"), clock, speed=60.0)
    clock.now += 10.0
    machine.advance()
    assert machine.gpus[0].energy == pytest.approx(600.0 * CARDS["t4"].idle, rel=0.01)
    assert machine.updated == pytest.approx(clock.now)


@pytest.mark.parametrize("card", CARDS)
def test_first_answer_is_that_of_a_gpu_at_work(card: str) -> None:
    machine = Machine(Spec.parse(f"{card}:held"), Clock())
    machine.advance()
    (gpu,) = machine.gpus
    assert gpu.load.memory > 0.5
    assert gpu.energy == pytest.approx(sum(gpu.powers) * STEP)
    assert machine.elapsed == 0.0


@pytest.mark.parametrize("text", ["", "8", "8 h100", "h100@x", "h100:", "8x", "0000000001xh100"])
def test_text_of_another_shape_is_no_specification(text: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        Spec.parse(text)


NAMES = "T4, A100, H100, H200, B200, RTX4090, MI300X, MI210"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4xV100", f"there is no card V100; the cards are {NAMES}"),
        ("x", f"there is no card x; the cards are {NAMES}"),
        ("4xH10O", "there is no card H10O; did you mean H100?"),
        ("8xh1000:hot", "there is no card h1000; did you mean H100?"),
        ("mi300", "there is no card mi300; did you mean MI300X?"),
        ("4xH100:Trainning@7", "there is no scenario Trainning; did you mean training?"),
        ("h100:sleeping", f"there is no scenario sleeping; the scenarios are {', '.join(SCENARIOS)}"),
        ("0xH100", "1 to 16 GPUs can be simulated"),
        ("17xh100", "1 to 16 GPUs can be simulated"),
        ("4000xh100", "1 to 16 GPUs can be simulated"),
    ],
)
def test_wrong_part_of_a_specification_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Spec.parse(text)


def test_most_gpus_are_simulated() -> None:
    assert Spec.parse("16XH100:HOT") == Spec(16, "h100", "hot", 0)


def test_specification_has_defaults() -> None:
    assert Spec.parse("H100") == Spec(1, "h100", "training", 0)
    assert Spec.parse(" 8xA100:inference@3 ") == Spec(8, "a100", "inference", 3)


@pytest.mark.parametrize(("card", "rate"), [("t4", 15.8e9), ("a100", 31.5e9), ("h100", 63e9)])
def test_pcie_rate_is_that_of_sixteen_lanes(card: str, rate: float) -> None:
    """By the PCI-SIG: 15.8, 31.5 and 63 GB/s in one direction for generation 3, 4 and 5."""
    assert CARDS[card].pcie_rate == pytest.approx(rate, rel=0.01)
