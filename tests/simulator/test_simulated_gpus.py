"""Simulated GPUs through the package: as the sources of both vendors read them, in commands, and in programs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sources.nvidia_gpus import simulated_gpus
from tests.support.children import AUTO_INSTRUMENTATION, run, succeed
from tests.support.sink import Sink
from tests.support.stage import Clock
from tests.tools import amdsysfs
from tests.tools.nvml import b200, geforce, h100, t4

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.simulated import PROGRAM, SimulatedDrivers, SimulatedServer
from opentelemetry.instrumentation.hardware.model import Metric, Series
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.simulator.cards import CARDS
from opentelemetry.instrumentation.hardware.simulator.machine import Machine, Spec
from opentelemetry.instrumentation.hardware.simulator.scenarios import HostLoad
from opentelemetry.instrumentation.hardware.sources import SourceContext, discover
from opentelemetry.instrumentation.hardware.sources.nvidia.simulated import SimulatedNvml

NVIDIA, AMD = ([name for name, card in CARDS.items() if card.vendor == vendor] for vendor in ("nvidia", "amd"))
CONSOLE = [sys.executable, "-m", "opentelemetry.instrumentation.hardware"]

TRACED = """
import json, time
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
spans = InMemorySpanExporter()
trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(spans))
with trace.get_tracer("program").start_as_current_span("work"):
    time.sleep(1.5)
