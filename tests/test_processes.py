"""One program, many processes: forks, spawned interpreters, ranks of a launcher, exec."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.support import children
from tests.support.journal import OURS, Export, exports
from tests.support.sink import Sink
from tests.tools.nvml import FakeNvml, h100

from opentelemetry.instrumentation.hardware.catalog import CATALOG
from opentelemetry.instrumentation.hardware.model import Scope
from opentelemetry.instrumentation.hardware.settings import JOB

HOST = {row.name for row in CATALOG if row.scope is Scope.HOST} - {
    "otel_hardware.cpu.time",
    "otel_hardware.source.up",
    "otel_hardware.source.read.duration",
}


# From 3.12 on Python warns of any fork in a process with threads, the SDK's included.
QUIET = {"PYTHONWARNINGS": "ignore::DeprecationWarning"}


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal"


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
    outcome = children.run(children.command("processes/forks", journal, report, way), QUIET)
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
    assert report["loud"] == {"threads": ["otel-hardware-process", "otel-hardware-reporter"]}
    assert names(loud) & HOST == set(), "the parent already reports the host"
    assert "system.cpu.time" in parent[-1].names(), "the parent reported after the fork"
    assert report["shutdown"] < children.END, "waiting for a thread that does not exist in the child takes 30 s"


def test_child_that_collects_before_our_fork_hook_exports_nothing_of_its_parent(journal: Path) -> None:
    outcome = children.succeed(children.command("processes/fork_collects_first", journal), QUIET)
    found = exports(journal)
    (child,) = of(int(outcome.stdout), found)
    assert child.values("application.steps"), "the child did not collect"
    assert "process.memory.usage" in names(found), "the parent reported nothing"
    assert child.names() == set()


def test_forks_during_readings_and_collections_do_not_hang() -> None:
    outcome = children.succeed(children.command("processes/fork_storm", 100, 20))
    report = json.loads(outcome.stdout)
    assert report["outcomes"] == [0] * 100, outcome.stderr
    assert report["collections"] > 0


def test_child_that_is_forked_during_an_export_ends_at_once() -> None:
    """The SDK leaves its lock locked in the child, which waits for 30 s at its end."""
    outcome = children.run(children.command("processes/fork_in_export"), QUIET)
    assert (outcome.stdout, outcome.stderr) == ("3\n", "")


@pytest.mark.parametrize("library", [[], ["logfire"]])
def test_child_that_is_forked_during_a_collection_collects(library: list[str]) -> None:
    """The MeterProvider of logfire hands on to one of the SDK."""
    if not all(map(find_spec, library)):
        pytest.skip("logfire is not installed")
    outcome = children.run(children.command("processes/fork_in_collection", *library), QUIET)
    locks = ["storage", "match", "aggregation", "registration"]
    assert (outcome.stdout, outcome.stderr) == ("".join(f"{lock} 3\n" for lock in locks), "")


def test_child_that_is_forked_during_an_http_export_exports_on_a_connection_of_its_own() -> None:
    """Neither requests nor urllib3 expects forks."""
    outcome = children.run(children.command("processes/fork_in_http_export"), QUIET)
    expected = "imported []\npools 3\nconnections 3\ncookies 3\nsenders 4 1\n"
    assert (outcome.stdout, outcome.stderr) == (expected, "")


@pytest.mark.parametrize("way", ["gevent", "gevent-late", "eventlet", "eventlet-late"])
def test_replaced_threads_read_and_end_silently(way: str) -> None:
    if find_spec(way.partition("-")[0]) is None:  # importing eventlet here would make forks of other tests warn
        pytest.skip("it is not installed")
    outcome = children.run(children.command("processes/greened", way), {"PYTHONWARNINGS": "ignore"})
    lines = [line for line in outcome.stderr.splitlines() if "not greened" not in line]  # of eventlet on Python 3.10
    assert (outcome.returncode, outcome.stdout, lines) == (0, "5 [] read\n", [])


@pytest.mark.parametrize("way", ["constructed", "instrumenting"])
def test_child_forked_before_the_start_has_one_session(way: str) -> None:
    outcome = children.run(children.command("processes/early_fork", way), {"PYTHONWARNINGS": "ignore"})
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "True\n", "")


def test_reading_threads_import_no_module() -> None:
    """A child forked while a thread imports a module hangs when it imports the same module."""
    assert children.scene("applications/imports") == []


# -- the job


class Rank:
    """A process that reports when it is told to."""

    def __init__(self, stack: ExitStack, journal: Path, environ: Mapping[str, str]) -> None:
        self.child = stack.enter_context(children.started(children.command("processes/job", journal, "wait"), environ))
        pid, self.key = self._line().split()
        self.pid = int(pid)

    def _line(self) -> str:
        line = self.child.stdout.readline()
        assert line, self.child.communicate()
        return line

    def report(self) -> None:
        print(file=self.child.stdin, flush=True)
        assert self._line() == "reported\n"

    def kill(self) -> None:
        self.child.kill()
        self.child.wait(children.PATIENCE)  # until all its threads have ended, of which each has the lock


UNIQUE = str(uuid4())
LAUNCHERS: dict[str, dict[str, str]] = {
    "torchrun": {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": UNIQUE, "MASTER_PORT": "29500", "WORLD_SIZE": "2"},
    "slurm": {"SLURM_JOB_ID": UNIQUE, "SLURM_STEP_ID": "0"},
    "mpirun": {"PMIX_NAMESPACE": UNIQUE},
    "mpiexec": {"PMI_SIZE": "2"},
}
NUMBER = {"torchrun": "RANK", "slurm": "SLURM_PROCID", "mpirun": "OMPI_COMM_WORLD_RANK", "mpiexec": "PMI_RANK"}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_a_launcher_that_is_not_instrumented_report_the_host_once(journal: Path, launcher: str) -> None:
    line = children.command("processes/ranks", NUMBER[launcher], 2, *children.command("processes/job", journal, "wait"))
    with children.started(line, LAUNCHERS[launcher]) as parent:
        pids = [int(parent.stdout.readline().split()[0]) for _ in range(2)]
        print(file=parent.stdin, flush=True)
        assert [parent.stdout.readline() for _ in pids] == ["reported\n"] * 2
        found = exports(journal)
        assert parent.communicate(timeout=children.PATIENCE) == ("", "")
    assert [len(of(pid, found)) for pid in pids] == [2, 2]
    assert reporters(found) == {pids[0]}
    assert "system.cpu.time" in of(pids[0], found)[0].names(), "the first export is not complete"
    assert all("process.cpu.time" in export.names() for export in found)


def test_orphan_becomes_reporter(journal: Path) -> None:
    """Its parent, which was instrumented and reported the host, has ended."""
    with ExitStack() as stack:
        parent = Rank(stack, journal, {})
        child = Rank(stack, journal, {JOB: parent.key})
        assert reporters(exports(journal)) == {parent.pid}
        assert parent.child.communicate(timeout=children.PATIENCE) == ("", "")
        child.report()
        assert reporters(exports(journal)) == {parent.pid, child.pid}


@children.inherited
@pytest.mark.parametrize("variable", [{"OTEL_METRICS_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}])
def test_child_of_a_parent_that_exports_nothing_reports_the_host(sink: Sink, variable: dict[str, str]) -> None:
    child = children.command("processes/ends", "return")
    settings = {name: sink.environment()[name] for name in variable if name in sink.environment()}
    script = f"import subprocess, sys, os; sys.exit(subprocess.call({child!r}, env=dict(os.environ) | {settings!r}))"
    if "OTEL_SDK_DISABLED" in variable:
        script = script.replace("| {}", "| {'OTEL_SDK_DISABLED': ''}")
    parent = [sys.executable, "-c", script]
    children.succeed(parent, sink.environment(3600) | children.AUTO_INSTRUMENTATION | variable)
    assert [{"system.cpu.time", "process.cpu.time"} <= export.names() for export in sink.exports] == [True]


def test_child_of_another_user_is_a_member_although_processes_are_hidden() -> None:
    found = children.scene("processes/hidden_processes")
    assert found["hidden"], "precondition: the child sees the process of its parent"
    assert found["parent"] is True
    assert found["child"] is False
    assert found["after the end of the lock"] is True


def test_job_key_with_a_reused_pid_is_ignored(journal: Path) -> None:
    """A process with that PID exists (this one), but it started at another time."""
    outcome = children.run(
        children.command("processes/job", journal, "alone"), {JOB: f"{os.geteuid()}/process:{os.getpid()}.1"}
    )
    assert reporters(exports(journal)) == {int(outcome.stdout.split()[0])}


def test_exec_keeps_the_reporter(journal: Path) -> None:
    outcome = children.succeed(children.command("processes/job", journal, "again"))
    (before, key), (after, again) = (line.split() for line in outcome.stdout.splitlines())
    assert (before, key) == (after, again)
    *_, first, final = exports(journal)
    assert first.names(OURS) & HOST
    assert final.names(OURS) & HOST


# -- the devices of a job


@pytest.fixture
def gpus(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path, h100(0), h100(1))


def task(gpus: FakeNvml, job: str, devices: str) -> dict[str, str]:
    """The environment of a SLURM task on this machine that may use these GPUs."""
    variables = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": "0", "CUDA_VISIBLE_DEVICES": devices}
    return gpus.environment | variables | {"OTEL_PYTHON_HARDWARE_SOURCES": "host,process,nvidia"}  # a faster start


def gpus_by_process(found: list[Export]) -> list[tuple[int, str]]:
    """Return who reported which GPU, once for each export, from what is sampled and from what is read slowly."""
    sampled, slow = (
        [(each.pid, point.attributes["hw.id"]) for each in found for point in each.points if point.name == name]
        for name in ("hw.gpu.memory.usage", "hw.gpu.info")
    )
    assert sorted(sampled) == sorted(slow)
    return sorted(sampled)


def host_reporters(found: list[Export]) -> list[int]:
    return [export.pid for export in found if "system.cpu.time" in export.names()]


ZERO, ONE = (str(h100(index)["UUID"]) for index in range(2))


def test_ranks_with_a_gpu_each_report_the_host_once_and_each_gpu_once(journal: Path, gpus: FakeNvml) -> None:
    """As with srun --gpus-per-task=1."""
    job = str(uuid4())
    with ExitStack() as stack:
        first, second = (Rank(stack, journal, task(gpus, job, devices)) for devices in "01")
        for rank in (first, second):
            rank.report()
        found = exports(journal)
        assert host_reporters(found) == [first.pid] * 2
        assert gpus_by_process(found) == sorted([(first.pid, ZERO), (second.pid, ONE)] * 2)


def test_ranks_in_cgroups_report_each_gpu_once(journal: Path, tmp_path: Path) -> None:
    """With ConstrainDevices=yes SLURM numbers the only GPU of each task 0."""
    job = str(uuid4())
    with ExitStack() as stack:
        ranks = []
        for index in range(2):
            (folder := tmp_path / str(index)).mkdir()
            ranks.append(Rank(stack, journal, task(FakeNvml(folder, h100(index)), job, "0")))
        assert gpus_by_process(exports(journal)) == sorted(zip((rank.pid for rank in ranks), (ZERO, ONE)))


def test_ranks_with_the_same_gpus_report_each_once_and_take_over(journal: Path, gpus: FakeNvml) -> None:
    job = str(uuid4())
    with ExitStack() as stack:
        ranks = [Rank(stack, journal, task(gpus, job, "0,1")) for _ in range(3)]
        assert gpus_by_process(exports(journal)) == sorted([(ranks[0].pid, ZERO), (ranks[0].pid, ONE)])
        while len(ranks) > 1:
            ranks.pop(0).kill()
            before = len(exports(journal))
            for rank in ranks:  # any of them may be the first to notice
                rank.report()
            found = exports(journal)[before:]
            assert sorted(gpu for _, gpu in gpus_by_process(found)) == sorted([ZERO, ONE])


def test_rank_takes_over_the_gpus_that_it_may_use_after_a_kill_and_after_an_end(journal: Path, gpus: FakeNvml) -> None:
    job = str(uuid4())
    with ExitStack() as stack:
        host, first, second, third = (Rank(stack, journal, task(gpus, job, devices)) for devices in "0111")
        first.kill()
        before = len(exports(journal))
        for rank in (host, second):
            rank.report()
        found = exports(journal)[before:]
        assert host_reporters(found) == [host.pid]
        assert gpus_by_process(found) == sorted([(host.pid, ZERO), (second.pid, ONE)])
        assert second.child.communicate(timeout=children.PATIENCE) == ("", "")
        before = len(exports(journal))
        third.report()
        assert gpus_by_process(exports(journal)[before:]) == [(third.pid, ONE)], "free at its end"
        assert host.child.poll() is None


@pytest.mark.parametrize("order", [("0,1", "0", "1"), ("0", "0,1", "1")])
def test_gpus_of_a_batch_script_and_of_its_tasks_are_reported_once(
    journal: Path, gpus: FakeNvml, order: tuple[str, ...]
) -> None:
    job = str(uuid4())
    with ExitStack() as stack:
        for devices in order:
            Rank(stack, journal, task(gpus, job, devices))
        assert sorted(gpu for _, gpu in gpus_by_process(exports(journal))) == sorted([ZERO, ONE])


def test_setting_reporter_applies_to_gpus(journal: Path, gpus: FakeNvml) -> None:
    job = str(uuid4())
    with ExitStack() as stack:
        first = Rank(stack, journal, task(gpus, job, "0"))
        modes = [{"OTEL_PYTHON_HARDWARE_REPORTER": mode} for mode in ("never", "always")]
        never, always = (Rank(stack, journal, task(gpus, job, "0,1") | mode) for mode in modes)
        expected = [(first.pid, ZERO), (always.pid, ZERO), (always.pid, ONE)]
        assert gpus_by_process(exports(journal)) == sorted(expected)
        assert of(never.pid, exports(journal)), "it does not export at all"


def test_outside_of_a_scheduler_one_process_reports_all_gpus(
    journal: Path, gpus: FakeNvml, job: dict[str, str]
) -> None:
    with ExitStack() as stack:
        first, _ = (
            Rank(stack, journal, gpus.environment | job | {"CUDA_VISIBLE_DEVICES": devices}) for devices in "01"
        )
        assert gpus_by_process(exports(journal)) == sorted([(first.pid, ZERO), (first.pid, ONE)])
