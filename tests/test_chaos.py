"""A job whose processes are started, forked, stopped and killed at random: one reporter, and never two."""

from __future__ import annotations

import os
import random
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import uuid4

import pytest
from tests.children import PATIENCE, command, started
from tests.programs.journal import Export, exports, repeated
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware.pipeline.reporter import JOB

HOST, RSS = "system.cpu.time", "process.memory.usage"


class Job:
    """The processes of a job, which export when they are told to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environ = {JOB: f"{os.geteuid()}/test:{uuid4()}", "PYTHONWARNINGS": "ignore::DeprecationWarning"}
        self._stack = ExitStack()
        self._read = 0
        self._channel = self._stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        self._channel.bind(str(folder / "test"))
        self._channel.settimeout(PATIENCE)
        self.running: list[int] = []
        self.stopped: list[int] = []

    def close(self) -> None:
        for pid in (*self.running, *self.stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._stack.close()

    def _tell(self, pid: int, word: str) -> int:
        self._channel.sendto(word.encode(), str(self._folder / str(pid)))
        return int(self._channel.recv(100))

    def _add(self, pid: int) -> None:
        wait_for((self._folder / str(pid)).exists, PATIENCE, "answer of a process")
        self.running.append(pid)

    def spawn(self) -> None:
        child = self._stack.enter_context(started(command("chaos", self._folder), self._environ))
        self._add(child.pid)

    def fork(self, pid: int) -> None:
        self._add(self._tell(pid, "fork"))

    def kill(self, pid: int) -> None:
        (self.stopped if pid in self.stopped else self.running).remove(pid)
        end = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: _has_ended(end), PATIENCE, "end of a process")
        finally:
            os.close(end)

    def stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        self.running.remove(pid)
        self.stopped.append(pid)

    def proceed(self, pid: int) -> None:
        os.kill(pid, signal.SIGCONT)
        self.stopped.remove(pid)
        self.running.append(pid)

    def report(self) -> list[Export]:
        """Let every running process export once."""
        for pid in self.running:
            assert self._tell(pid, "report") == pid
        found = exports(self._folder / "journal")[self._read :]
        self._read += len(found)
        return found


def _has_ended(process: int) -> bool:
    """Whether all threads of a process have ended."""
    return bool(select.select([process], [], [], 0)[0])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(3))
def test_one_process_reports_the_host_whatever_happens_to_the_others(job: Job, seed: int) -> None:
    chance = random.Random(seed)
    reporter = 0
    job.spawn()
    for _ in range(25):
        action = chance.choice(["spawn", "fork", "fork", "kill", "kill", "stop", "proceed"])
        everybody = [*job.running, *job.stopped]
        if action == "spawn" and len(everybody) < 6:
            job.spawn()
        elif action == "fork" and job.running and len(everybody) < 6:
            job.fork(chance.choice(job.running))
        elif action == "kill" and len(everybody) > 1:
            job.kill(reporter if reporter in everybody and chance.random() < 0.5 else chance.choice(everybody))
        elif action == "stop" and len(job.running) > 1:
            job.stop(chance.choice(job.running))
        elif action == "proceed" and job.stopped:
            job.proceed(chance.choice(job.stopped))
        chance.shuffle(job.running)
        found = job.report()
        assert [export.pid for export in found] == job.running
        reporters = [export.pid for export in found if HOST in export.names()]
        if reporter in job.stopped:
            assert reporters == [], "the stopped process still has the lock"
        elif job.running:
            assert len(reporters) == 1, "two processes or none report the host"
            assert reporter not in job.running or reporters == [reporter], "a reporter that runs was replaced"
            reporter = reporters[0]
        for export in found:
            assert repeated(export.points) == []
            (memory,) = export.values(RSS)
            assert memory == pytest.approx(_rss(export.pid), rel=0.2, abs=8 << 20)


def _rss(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")
