"""Sources that hang, raise or return invalid data lose only their own metrics; the program runs on and exits."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from tests.support import children
from tests.support.journal import Export, Journal, exports, newest
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.catalog import HW_ERRORS, SOURCE
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.pipeline import found, pace
from opentelemetry.instrumentation.hardware.pipeline import runner as source_runner
from opentelemetry.instrumentation.hardware.sources import Source, discover


class Faulty:
    """The ways in which a driver fails; one switch turns all of them on and off."""

    def __init__(self) -> None:
        self.faulty = False
        self.answer = threading.Event()
        self.attempts = 0

    def raising(self) -> None:
        self.attempts += 1
        raise OSError("the driver failed")

    def sources(self) -> dict[str, type[Source]]:
        """Return a source for each kind of failure, by name."""
        bad: list[Any] = [2**63, float("nan"), True, "N/A", None]
        ways: dict[str, Callable[[], Any]] = {
            "hanging": lambda: self.answer.wait(60) and (),
            "raising": self.raising,
            "lying": lambda: [HW_ERRORS(value, {"hw.id": f"lie{at}"}) for at, value in enumerate(bad)],
            "babbling": lambda: [5, None, "N/A", object()],
        }
        return {name: self._source(name, way) for name, way in ways.items()}

    def _source(self, called: str, way: Callable[[], Any]) -> type[Source]:
        faults = self

        class Made(Source):
            name = called

            def open(self) -> None:
                pass

            def read(self) -> Iterator[Point]:
                if faults.faulty:
                    yield from way() or ()
                yield HW_ERRORS(7, {"hw.id": called})

        return Made


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    made = Faulty()
    known = discover()
    for name, source in made.sources().items():
        known[name] = lambda source=source: source  # type: ignore[misc]
    monkeypatch.setattr(found, "discover", lambda: known)
    yield made
    made.faulty = False
    made.answer.set()
    if HardwareInstrumentor().is_instrumented_by_opentelemetry:
        HardwareInstrumentor().uninstrument()


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[MeterProvider]:
    """A provider that exports every 100 ms, with a counter of the application that counts its collections."""
    reader = PeriodicExportingMetricReader(Journal(tmp_path / "journal"), export_interval_millis=100)
    made = MeterProvider([reader], shutdown_on_exit=False)
    collections = count(1)

    def collected(options: CallbackOptions) -> list[Observation]:
        return [Observation(next(collections))]

    made.get_meter("application").create_observable_counter("application.collections", [collected])
    yield made
    made.shutdown()


def up(export: Export) -> dict[str, int]:
    """The exported health of each source."""
    return {
        str(point.attributes[SOURCE]): point.value for point in export.points if point.name == "otel_hardware.source.up"
    }


def test_faulty_sources_lose_only_their_own_metrics_and_are_logged_once(
    faults: Faulty,
    provider: MeterProvider,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = set(faults.sources())
    others = {"system.cpu.time", "process.cpu.time", "system.filesystem.usage"}
    all_up, all_down = dict.fromkeys(names, 1), dict.fromkeys(names, 0)

    def last() -> Export:
        found = newest(tmp_path / "journal")
        assert found is not None
        return found

    def health() -> dict[str, int]:
        return {name: value for name, value in up(last()).items() if name in names}

    def logged(level: str) -> set[str]:
        """The sources with a message of this level. A hang is logged after the collection that detects it."""
        texts = [record.getMessage() for record in caplog.records if record.levelname == level]
        return {name for name in names if any(f"Source {name}" in text for text in texts)}

    monkeypatch.setattr(pace, "SHORTEST_PERIOD", 0.5)
    monkeypatch.setattr(source_runner, "RETRY", (0.1, 0.1))
    with caplog.at_level(logging.INFO, "opentelemetry.instrumentation.hardware"):
        HardwareInstrumentor().instrument(meter_provider=provider, sample_interval=0.2)
        wait_for(lambda: newest(tmp_path / "journal"), children.PATIENCE, "export")
        wait_for(lambda: health() == all_up and "process.cpu.time" in last().names(), children.PATIENCE, "health")
        faults.faulty = True
        wait_for(lambda: health() == all_down, children.PATIENCE, f"failure of all:  {names}")
        wait_for(lambda: logged("WARNING") >= names, children.PATIENCE, f"warnings of all: {names}")
        wait_for(lambda: faults.attempts >= 3, children.PATIENCE, "third attempt of a source that raises")
        ill = last()

        def others_are_read() -> bool:
            nonlocal ill
            ill = last()
            return others <= ill.names() and up(ill).items() >= all_down.items()

        wait_for(others_are_read, children.PATIENCE, f"values of the others: {others}")
        faults.faulty = False
        faults.answer.set()
        wait_for(lambda: health() == all_up, children.PATIENCE, f"recovery of all: {names}")
        wait_for(lambda: logged("INFO") >= names, children.PATIENCE, f"recovery of all in the log: {names}")
        wait_for(lambda: len(last().values("hw.errors")) == len(names), children.PATIENCE, "numbers of all")

    # The other sources stay up, and the valid point among invalid ones is kept.
    assert {value for name, value in up(ill).items() if name not in names} == {1}
    assert {point.attributes["hw.id"] for point in ill.points if point.name == "hw.errors"} <= {"lying"}
    # No collection was lost.
    HardwareInstrumentor().uninstrument()
    seen = [export.values("application.collections")[0] for export in exports(tmp_path / "journal")]
    assert seen == list(range(1, len(seen) + 1))
    # Each source is logged once when it fails and once when it recovers.
    report = [(record.levelname, record.getMessage()) for record in caplog.records]
    for name in names:
        assert [level for level, text in report if f"Source {name}" in text] == ["WARNING", "INFO"], (name, report)
    assert [text for level, text in report if level == "ERROR"] == []


# -- Sources of other packages, found by entry point.

PACKAGE = """
import threading
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.catalog import HW_ERRORS

