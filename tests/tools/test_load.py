"""The load of the simulated GPUs: the library and `load.py` agree, and the energy between two instants is known."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.tools.load import Constant, Follow, Load, Random, loaded
from tests.tools.nvml import FakeNvml, h100
from tests.tools.reader import reading

NOW = 1_790_000_000.0
INSTANTS = [NOW + step for step in (0.0, 0.0199, 0.02, 0.31, 1.77, 9.6, 11.1, 86_400.123, 7e6 + 0.4321)]
EVERYTHING = """(
    nvmlDeviceGetTotalEnergyConsumption(gpu), nvmlDeviceGetPowerUsage(gpu),
    nvmlDeviceGetUtilizationRates(gpu).gpu,
    [(f.nvmlReturn, f.timestamp, f.valueType, f.value.ullVal) for f in nvmlDeviceGetFieldValues(gpu, [83, 185, 186])],
)""".replace("\n", "")
ENERGY = "(lambda f: (f.timestamp, f.value.ullVal))(nvmlDeviceGetFieldValues(gpu, [83])[0])"


def following(folder: Path, period: float = 0.02) -> Follow:
    return Follow(file=folder / "levels", period=period)


def followed(folder: Path) -> Follow:
    """A load whose changes lie in the past of the first instant and beyond."""
    load = following(folder)
    changes = ((-3.0, 1.0, 0.0), (0.005, 0.5, 3.005), (0.3, 0.0, 3.1525), (9.5, 1.0, 3.1525))
    load.file.write_bytes(b"".join(Follow.CHANGE.pack(NOW + at, level, busy) for at, level, busy in changes))
    return load


def machine(folder: Path, *loads: Load) -> FakeNvml:
    return FakeNvml(folder, *(loaded(h100(index), load) for index, load in enumerate(loads)))


def near(number: float) -> Any:
    """The number in thousandths, one more or less: a compiler may round in another order."""
    return pytest.approx(int(1e3 * number), abs=1.0)


def answers(load: Load, at: float, gpu: int) -> list[Any]:
    """What the driver answers to EVERYTHING."""
    mean, energy = near(load.mean_watts(at, gpu)), pytest.approx(load.counter(at, gpu), abs=1.0)
    updated = at if load.stamp_call else load.updated(at)
    return [
        energy,
        mean,
        pytest.approx(100 * load.utilization(at, gpu), abs=0.51),
        [
            [0, pytest.approx(1e6 * updated, abs=1.0), 3, energy],
            [0, pytest.approx(1e6 * at, abs=1.0), 1, mean],
            [0, pytest.approx(1e6 * at, abs=1.0), 1, near(load.watts(at, gpu))],
        ],
    ]


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda folder: Random(), id="random"),
        pytest.param(lambda folder: Random(seed=-9, slot=0.05, base=70, peak=650, period=0), id="random, no period"),
        pytest.param(lambda folder: Random(period=0.1, stamp_call=True), id="random, time of the call"),
        pytest.param(lambda folder: Constant(always=0.25, period=0.1), id="constant"),
        pytest.param(followed, id="follow"),
    ],
)
def test_library_and_python_agree(make: Callable[[Path], Load], tmp_path: Path) -> None:
    load = make(tmp_path)
    fake = machine(tmp_path, load, load)
    with reading(fake) as reader:
        for at in INSTANTS:
            fake.set_lines({"Clock": repr(at)})
            for gpu in (0, 1):
                reader.ask(f"(gpu := nvmlDeviceGetHandleByIndex({gpu})) and None")
                assert reader.ask(EVERYTHING) == answers(load, at, gpu), (at, gpu)


@pytest.mark.parametrize("make", [lambda folder: Random(seed=5), followed], ids=["random", "follow"])
def test_joules_are_the_sum_of_the_watts(make: Callable[[Path], Load], tmp_path: Path) -> None:
    load, begin, step = make(tmp_path), NOW - 5.4321, 1e-3
    sums = sum(load.watts(begin + step * (index + 0.5)) * step for index in range(30_000))
    assert load.joules(begin, begin + 30) == pytest.approx(sums, rel=1e-4)
    assert load.joules(begin, begin + 10) + load.joules(begin + 10, begin + 30) == pytest.approx(sums, rel=1e-4)


def test_counter_is_the_energy_until_its_last_update(tmp_path: Path) -> None:
    for load in (Random(), Random(period=0.1), followed(tmp_path)):
        first, last = INSTANTS[0] + 0.0123, INSTANTS[5] + 0.0123
        counted = (load.counter(last) - load.counter(first)) / 1e3
        assert counted == pytest.approx(load.joules(load.updated(first), load.updated(last)), abs=0.01)
        assert abs(counted - load.joules(first, last)) <= load.peak * load.period


POLLED = f"""(lambda ask, pool: [sorted(part) for part in pool.map(
    lambda _: [ask() for _ in range(500)], range(4))])(
    lambda: {ENERGY}, __import__("concurrent.futures").futures.ThreadPoolExecutor(4))""".replace("\n", "")


def test_counter_is_exact_while_a_program_sets_the_level(tmp_path: Path) -> None:
    load = following(tmp_path, period=0)
    begin = load.set(0)
    with reading(machine(tmp_path, load)) as reader:
        reader.begin(POLLED)
        changes = 0
        while not reader.answered():
            load.set(changes % 3 / 2)
            changes += 1
            time.sleep(0.0005)
        polled = reader.answer()
    end = load.set(0)
    assert changes > 10
    readings = [reading for part in polled for reading in part]
    assert all(begin <= microseconds / 1e6 <= end for microseconds, _ in readings)
    for microseconds, millijoules in readings:
        assert millijoules == pytest.approx(load.counter(microseconds / 1e6), abs=3.0), changes
