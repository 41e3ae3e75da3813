"""Simulated GPUs of AMD, as the package's own source reads them from the files of the kernel's driver."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest
from tests.support.children import run
from tests.support.stage import Clock
from tests.tools import amdsysfs

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers.simulated import PROGRAM, SimulatedDrivers, SimulatedServer
from opentelemetry.instrumentation.hardware.model import Metric, Series
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.simulator.cards import CARDS
from opentelemetry.instrumentation.hardware.simulator.machine import Machine
from opentelemetry.instrumentation.hardware.simulator.scenarios import HostLoad
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.amd import Amd

AMD = [name for name, card in CARDS.items() if card.vendor == "amd"]
CONSOLE = [sys.executable, "-m", "opentelemetry.instrumentation.hardware"]


def read(text: str, seconds: float = 4.0) -> tuple[Machine, dict[Series, Any]]:
    """What the source reads at last, after some seconds."""
    config, clock = Config.read({"simulate": text}, {}), Clock()
    machine = Machine(config.simulate, clock)
    server = SimulatedServer(HostLoad(), machine.now, config.simulate.gpus, 1)
    source = Amd(SourceContext(config, SimulatedDrivers(machine, server, PROGRAM), PROGRAM))
    source.open()
    found = {}
    for _ in range(int(seconds / 2.0) + 1):
        found = dict(source.read_all())
        clock.now += 2.0
    source.close()
    return machine, found


def values(found: dict[Series, Any], metric: Metric, **attributes: str) -> list[Any]:
    wanted = {name.replace("_", "."): value for name, value in attributes.items()}
    rows = [(series.attributes, value) for series, value in found.items() if series.metric is metric]
    return [value for own, value in rows if wanted.items() <= own.items()]


@pytest.mark.parametrize("card", AMD)
def test_values_are_those_of_the_state(card: str) -> None:
    machine, found = read(f"2x{card}")
    for gpu in machine.gpus:
        name = {"hw_name": f"GPU {gpu.index} simulated"}
        assert values(found, c.HW_POWER, **name) == [pytest.approx(gpu.power, abs=0.01)]
        assert values(found, c.HW_ENERGY, **name) == [pytest.approx(gpu.energy, rel=1e-4)]
        assert values(found, c.HW_GPU_MEMORY_USAGE, **name) == [int(0.82 * gpu.card.memory)]
        infos = [series.attributes for series in found if series.metric is c.HW_GPU_INFO]
        assert infos[gpu.index][c.HW_MODEL] == gpu.card.model
        assert infos[gpu.index][c.HW_SERIAL_NUMBER] == "SIMULATED"


@pytest.mark.parametrize("card", AMD)
def test_heat_lowers_the_clocks_and_is_the_reason(card: str) -> None:
    """An MI300 counts the time, an MI200 says what is now."""
    machine, found = read(f"{card}:hot", 20.0)
    (gpu,) = machine.gpus
    earlier = read(f"{card}:hot", 18.0)[0].gpus[0]
    share = (
        (gpu.throttled["thermal"] - earlier.throttled["thermal"]) / 2.0 if gpu.card.links else float(bool(gpu.reason))
    )
    times = {
        series.attributes[c.THROTTLE_REASON]: value.per_second
        for series, value in found.items()
        if series.metric is c.HW_GPU_THROTTLE_TIME
    }
    assert times["thermal_sw"] == pytest.approx(share, abs=0.01)
    assert times["power_cap"] == times["thermal_hw"] == 0.0
    assert gpu.throttled["thermal"] > 5.0


def test_lost_gpu_is_missing_and_the_others_go_on() -> None:
    _, found = read("2xMI300X:lost", 40.0)
    assert values(found, c.HW_STATUS, hw_state="failed") == [0, 1]
    assert len(values(found, c.HW_POWER)) == 1


def test_files_are_those_of_the_other_simulation() -> None:
    """The tests of the source have files of their own. Those that both have are of the same form."""
    config = Config.read({"simulate": "MI300X"}, {})
    server = SimulatedServer(HostLoad(), lambda: 0.0, 1, 1)
    files = SimulatedDrivers(Machine(config.simulate, Clock()), server, PROGRAM).files()
    folder = f"{amdsysfs.DRM}/card0/device"
    theirs = amdsysfs.Gpu(metrics=amdsysfs.table(6, energy=1), power_file="power1_input").files()

    def form(content: object) -> str:
        text = content if isinstance(content, str) else bytes(content).decode()  # type: ignore[call-overload]
        return re.sub(r"[0-9a-fA-F]+", "#", text)

    for name in ("gpu_busy_percent", "mem_info_vram_used", "unique_id", "pcie_replay_count", "ras/umc_err_count"):
        assert form(files.read(f"{folder}/{name}")) == form(theirs[f"{folder}/{name}"]), name
    assert len(files.read(f"{folder}/gpu_metrics")) == len(theirs[f"{folder}/gpu_metrics"])  # type: ignore[arg-type]


def test_commands_say_that_the_gpus_are_simulated() -> None:
    answer = run([*CONSOLE, "snapshot", "--simulate", "4xMI300X", "--sources", "amd,nvidia"])
    assert answer.returncode == 0
    assert answer.stderr.splitlines()[0].endswith(
        "the AMD GPUs are simulated: 4 x AMD Instinct MI300X OAM, scenario training"
    )
    assert re.search(r"^GPU 3 simulated +\d", answer.stdout, re.MULTILINE)