class Good(Source):
    name = "good"
    def open(self): pass
    def read(self): yield HW_ERRORS(3, {"hw.id": "card0", "hw.type": "gpu"})

class Stuck(Source):
    name = "stuck"
    def open(self): pass
    def read(self): threading.Event().wait()
"""


@pytest.fixture
def package(tmp_path: Path) -> dict[str, str]:
    """An installed package with sources; two cannot be loaded, another hangs."""
    site = tmp_path / "site"
    about = site / "vendor-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    entries = {"good": "vendor:Good", "stuck": "vendor:Stuck", "lost": "vendor:Missing", "gone": "vendor:Missing"}
    entries["host"] = "vendor:Good"
    lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (about / "entry_points.txt").write_text(f"[opentelemetry_hardware_source]\n{lines}")
    (site / "vendor.py").write_text(PACKAGE)
    return {"PYTHONPATH": str(site)}


@pytest.mark.parametrize("end", ["uninstrument", "leave"])
def test_hanging_source_of_an_entry_point_does_not_hold_up_the_program_end(
    package: dict[str, str], tmp_path: Path, end: str
) -> None:
    outcome = children.run_past_last_line(
        children.command("applications/third_party", tmp_path / "journal", end), package
    )
    report = json.loads(outcome.stdout)
    assert {"otel-hardware-good", "otel-hardware-stuck"} <= set(report["threads"])
    assert {"otel-hardware-host", "otel-hardware-process"} <= set(report["threads"]), "each has its own thread"
    if end == "uninstrument":
        assert report["left"] == ["otel-hardware-stuck"]
        assert report["seconds"] < 10, "the exit waits for one second at most"
    warnings = [line for line in outcome.stderr.splitlines() if line.startswith("WARNING")]
    assert len(warnings) == 2, outcome.stderr
    (lost,) = [line for line in warnings if "lost" in line]
    (taken,) = [line for line in warnings if "host" in line]
    assert ("Missing" in lost, "vendor:Good" in taken) == (True, True)
    assert "gone" in lost, "one reason, one line"
    assert "ERROR" not in outcome.stderr


# -- A file system, an adapter and a file of /proc that do not respond: real FUSE mounts, and a FIFO.


def _beside_the_dead(tmp_path: Path, source: str, end: str, before: list[str], *settings: str) -> list[Export]:
    """Return what a program exports while the driver of one source does not respond."""
    journal = tmp_path / "journal"
    program = children.command("tools/dead_driver", journal, source, end, *settings)
    outcome = children.run_past_last_line([*before, *program])
    report = json.loads(outcome.stdout)
    others = {"host": "system.cpu.time", "process": "process.cpu.time", "filesystem": "system.filesystem.usage"}
    assert {name for other, name in others.items() if other != source} <= set(report["others"])
    assert sorted(report["up"])[:2] == [0, 1], "one is down, and no other"
    rows = discover()[source]().rows
    inner = tuple(
        row for load in discover().values() for row in load().rows if row.startswith(rows) and row not in rows
    )
    assert not [name for name in report["others"] if name.startswith(rows) and not name.startswith(inner)]
    found = exports(journal)
    assert [at for at, export in enumerate(found) if not export.values("application.steps")] == []
    lines = [line for line in outcome.stderr.splitlines() if f"Source {source}" in line]
    assert [line.split()[0] for line in lines] == ["WARNING", "INFO"][: 1 + (end == "heal")], outcome.stderr
    if end == "uninstrument":
        assert report["threads"] == [f"otel-hardware-{source}"]
        assert report["seconds"] < 10, "the exit waits for one second at most"
    return found


def _newest(found: list[Export], name: str, **attributes: object) -> list[Any]:
    """Return the values of the newest export that has any. On a slow machine, the last exports may be empty."""
    told = [values for export in found if (values := export.values(name, **attributes))]
    return told[-1] if told else []


@pytest.mark.parametrize("end", ["heal", "uninstrument", "leave"])
def test_dead_mount_loses_only_filesystem_metrics(tmp_path: Path, end: str) -> None:
    folder = tmp_path / "server"
    folder.mkdir()
    mount = children.command("machines/dead_mount", folder)
    found = _beside_the_dead(tmp_path, "filesystem", end, mount, f"disk_paths={folder},/")
    if end == "heal":
        assert _newest(found, "system.filesystem.limit", system_filesystem_mountpoint=str(folder)) == [4096 * 1000]


@pytest.mark.parametrize("end", ["heal", "uninstrument", "leave"])
def test_dead_adapter_loses_only_infiniband_metrics(tmp_path: Path, end: str) -> None:
    mount = children.command("machines/dead_mount", "/sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error")
    found = _beside_the_dead(tmp_path, "infiniband", end, [*children.command("machines/rdma_machine"), *mount])
    if end == "heal":
        assert _newest(found, "hw.errors", hw_id="mlx5_1/1", error_type="symbol") == [7]
        assert _newest(found, "hw.errors", hw_id="mlx5_0/1", error_type="symbol") == [2]


@pytest.mark.parametrize("end", ["heal", "uninstrument", "leave"])
def test_dead_disk_loses_only_hwmon_metrics(tmp_path: Path, end: str) -> None:
    mount = children.command("machines/dead_mount", "/sys/class/hwmon/hwmon2/temp1_input")
    found = _beside_the_dead(tmp_path, "hwmon", end, [*children.command("machines/sensors_machine", "intel"), *mount])
    if end == "heal":
        assert _newest(found, "hw.temperature", hw_id="nvme0")
        assert _newest(found, "hw.temperature", hw_id="package-0") == [61]


@pytest.mark.parametrize("end", ["heal", "uninstrument", "leave"])
def test_proc_file_that_hangs_loses_only_host_metrics(tmp_path: Path, end: str) -> None:
    """A FUSE server such as lxcfs can serve /proc/meminfo and not respond."""
    found = _beside_the_dead(tmp_path, "host", end, children.command("machines/dead_mount", "/proc/meminfo"))
    if end == "heal":
        assert _newest(found, "system.uptime")


def test_program_runs_on_while_opening_a_proc_file_hangs(tmp_path: Path) -> None:
    """A FIFO over /proc/meminfo. If open() held the interpreter lock, the whole program would hang."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    found = _beside_the_dead(
        tmp_path, "host", "uninstrument", children.command("machines/bound", fifo, "/proc/meminfo")
    )
    assert _newest(found, "process.memory.utilization"), "it does not need /proc/meminfo"


# -- A busy program, and a program without free descriptors.


def test_readings_are_fresh_beside_four_busy_threads() -> None:
    """Collections wait for the busy threads as well, so their number does not depend on the machine."""
    readings = 4
    collections = children.scene("processes/busy", 0.5, readings)
    assert len(collections) <= 10 * readings, "three would do: there are three in a period"
    assert all(value > 0 for collection in collections for _, value in collection.values())
    assert collections[-1]["process"][1] > collections[0]["process"][1]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="how glibc ends a thread")
@pytest.mark.parametrize("poor", ["descriptors", "files"])
def test_program_without_descriptors_or_files_exits_normally(tmp_path: Path, poor: str) -> None:
    """Python ends the remaining threads. glibc opens a library for this, and aborts the program if it cannot."""
    children.run_past_last_line(children.command("applications/poor_end", *[tmp_path] * (poor == "files")))
