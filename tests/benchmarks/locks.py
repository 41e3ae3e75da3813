"""Count how often a piece of work releases the interpreter lock. Linux.

The work runs in a thread on one CPU, and a second thread of higher priority on the same CPU waits for the lock.
Whenever the work releases it, the kernel runs the waiting thread at once; that counts, and holds the lock, asleep,
until the work has asked for it back. So every release is counted, however short, and nothing else: the waiting thread
never asks.

Where the process may, both have real-time priorities, so that other programs on that CPU do not disturb the count.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

_ASKS = 0.0005
"""Seconds after which the work, when it waits for the lock, asks for it."""

_NEVER = 2.0
"""Seconds after which the counting thread would ask for it: longer than what is counted takes."""


class _Worker(threading.Thread):
    """Runs the work, at a lower priority than the thread that counts."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.working = self.done = False
        self.begin = threading.Event()
        self.error: Exception | None = None
        self._work = work

    def run(self) -> None:
        if os.sched_getscheduler(0) == os.SCHED_FIFO:
            os.sched_setparam(0, os.sched_param(1))
        else:
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        self.begin.wait()
        try:
            self.working = True
            self._work()
        except Exception as error:
            self.error = error
        finally:
            self.working = False
            self.done = True


@contextmanager
def _real_time() -> Iterator[None]:
    """Give this thread, and those that it starts, a real-time priority if it may have one."""
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, param)


def releases(work: Callable[[], object]) -> int:
    """How often the work releases the interpreter lock. It should be warm: a first call may open and import."""
    with _real_time():
        return _releases(work)


def _releases(work: Callable[[], object]) -> int:
    import resource  # not on Windows, where this module is imported by tests that are skipped

    cpus, interval = os.sched_getaffinity(0), sys.getswitchinterval()
    # Both in one call of C: between them the interpreter has no occasion to give the lock away.
    sleep = partial(ctypes.PyDLL(None).usleep, int(4e6 * _ASKS))
    keep = (sleep, partial(sys.setswitchinterval, _NEVER))
    os.sched_setaffinity(0, {max(cpus)})
    worker = _Worker(work)
    try:
        sys.setswitchinterval(_ASKS)
        worker.start()
        worker.begin.set()
        count = 0
        while not worker.done:
            sys.setswitchinterval(_ASKS)
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
            deque(map(partial.__call__, keep), maxlen=0)
            # Here the lock is given to the work, if it has asked, and comes back when the work lets go of it. Giving it
            # away makes this thread wait, so that it has been off the CPU more often than for its own sleep.
            given = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before > 1
            count += given and worker.working
    finally:
        sys.setswitchinterval(interval)
        os.sched_setaffinity(0, cpus)
        worker.join()
    if worker.error is not None:
        raise worker.error
    return count