print(json.dumps(dict(spans.get_finished_spans()[0].attributes)))
"""


def test_points_are_those_of_the_library(tmp_path: Path) -> None:
    """The simulated library in C answers the same calls with made-up numbers. Both give the same series."""
    for card, gpu in (("t4", t4(0)), ("h100", h100(0)), ("b200", b200(0)), ("rtx4090", geforce(0))):
        (tmp_path / card).mkdir()
        with simulated_gpus(tmp_path / card, gpu) as machine:
            machine.tick(0)
            library = dict(machine.runner.points(machine.stage.clock.now))
        _, simulated = read(card)
        for metric in (c.HW_GPU_MEMORY_LIMIT, c.HW_GPU_FREQUENCY_LIMIT, c.HW_POWER_LIMIT):
            assert constants(simulated, metric) == constants(library, metric) != [], card
        theirs, ours = ({series.metric for series in found} for found in (library, simulated))
        per_process = {metric for metric in theirs if metric.name.startswith("process.")}
        assert ours - theirs <= {c.PROCESS_GPU_MEMORY_USAGE, c.PROCESS_GPU_UTILIZATION, c.HW_GPU_SM_OCCUPANCY}, card
        missing = {metric.name for metric in theirs - ours - per_process}
        assert missing <= {"hw.gpu.throttle.time", "hw.temperature.limit", "hw.network.up", "hw.gpu.io"}, card


def constants(found: dict[Series, Any], metric: Any) -> list[tuple[str, float]]:
    """The values of a metric, by the attributes that do not name the GPU."""
    named = {c.HW_ID, c.HW_NAME, c.HW_PARENT}
    return sorted(
        (str(sorted((key, word) for key, word in series.attributes.items() if key not in named)), value)
        for series, value in found.items()
        if series.metric is metric
    )


def read(text: str, seconds: float = 4.0) -> tuple[Machine, dict[Series, Any]]:
    """A simulated machine, and what its source reads at last, after some seconds."""
    config, clock = Config.read({"simulate": text}, {}), Clock()
    machine = Machine(config.simulate, clock)
    server = SimulatedServer(HostLoad(), machine.now, config.simulate.gpus, 1)
    context = SourceContext(config, SimulatedDrivers(machine, server, PROGRAM), PROGRAM)
    source = discover()[config.simulate.vendor]()(context)
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


@pytest.mark.parametrize("card", NVIDIA)
def test_values_agree_with_each_other(card: str) -> None:
    _, found = read(card)
    power, limit = (values(found, metric)[0] for metric in (c.HW_POWER, c.HW_POWER_LIMIT))
    assert 0.3 * limit < power <= limit
    energy = values(found, c.HW_ENERGY)[0] - values(read(card, 0.0)[1], c.HW_ENERGY)[0]
    assert energy == pytest.approx(4.0 * power, rel=0.6), "it ran for four seconds"
    assert values(found, c.HW_GPU_MEMORY_USAGE)[0] < values(found, c.HW_GPU_MEMORY_LIMIT)[0]
    (info,) = [series.attributes for series in found if series.metric is c.HW_GPU_INFO]
    assert info[c.HW_NAME] == "GPU 0 simulated"
    assert info[c.HW_MODEL] == CARDS[card].model
    assert info.get(c.HW_SERIAL_NUMBER, "SIMULATED") == "SIMULATED"


def test_lost_gpu_has_an_xid_and_the_others_go_on() -> None:
    clock = Clock()
    nvml = SimulatedNvml(Machine(Spec.parse("2xh100:lost"), clock), 1)
    nvml.listen(["0", "1"])
    clock.now += 40.0
    assert nvml.get("0", "PowerUsage") > 0
    with pytest.raises(DriverError, match="lost"):
        nvml.get("1", "PowerUsage")
    assert nvml.events() == [("1", 79)]
    assert nvml.events() == []


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


def test_limit_that_acts_from_the_start_is_the_reason() -> None:
    _, found = read("MI300X:brake")
    times = values(found, c.HW_GPU_THROTTLE_TIME, hw_gpu_throttle_reason="thermal_hw")
    assert [value.per_second for value in times] == [1.0]


def test_lost_gpu_of_amd_is_missing_and_the_others_go_on() -> None:
    _, found = read("2xMI300X:lost", 40.0)
    assert values(found, c.HW_STATUS, hw_state="failed") == [0, 1]
    assert len(values(found, c.HW_POWER)) == 1


def test_files_of_amd_are_those_of_the_other_simulation() -> None:
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


@pytest.mark.parametrize(
    ("gpus", "text"),
    [
        ("4xH100", "the NVIDIA GPUs are simulated: 4 x NVIDIA H100 80GB HBM3, scenario training"),
        ("4xMI300X", "the AMD GPUs are simulated: 4 x AMD Instinct MI300X OAM, scenario training"),
    ],
)
def test_commands_say_that_the_gpus_are_simulated(gpus: str, text: str) -> None:
    answer = succeed([*CONSOLE, "snapshot", "--simulate", gpus, "--sources", "amd,nvidia"])
    assert answer.stderr.splitlines()[0].endswith(text)
    assert re.search(r"^GPU 3 simulated +\d", answer.stdout, re.MULTILINE)


def test_commands_say_that_the_host_is_simulated() -> None:
    answer = run([*CONSOLE, "snapshot", "--simulate", "2xH100:storage", "--sources", "nvidia"])
    expected = "the NVIDIA GPUs and the host's CPU times, pressure and control group are simulated: 2 x NVIDIA H100"
    assert expected in answer.stderr.splitlines()[0]


@pytest.mark.parametrize("card", ["H100", "MI300X"])
def test_values_of_a_metric_have_one_type(card: str) -> None:
    """Google Cloud Monitoring refuses the values of the other type: its metrics have one."""
    answer = run([*CONSOLE, "snapshot", "--simulate", f"2x{card}", "--format", "json"])
    types: dict[str, set[type]] = {}
    for point in json.loads(answer.stdout)["metrics"]:
        types.setdefault(point["name"], set()).add(type(point["value"]))
    assert "hw.energy" in types
    assert {name: found for name, found in types.items() if len(found) > 1} == {}


def test_request_in_json_has_the_resource_of_simulated_gpus() -> None:
    line = [*CONSOLE, "snapshot", "--sources", "nvidia", "--format", "otlp-json", "--simulate"]
    (batch,) = json.loads(run([*line, "2xH100"]).stdout)["resourceMetrics"]
    assert {"key": "otel_hardware.simulated", "value": {"boolValue": True}} in batch["resource"]["attributes"]


@pytest.mark.parametrize(("scenario", "status"), [("held", 1), ("training", 1), ("idle", 0)])
def test_simulated_gpus_at_work_are_not_free(scenario: str, status: int) -> None:
    answer = run([*CONSOLE, "free", "2"], {"OTEL_PYTHON_HARDWARE_SIMULATE": f"2xH100:{scenario}"})
    assert answer.returncode == status, answer.stderr


def test_program_has_spans_with_the_energy_of_simulated_gpus() -> None:
    with Sink() as sink:
        variables = {
            **AUTO_INSTRUMENTATION,
            **sink.environment(),
            "OTEL_PYTHON_HARDWARE_SIMULATE": "2xA100:inference",
            "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "hardware_job",
        }
        outcome = run([sys.executable, "-c", TRACED], variables)
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert 2 * 1.5 * CARDS["a100"].idle < found[c.SPAN_ENERGY.name] < 2 * 2.0 * CARDS["a100"].limit
    assert found[c.SPAN_GPU_MEMORY_PEAK.name] > 0
    assert {each["otel_hardware.simulated"] for each in sink.resources} == {True}
    assert "hw.power" in sink.names


def test_wrong_variable_is_one_warning() -> None:
    variables = {**AUTO_INSTRUMENTATION, "OTEL_PYTHON_HARDWARE_SIMULATE": "8 H100", "OTEL_METRICS_EXPORTER": "none"}
    outcome = run([sys.executable, "-c", "print('goes on')"], {**variables, "OTEL_TRACES_EXPORTER": "none"})
    assert outcome.stdout == "goes on\n"
    (line,) = outcome.stderr.splitlines()
    assert "OTEL_PYTHON_HARDWARE_SIMULATE: '8 H100' is not a number of GPUs and a card" in line
