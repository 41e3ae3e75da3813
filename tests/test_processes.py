"""One program, many processes: forks, spawned interpreters, ranks of a launcher, exec."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from tests import children
from tests.programs.journal import OURS, Export, exports
from tests.sink import Sink
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.model import Scope
from opentelemetry.instrumentation.hardware.pipeline import reporter as identity

HOST = {row.name for row in CATALOG if row.scope is Scope.HOST} - {
    "otel_hardware.cpu.time",
    "otel_hardware.source.up",
    "otel_hardware.source.read.duration",
}

inherited = pytest.mark.skipif(
    Version(version("opentelemetry-instrumentation")) < Version("0.63b0"),
    reason="before 0.63b0 opentelemetry-instrument does not instrument child interpreters",
)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as opened:
        yield opened


def of(pid: int, found: list[Export]) -> list[Export]:
    return [export for export in found if export.pid == pid]


def names(found: list[Export]) -> set[str]:
    """Return the names of our metrics in these exports."""
    return set().union(*(export.names() for export in found)) if found else set()


def reporters(found: list[Export]) -> set[int]:
    """Return the PIDs of the processes that reported the host."""
    return {export.pid for export in found if export.names() & HOST}


# -- fork


def fork(journal: Path, way: str) -> dict[str, Any]:
    """Run the forking program and return the report of its child."""
    report = journal.with_name("report")
    # From 3.12 on Python warns of any fork in a process with threads, the SDK's included.
    quiet = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}
    outcome = children.run(children.command("forks", journal, report, way), quiet)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    content: dict[str, Any] = json.loads(report.read_text())
    return content


@pytest.mark.parametrize("way", ["os", "multiprocessing"])
def test_forked_child_exports_nothing_of_ours_until_it_instruments_itself(journal: Path, way: str) -> None:
    report = fork(journal, way)
    child = of(report["pid"], exports(journal))
    silent, loud = child[: report["last silent export"]], child[report["last silent export"] :]
    assert report["silent"] == {"threads": [], "open": [], "instrumented": False}
    assert len(silent) >= 3
    assert [export.names() for export in silent if export.names()] == []
    assert all(export.values("application.steps") for export in child), "the child's own counter lost a collection"
    # Its own values: it has allocated 200 MiB that its parent does not have.
    parent = [export for export in exports(journal) if export.pid != report["pid"]]
    assert loud[0].values("process.memory.usage")[0] >= 200 << 20
    assert parent[-1].values("process.memory.usage")[0] < 200 << 20
    assert report["loud"] == {"threads": ["otel-hardware-process"]}
    assert names(loud) & HOST == set(), "the parent already reports the host"
    assert "system.cpu.time" in parent[-1].names(), "the parent reported after the fork"
    assert report["shutdown"] < children.END, "waiting for a thread that does not exist in the child takes 30 s"


def test_forks_during_readings_and_collections_do_not_hang() -> None:
    outcome = children.run(children.command("fork_storm", 200, 20))
    assert outcome.returncode == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    assert report["outcomes"] == [0] * 200, outcome.stderr
    assert report["collections"] > 0


def test_reading_threads_import_no_module() -> None:
    """A child forked while a thread imports a module hangs when it imports the same module."""
    outcome = children.run(children.command("imports"))
    assert outcome.returncode == 0, outcome.stderr
    assert json.loads(outcome.stdout) == []


# -- spawn


def pids(child: subprocess.Popen[str]) -> dict[str, int]:
    """The process ids that the program prints, by role."""
    assert child.stdout
    lines = [child.stdout.readline().split() for _ in range(2)]
    return {name: int(pid) for name, pid in lines}


@inherited
@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_child_interpreter_reports_process_metrics_only(sink: Sink, way: str) -> None:
    # A child of the fork server is a fork: it exports nothing until it instruments itself.
    extra = ["instrument"] if way == "forkserver" else []
    line = children.instrumented("spawns", way, *extra)
    # The SDK cannot export in a child that was forked during an export. So a child of the fork server exports itself,
    # and the others export at their end.
    with children.started(line, sink.environment(60.0 if way == "forkserver" else 0.3)) as program:
        who = pids(program)
        wait_for(lambda: names(of(who["child"], sink.exports)), children.PATIENCE, "export of the child")
        if way == "spawn":
            wait_for(lambda: reporters(sink.exports), children.PATIENCE, "export of the host")
            seen = len(sink.exports)
            wait_for(lambda: len(sink.exports) >= seen + 3, children.PATIENCE, "further exports")
        assert (*children.end_of(program), program.returncode) == ("", "", 0)
    assert reporters(sink.exports) == {who["parent"]}
    # Not the resource tracker of multiprocessing, nor its fork server.
    assert {export.pid for export in sink.exports if export.names()} == set(who.values())
    own_metrics = names(of(who["child"], sink.exports))
    assert {"process.cpu.time", "process.memory.usage"} <= own_metrics
    assert {name for name in own_metrics if not name.startswith(("process.", "otel_hardware."))} == set()


# -- the job


def test_ranks_of_a_launcher_do_not_report_the_host(journal: Path) -> None:
    ranks = 2
    outcome = children.run(children.command("job", journal, "launch", ranks))
    assert outcome.returncode == 0, outcome.stderr
    launcher = int(outcome.stdout.split()[0])
    found = exports(journal)
    assert len({export.pid for export in found if "process.cpu.time" in export.names()}) == ranks + 1
    assert reporters(found) == {launcher}
    (key,) = {line.split()[1] for line in outcome.stdout.splitlines()}
    assert key.startswith(f"{launcher}.")


def test_another_process_becomes_reporter_after_the_reporter_died(journal: Path) -> None:
    with children.started(children.command("job", journal, "wait")) as reporter:
        assert reporter.stdout
        pid, key = reporter.stdout.readline().split()
        job = {identity.JOB: key}
        member = children.run(children.command("job", journal, "alone"), job)
        assert member.stdout.split()[1] == key
        assert reporters(exports(journal)) == {int(pid)}
        reporter.kill()
        # It is a zombie now, because its parent has not waited for it.
        wait_for(lambda: identity.start_time(int(pid)) is None, children.PATIENCE, "end of the reporter")
        heir = children.run(children.command("job", journal, "alone"), job)
    assert heir.stdout.split() != [pid, key]
    assert reporters(exports(journal)) == {int(pid), int(heir.stdout.split()[0])}


def test_job_key_with_a_reused_pid_is_ignored(journal: Path) -> None:
    """A process with that PID exists (this one), but it started at another time."""
    outcome = children.run(children.command("job", journal, "alone"), {identity.JOB: f"{os.getpid()}.1"})
    assert reporters(exports(journal)) == {int(outcome.stdout.split()[0])}


def test_exec_keeps_the_reporter(journal: Path) -> None:
    outcome = children.run(children.command("job", journal, "again"))
    assert outcome.returncode == 0, outcome.stderr
    (before, key), (after, again) = (line.split() for line in outcome.stdout.splitlines())
    assert (before, key) == (after, again)
    *_, first, final = exports(journal)
    assert first.names(OURS) & HOST
    assert final.names(OURS) & HOST
