"""A job whose processes are started, forked, stopped and killed at random, and what they report meanwhile.

`python -m tests.slow.chaos [--processes 64] [--rounds 40] [--seed N]...` lets a large one report to a Collector and
prints a row for each seed. An interval is a round, in which all running processes export at the same time.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from uuid import uuid4

from tests.support import marker
from tests.support.children import PATIENCE, command, started
from tests.support.journal import Arrived, Export, exports, repeated
from tests.support.waiting import wait_for
from tests.tools.collector import Collector

from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.settings import JOB

HOST, RSS = "system.cpu.time", "process.memory.usage"
ACTIONS = ("spawn", "fork", "fork", "kill", "kill", "stop", "proceed")


class Job:
    """The processes of a job, which export when they are told to.

    Args:
        folder: An empty folder.
        collector: Where they export to; by default to a journal.
    """

    def __init__(self, folder: Path, collector: Collector | None = None) -> None:
        self._folder = folder
        self._collector = collector
        self._environ = {
            JOB: f"{os.geteuid()}/test:{uuid4()}",
            "PYTHONWARNINGS": "ignore::DeprecationWarning",
            "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": "hardware_job",
            "NO_PROXY": "*",
        }
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

    def _send(self, pid: int, word: str) -> None:
        self._channel.sendto(word.encode(), str(self._folder / str(pid)))

    def _answer(self) -> int:
        return int(self._channel.recv(100))

    def _add(self, pid: int) -> None:
        wait_for((self._folder / str(pid)).exists, PATIENCE, "answer of a process")
        self.running.append(pid)

    def begin(self) -> None:
        """Start a process that is no child of another one of the job."""
        url = [self._collector.http] if self._collector else []
        child = self._stack.enter_context(started(command("processes/chaos", self._folder, *url), self._environ))
        self._add(child.pid)

    def grow(self, word: str, pid: int) -> None:
        """Let a process fork or spawn."""
        self._send(pid, word)
        self._add(self._answer())

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
        """Let every running process export once, all at the same time."""
        for pid in self.running:
            self._send(pid, "report")
        assert sorted(self._answer() for _ in self.running) == sorted(self.running)
        return self._new_exports() if self._collector is None else self._arrived(self._collector)

    def holder(self) -> int | None:
        """Return the process that has the lock."""
        return Reporter({**os.environ, **self._environ}).holder()

    def _new_exports(self) -> list[Export]:
        found = exports(self._folder / "journal")[self._read :]
        self._read += len(found)
        return found

    def _arrived(self, collector: Collector) -> list[Export]:
        """Return what is new at the Collector: one export for each resource."""
        marker.settle(collector)
        points = collector.metrics()[self._read :]
        self._read += len(points)
        found: dict[frozenset[tuple[str, str]], Export] = {}
        for point in points:
            pid = point.resource.get("process.pid")
            if isinstance(pid, int):  # not the marker
                resource = frozenset((name, str(value)) for name, value in point.resource.items())
                export = found.setdefault(resource, Export(pid, point.time, []))
                export.points.append(Arrived(point.scope, point.name, point.value, point.attributes))
        return [*found.values()]


def _has_ended(process: int) -> bool:
    """Whether all threads of a process have ended."""
    return bool(select.select([process], [], [], 0)[0])


class Chaos:
    """A seeded run.

    Args:
        job: An empty job.
        seed: Of all decisions.
        size: The most processes at a time.

    Attributes:
        done: How often each action was taken.
        exports: How many exports were checked.
        takeovers: How often another process became reporter.
        vacant: Intervals in which a stopped process had the lock, so that the host was not reported.
        largest: The most processes at a time.
    """

    def __init__(self, job: Job, seed: int, size: int) -> None:
        self.done: Counter[str] = Counter()
        self.exports = self.takeovers = self.vacant = self.largest = 0
        self._job = job
        self._chance = random.Random(seed)
        self._size = size
        self._reporter = 0
        job.begin()

    def grow(self) -> None:
        """Start and fork processes until the job has its size."""
        while self._count() < self._size:
            self._act(self._chance.choice(("fork", "fork", "spawn")))

    def round(self, actions: int) -> None:
        """Do something to random processes, and check what all of them export then."""
        for _ in range(actions):
            self._act(self._chance.choice(ACTIONS))
        self.largest = max(self.largest, self._count())
        self._chance.shuffle(self._job.running)
        self._check(self._job.report())

    def _count(self) -> int:
        return len(self._job.running) + len(self._job.stopped)

    def _act(self, action: str) -> None:
        job, choice = self._job, self._chance.choice
        everybody = [*job.running, *job.stopped]
        chance = self._chance.random()
        if action in ("spawn", "fork") and job.running and len(everybody) < self._size:
            job.grow(action, choice(job.running))
        elif action == "kill" and len(everybody) > 1:
            job.kill(self._reporter if self._reporter in everybody and chance < 0.5 else choice(everybody))
        elif action == "stop" and len(job.running) > 1:
            job.stop(self._reporter if self._reporter in job.running and chance < 0.2 else choice(job.running))
        elif action == "proceed" and job.stopped:
            job.proceed(choice(job.stopped))
        else:
            return
        self.done[action] += 1

    def _check(self, found: list[Export]) -> None:
        job = self._job
        everybody = [*job.running, *job.stopped]
        self.exports += len(found)
        assert sorted(export.pid for export in found) == sorted(job.running), "not one export of each process"
        holder = job.holder()
        if holder is None and not job.running:
            return
        assert holder is not None, "no process has the lock"
        assert holder in everybody, f"{holder}, which has ended, has the lock"
        assert self._reporter not in everybody or holder == self._reporter, "a reporter that lives was replaced"
        self.takeovers += self._reporter not in (0, holder)
        self.vacant += holder in job.stopped
        self._reporter = holder
        reporters = [export.pid for export in found if HOST in export.names()]
        assert reporters == [holder] * (holder in job.running), f"{holder} has the lock, {reporters} report"
        for export in found:
            assert repeated(export.points) == []
            (memory,) = export.values(RSS)
            resident = _resident(export.pid)
            assert abs(memory - resident) < max(0.2 * resident, 8 << 20), (export.pid, memory, resident)


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


_ROW = "{:>4} {:>9} {:>6} {:>7} {:>9} {:>6}  {:36} {:>5}  {}"


def main() -> int:
    """Run large jobs, one for each seed. The exit status is 1 if one of them was not right."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow.chaos", description=__doc__)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, action="append")
    arguments = parser.parse_args()
    heads = ("seed", "processes", "rounds", "exports", "takeovers", "vacant", "actions", "s", "verdict")
    print(_ROW.format(*heads), flush=True)
    wrong = 0
    for seed in arguments.seed or range(5):
        began = time.monotonic()
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            job = Job(folder, stack.enter_context(Collector(folder)))
            stack.callback(job.close)
            chaos = Chaos(job, seed, arguments.processes)
            rounds, verdict = 0, "right"
            try:
                chaos.grow()
                for rounds in range(1, arguments.rounds + 1):  # noqa: B007
                    chaos.round(actions=8)
            except AssertionError as error:
                wrong, verdict = wrong + 1, f"round {rounds}: {error}"
            done = " ".join(f"{count} {action}" for action, count in sorted(chaos.done.items()))
            row = (seed, chaos.largest, rounds, chaos.exports, chaos.takeovers, chaos.vacant, done)
            print(_ROW.format(*row, f"{time.monotonic() - began:.0f}", verdict), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
