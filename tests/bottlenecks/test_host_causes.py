"""Causes on a real host: a real program that burns, waits or is throttled, beside a simulated GPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests.bottlenecks.trial import watched
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.bottlenecks.judge import Judge
from opentelemetry.instrumentation.hardware.bottlenecks.signals import signals

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="control groups and PSI are Linux's")

BURNS = "while True: pass"
SLEEPS = "import time; time.sleep(600)"
SYNCS = """
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
while True:
    os.pwrite(file, bytes(1 << 22), 0)
    os.fsync(file)
"""
PRESSURE = Path("/proc/pressure/io")


@contextmanager
def program(code: str, *arguments: object) -> Iterator[int]:
    """A program that runs until the end of the block. Returns its PID."""
    with subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)]) as child:
        try:
            yield child.pid
        finally:
            child.kill()


@contextmanager
def quota(share: float) -> Iterator[Path]:
    """The file of the processes of a new control group that may use a share of one CPU."""
    version1 = Path("/sys/fs/cgroup/cpu")
    group = (version1 if version1.is_dir() else Path("/sys/fs/cgroup")) / f"otel-hardware-{os.getpid()}"
    try:
        group.mkdir()
        if version1.is_dir():
            (group / "cpu.cfs_quota_us").write_text(str(int(100_000 * share)))
        else:
            (group / "cpu.max").write_text(f"{int(100_000 * share)} 100000")
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group with a quota can be made: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        wait_for(lambda: not (group / "cgroup.procs").read_text(), 20, "end of the processes that were killed")
        group.rmdir()


def verdict(pid: int) -> str:
    """The verdict about a simulated GPU that is hardly used, after 24 real readings of the host and a real program."""
    judge = Judge()
    with watched("1xH100:held", pid=pid) as (clock, viewer):
        for _ in range(24):
            time.sleep(0.1)
            clock.now = time.monotonic()
            view = viewer.collect()
            judge.observe(clock.now, 2.0, signals(view.snapshot.values, view.rates, is_limited=True))
    (found,) = judge.verdicts().values()
    return found.name


def test_program_that_burns_one_core() -> None:
    """On a busy machine its neighbours take part of the core."""
    with program(BURNS) as pid:
        begun = time.monotonic()
        found = verdict(pid)
        used = sum(psutil.Process(pid).cpu_times()[:2]) / (time.monotonic() - begun)
    if used < 0.95:
        pytest.skip("other programs took the core")
    assert found in ("cpu", "neighbours")


def test_program_under_a_cpu_quota() -> None:
    with quota(0.05) as processes, program(BURNS) as pid:
        processes.write_text(str(pid))
        assert verdict(pid) == "cpu_quota"


def test_program_that_waits_for_its_disk(tmp_path: Path) -> None:
    if not PRESSURE.exists():
        pytest.skip("this kernel has no pressure stall information")

    def stalled() -> float:
        return int(PRESSURE.read_text().partition("total=")[2].split()[0]) / 1e6

    with ExitStack() as stack:
        pid, *_ = [stack.enter_context(program(SYNCS, tmp_path / f"file{number}")) for number in range(8)]
        begun, before = time.monotonic(), stalled()
        found = verdict(pid)
        share = (stalled() - before) / (time.monotonic() - begun)
    if share < 0.15:
        pytest.skip(f"the disk is too fast: the host waited for it in {100 * share:.0f} % of the time")
    assert found == "storage"


def test_neighbours_that_use_all_cpus() -> None:
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            stack.enter_context(program(BURNS))
        assert verdict(stack.enter_context(program(SLEEPS))) == "neighbours"
