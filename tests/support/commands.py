"""The command `otel-hardware` in this process, and on a simulated machine with fixed values."""

from __future__ import annotations

import os
import shlex
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from tests.sources import machines
from tests.sources.tree import Fabricated, Tree
from tests.support.children import environment
from tests.support.stepped import Stepped

from opentelemetry.instrumentation.hardware.cli import exporters, findings, main, reporting, screen, snapshot
from opentelemetry.instrumentation.hardware.cli.exporters import Destination
from opentelemetry.instrumentation.hardware.cli.failures import Failure
from opentelemetry.instrumentation.hardware.cli.signals import Signals
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.pipeline import session, view
from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.spans.demand import Demand
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace, Usage

PID = 4242  # the process that runs the command, on a simulated machine

CHILD = machines.STRANGER
VERSIONS = {"python": "3.12.1", "opentelemetry-instrumentation-hardware": "1.0", "opentelemetry-sdk": "1.45.0"}


class Answer(NamedTuple):
    """The end of a command."""

    status: int
    out: str
    err: str


class Terminal(StringIO):
    """A text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def otel_hardware(*arguments: str, env: Mapping[str, str] | None = None) -> Answer:
    """Run the command in this process, in a clean environment and 100 columns.

    Its standard output is a terminal if the environment has TERM.
    """
    everything = {"COLUMNS": "100", "LINES": "24", **environment(env)}
    out = Terminal() if env and "TERM" in env else StringIO()
    err = StringIO()
    with patch.dict(os.environ, everything, clear=True), redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(arguments)
        except SystemExit as end:
            status = int(end.code or 0)
    return Answer(status, out.getvalue(), err.getvalue())


# -- a simulated machine


class Time:
    """Replaces the module `time`: sleeping takes no time, and the machine advances."""

    def __init__(self, advance: Callable[[float], None]) -> None:
        self.now = 1000.0
        self._advance = advance

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_763_800_000.0 + self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._advance(self.now - 1000.0)


def workstation(tick: int) -> Fabricated:
    """Four cores, a disk, a network interface, two file systems, and a program with a child."""
    files: machines.Files = {
        "/proc/stat": _stat(tick),
        "/proc/loadavg": "1.25 0.90 0.80 2/300 9000\n",
        "/proc/meminfo": machines.meminfo(32_900_000, 800_000, 200_000, 11_000_000, (4_000_000, 3_000_000)),
        "/proc/vmstat": machines.vmstat(tick),
        "/proc/diskstats": machines.diskstats(["nvme0n1"], tick),
        "/proc/net/dev": machines.dev(["lo", "eth0"], tick),
        "/sys/block/nvme0n1/device/model": "some disk\n",
        "/sys/class/net/eth0/device/vendor": "0x15b3\n",
        "/sys/class/net/lo/mtu": "65536\n",
        "/proc/filesystems": machines.FILESYSTEMS,
        "/proc/{pid}/mountinfo": machines.mountinfo(machines.ROOT, machines.DATA),
        "/proc/{pid}/stat": machines.process(31_025 + 50 * tick, 1850, 12, 600_000, 33_000_000),
        "/proc/{pid}/statm": "900000 600000 12000 700 0 500000 0\n",
        "/proc/{pid}/io": machines.io(tick),
        "/proc/{pid}/task/{pid}/children": f"{CHILD} ",
        f"/proc/{CHILD}/stat": machines.process(
            900 + 25 * tick, 100, 2, 50_000, 33_000_500, pid=CHILD, parent=machines.OURS
        ),
        f"/proc/{CHILD}/task/{CHILD}/children": "",
        "/proc/pressure/cpu": f"some avg10=0.12 avg60=0.09 avg300=0.04 total={7_100_000 + 120_000 * tick}\n",
    }
    spaces = {
        "/": FilesystemSpace(440 << 30, 210 << 30, 188 << 30),
        "/data": FilesystemSpace(14_000 << 30, 6_100 << 30, 6_100 << 30),
    }
    counts = 91_000 + 300 * tick, 14, 5_200 + 60 * tick, 480 + 9 * tick
    used = Usage(310.25 + 0.5 * tick, 18.5, *counts, 2_097_152 + 8192 * tick, 409_600 + 4096 * tick)
    return Fabricated(Tree(files, spaces, 4, 345_600.25 + tick, used, {"/proc/{pid}/fd": 14}))


def _stat(tick: int) -> str:
    """/proc/stat of four cores that work half of the time."""
    row = [
        2_400_000 + 150 * tick,
        4_800,
        360_000 + 50 * tick,
        16_000_000 + 190 * tick,
        120_000 + 8 * tick,
        60,
        tick,
        0,
        0,
        0,
    ]
    lines = [
        f"cpu{name} {' '.join(str(value // share) for value in row)}"
        for name, share in (("", 1), (0, 4), (1, 4), (2, 4), (3, 4))
    ]
    return "\n".join([*lines, "btime 1762000000", "processes 91011", ""])


@contextmanager
def simulated(at: Callable[[int], Fabricated] = workstation) -> Iterator[Time]:
    """While the block lasts, commands see a machine that is `at(n)` after n seconds, and read it in their own thread.

    NVIDIA's source has the drivers of this process instead: the environment leads it to a simulated library.
    """
    machine = at(0)
    clock = Time(lambda seconds: machine.become(at(int(seconds))))

    class Session(Stepped):
        """Reads the simulated machine in the calling thread."""

        def __init__(
            self,
            config: Config,
            pid: int | None = None,
            interval: float = 60.0,
            all_processes: bool = False,
            reporter: Reporter | None = None,
            demand: Demand | None = None,
        ) -> None:
            make, now = self._drivers, clock.monotonic
            super().__init__(config, pid, interval, make, now, all_processes, reporter=reporter, demand=demand)

        @staticmethod
        def _drivers(source: str) -> Drivers:
            return Drivers() if source == "nvidia" else machine

    with ExitStack() as stack:
        for module in (screen, snapshot, view):
            stack.enter_context(patch.object(module, "time", clock))
        wait = Signals.wait

        def no_signal(signals: Signals, seconds: float | None = None) -> int:
            if seconds is None:
                return wait(signals)
            clock.sleep(seconds)
            return 0

        stack.enter_context(patch.object(Signals, "wait", no_signal))
        stack.enter_context(patch.object(session, "Session", Session))
        stack.enter_context(patch.object(os, "getpid", lambda: PID))
        stack.enter_context(patch.object(socket, "gethostname", lambda: "workstation"))
        stack.enter_context(patch.object(findings, "versions", VERSIONS.copy))
        yield clock


def refused(where: Destination, seconds: float = 2.0) -> Failure:
    """Stands for `exporters.connection_failure`: nothing listens anywhere."""
    return Failure("connection refused", is_unreachable=True)


@contextmanager
def without_export() -> Iterator[None]:
    """While the block lasts, `run` exports nothing, and finds no Collector."""
    with (
        patch.object(exporters, "connection_failure", refused),
        patch.object(reporting, "_exported", lambda session, pid, target, limit: nullcontext(())),
    ):
        yield


# -- transcripts


def transcript(path: Path, env: Mapping[str, str]) -> str:
    """What the commands of a transcript print now: the lines of the file that begin with `$`, each with its output.

    Each has a simulated machine of its own. Lines of standard error begin with `! `; the last line has an exit status
    other than 0. Control sequences begin with `^[`.
    """
    blocks = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("$ "):
            words = shlex.split(line[2:])
            program = words.index("otel-hardware")
            variables = dict(word.split("=", 1) for word in words[:program])
            with simulated(), without_export():
                answer = otel_hardware(*words[program + 1 :], env={**env, **variables})
            errors = "".join(f"! {each}\n" for each in answer.err.splitlines())
            status = f"exit status {answer.status}\n" if answer.status else ""
            out = answer.out.replace("\x1b", "^[")
            blocks.append(f"{line}\n{out}{errors}{status}")
    return "\n".join(blocks)
