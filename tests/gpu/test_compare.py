"""The comparison of two readers, tested without a GPU on recorded output and simulated GPUs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.gpu.compare import COLUMNS, FIELDS, MOVING, Difference, Numbers, columns, differences, numbers, queried
from tests.gpu.timing import Timed
from tests.sources.nvidia_gpus import OnHost
from tests.support.samples import samples
from tests.tools import fake_nvml
from tests.tools.nvml import MIB, FakeNvml, listed, t4

from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.nvidia import Nvidia

UUID = "GPU-00001eb8-0000-4000-8000-000000000000"
NAMES = ("utilization.gpu", "memory.used", "temperature.memory", "power.draw", "clocks.current.sm", "pstate")

# As nvidia-smi prints it, by hand: of the simulated Tesla T4, and of a GPU that is lost.
PRINTED = f"""\
{UUID}, 41 %, 5000 MiB, [N/A], 38.12 W, 1065 MHz, P0
GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77, [GPU is lost], [Unknown Error], [Not Supported], [N/A], N/A, [N/A]
"""

HELP = """\
List of valid properties to query for the switch "--query-gpu":

Section about utilization properties
"utilization.gpu"
Percent of time over the past sample period during which one or more kernels was executing on the GPU.

"pstate"
The current performance state for the GPU. States range from P0 (maximum performance) to P12 (minimum performance).

"clocks.current.sm" or "clocks.sm"
Current frequency of SM (Streaming Multiprocessor) clock.
"""


@contextmanager
def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Nvidia, FakeNvml, Timed]]:
    """Open our source on a simulated Tesla T4, with timed calls."""
    fake = FakeNvml(folder, {**t4(), "ComputeRunningProcesses": listed((os.getpid(), MIB))})
    for name, value in fake.environment.items():
        monkeypatch.setenv(name, value)
    drivers = Timed(OnHost())
    source = Nvidia(SourceContext(Config(nvml=str(fake_nvml()), nvidia_smi="off"), drivers, os.getpid()))
    source.open()
    try:
        yield source, fake, drivers
    finally:
        source.close()


def _read(source: Nvidia) -> Numbers:
    return numbers([*source.read_all()])


def test_query_gpu_line_is_read_in_base_units() -> None:
    assert queried(NAMES, PRINTED) == {
        UUID: {
            "utilization.general": pytest.approx(0.41),
            "memory.used": 5000 * MIB,
            "power": 38.12,
            "frequency.sm": 1.065e9,
            "performance_state": 0,
        },
        "GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77": {},
    }


@pytest.mark.parametrize("path", samples("nvidia/exporter_capture_*h200*.txt"))
def test_recorded_query_gpu_line_of_a_busy_h200(path: Path) -> None:
    text = path.read_text()
    assert columns(text) == list(COLUMNS)
    heading, line = re.findall(r"^(timestamp, driver_version, .*)\n(.*)$", text, re.MULTILINE)[1]  # the busy one
    cells = dict(zip((name.partition(" [")[0] for name in heading.split(", ")), line.split(", ")))
    (found,) = queried(list(COLUMNS), ", ".join([cells["uuid"], *map(cells.__getitem__, COLUMNS)])).values()
    assert found == {
        "utilization.general": 1,
        "utilization.memory": pytest.approx(0.07),
        **{f"utilization.{engine}": 0 for engine in ("encoder", "decoder", "jpeg", "ofa")},
        "memory.total": 143771 * MIB,
        "memory.used": 32362 * MIB,
        "temperature.gpu": 52,
        "temperature.memory": 40,
        "power": 627.4,
        **{f"power.limit.{limit}": 700 for limit in ("enforced", "default", "max")},
        **{f"frequency{kind}.{domain}": 1.98e9 for kind in ("", ".limit") for domain in ("graphics", "sm")},
        **{f"frequency{kind}.memory": 3.201e9 for kind in ("", ".limit")},
        "frequency.video": 1.545e9,
        "performance_state": 0,
        "errors.corrected": 0,
        "errors.uncorrected": 0,
    }


def test_query_gpu_line_with_other_fields_is_an_error() -> None:
    with pytest.raises(ValueError, match="6 fields"):
        queried(NAMES, f"{UUID}, 41\n")


def test_only_columns_of_help_query_gpu_are_requested() -> None:
    assert columns(HELP) == ["utilization.gpu", "clocks.current.sm", "pstate"]


def test_columns_and_moving_quantities_have_fields() -> None:
    assert {column.quantity for column in COLUMNS.values()} | set(MOVING) == set(FIELDS)


def test_source_agrees_with_the_query_gpu_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, monkeypatch) as (source, fake, _):
        before = _read(source)
        asked = [COLUMNS[name].quantity for name in NAMES]
        theirs = {UUID: queried(NAMES, PRINTED)[UUID]}
        assert not list(differences(before, theirs, _read(source), asked))
        fake.set_lines({"gpu0.PerformanceState": 8, "gpu0.MemoryInfo": None})
        found = list(differences(before, theirs, _read(source), asked))
        assert found == [
            Difference(UUID, "memory.used", None, 5000 * MIB),
        ]


@pytest.mark.parametrize(
    ("theirs", "differs"),
    [(100.0, False), (140.0, False), (139.9, False), (160.0, False), (59.9, True), (201.0, True)],
)
def test_moving_value_may_lie_between_two_readings_with_some_room(theirs: float, differs: bool) -> None:
    found = list(differences({"a": {"power": 100}}, {"a": {"power": theirs}}, {"a": {"power": 160}}, ["power"]))
    assert found == ([Difference("a", "power", (100, 160), theirs)] if differs else [])


def test_constant_value_has_to_be_equal() -> None:
    still = {"a": {"memory.total": 16 * MIB, "power.limit.enforced": 70.0}}
    for quantity, other in (("memory.total", 18 * MIB), ("power.limit.enforced", 70.02)):
        assert list(differences(still, {"a": {quantity: other}}, still, [quantity]))
        assert not list(differences(still, still, still, [quantity]))


def test_device_seen_by_one_reader_is_a_difference() -> None:
    seen = {"a": {"power": 1.0}}
    assert list(differences(seen, {}, seen, ["power"])) == [Difference("a", "power", (1.0, 1.0), None)]
    assert list(differences({}, seen, {}, ["power"])) == [Difference("a", "power", None, 1.0)]
    assert not list(differences(seen, seen, seen, ["energy"]))


def test_timed_drivers_time_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path, monkeypatch) as (source, fake, drivers):
        drivers.seconds.clear()
        fake.forget_calls()
        _read(source)
        assert len(drivers.seconds["get PowerUsage"]) == fake.calls()["gpu0.PowerUsage"] == 1
        assert len(drivers.seconds["processes Compute"]) == 1
        assert len(drivers.seconds["fields"]) == fake.calls()["gpu0.FieldValues"] == 3
        assert all(0 < second < 10 for seconds in drivers.seconds.values() for second in seconds)
