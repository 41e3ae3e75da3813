"""The children of this process, and its agents, which are not its children."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any


def children() -> list[int]:
    """Return the children of this process."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


def outcome(pid: int, seconds: float) -> int | str:
    """Return the exit status of a child, or "hung" for one that runs for more than so many seconds: it is killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        threading.Event().wait(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hung"


@contextmanager
def held(*locks: AbstractContextManager[Any]) -> Iterator[None]:
    """Let another thread hold these locks, like a thread in the middle of its work. A child may be forked meanwhile."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            taken.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        if thread.is_alive():  # not in the child
            done.set()
            thread.join()


def agents(pid: int) -> list[int]:
    """Return the agents of a process, without the shells that started them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (process / "cmdline").read_text(errors="replace")
            if f"'--attach', '{pid}'" in line and not line.startswith("/bin/sh"):
                found.append(int(process.name))
    return found
