"""A program that was stopped, or whose wall clock was set, exports everything from the first collection on."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.support.children import PATIENCE, command, instrumented, started
from tests.support.journal import Export
from tests.support.sink import Sink
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.pipeline.pace import PERIODS, SHORTEST_PERIOD

HOST, RSS = "system.cpu.time", "process.memory.usage"
UP, SOURCE = "otel_hardware.source.up", "otel_hardware.source"

_FREEZERS = (  # the folder of new groups, the file that stops a group, and its words for stop and run
    (Path("/sys/fs/cgroup/freezer"), "freezer.state", "FROZEN", "THAWED"),
    (Path("/sys/fs/cgroup"), "cgroup.freeze", "1", "0"),
)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process by a signal."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Stop a process by the freezer of its control group."""
    for folder, file, stop, run in _FREEZERS:
        group = folder / f"otel-hardware-test-{pid}"
        try:
            before = Path(f"/proc/{pid}/cgroup").read_text()
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / file).exists():
                (group / "cgroup.procs").write_text(str(pid))
                (group / file).write_text(stop)
                try:
                    yield
                finally:
                    (group / file).write_text(run)
                    line = next(line for line in before.splitlines() if "freezer" in line or line.startswith("0::"))
                    (folder / line.rpartition(":")[2].lstrip("/") / "cgroup.procs").write_text(str(pid))
                return
        finally:
            with suppress(OSError):
                group.rmdir()
    pytest.skip("there is no freezer that this user may use: tried with a signal only")


def down(export: Export) -> set[str]:
    """The sources that are not up."""
    points = (point for point in export.points if point.name == UP and point.value != 1)
    return {str(point.attributes[SOURCE]) for point in points}


def next_exports(sink: Sink) -> list[Export]:
    """Wait for the next two exports."""
    count = len(sink.exports)
    wait_for(lambda: len(sink.exports) >= count + 2, PATIENCE, "export")
    return sink.exports[count : count + 2]


def test_first_export_after_a_stop_is_complete() -> None:
    with Sink() as sink:
        env = {**sink.environment(0.5), "OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": "0.2"}
        with started(instrumented("processes/ends", "return"), env) as child:
            wait_for(lambda: any(HOST in export.names() for export in sink.exports), PATIENCE, "export of the host")
            expected = next_exports(sink)[0].names()
            assert {HOST, RSS} <= expected
            for stop in (stopped, frozen):
                with stop(child.pid):
                    threading.Event().wait((PERIODS + 1) * SHORTEST_PERIOD)
                for export in next_exports(sink):
                    assert expected - export.names() == set()
                    assert down(export) == set()
            child.communicate("", timeout=PATIENCE)


@pytest.mark.parametrize("seconds", [-86400, 86400])
def test_exports_are_complete_after_the_wall_clock_was_set(seconds: int) -> None:
    with Sink() as sink, started(command("processes/wall_clock"), sink.environment(0.5)) as child:
        wait_for(lambda: any(HOST in export.names() for export in sink.exports), PATIENCE, "export of the host")
        before = next_exports(sink)[0]
        assert {HOST, RSS} <= before.names()
        print(seconds, file=child.stdin, flush=True)
        for after in next_exports(sink):
            assert before.names() - after.names() == set()
            assert down(after) == set()
            assert sum(after.values(HOST)) >= sum(before.values(HOST))
        assert abs(after.time - before.time - seconds) < PATIENCE, "the clock of the SDK was not set"
        child.communicate("", timeout=PATIENCE)
