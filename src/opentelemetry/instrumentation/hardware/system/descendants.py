"""The descendants of a process, from ``/proc``, and a walk over them that sources share.

There are two ways. The kernel lists the children of each thread (``CONFIG_PROC_CHILDREN``): one file per thread of the
tree. Or each process has its parent in its stat file: one file per process of the machine. The first is cheaper for a
small tree on a crowded machine, the second for processes with many threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.system import procfs
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty
from opentelemetry.instrumentation.hardware.system.process_tree import is_proc_ours, proc_folder

_FEW_THREADS = 256
"""Up to so many threads, the children are read without counting the processes of the machine."""


_PATIENCE = 1.0
"""Seconds to wait for the walk of another source. It may hang."""


class Walk(NamedTuple):
    """The descendants of a process at some time.

    Attributes:
        time: Seconds since boot, when the walk began.
        stats: The PIDs, each behind its parent, and the content of their stat files; empty if it was not needed.
    """

    time: float
    stats: Mapping[int, bytes]


class SharedWalk:
    """The newest walk over the tree of one process, for all sources of a session."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._newest = Walk(-inf, {})

    def get(self, pid: int, max_age: float, walk: Callable[[], Walk], now: float) -> Walk:
        """Return the newest walk, if it is not older than some seconds, or make another one.

        The content of the stat files is returned only to the source that has walked: for others, it is outdated.
        """
        locked = self._lock.acquire(timeout=_PATIENCE)
        try:
            if pid == self._pid and now - self._newest.time <= max_age:
                return self._newest
            found = walk()
            self._pid, self._newest = pid, Walk(found.time, dict.fromkeys(found.stats, b""))
            return found
        finally:
            if locked:
                self._lock.release()


def descendants(files: Files, pid: int) -> dict[int, bytes]:
    """Return the descendants of a process, each behind its parent; see :attr:`Walk.stats`.

    This process and its own are left out, if it is an agent that the other process has started.

    Raises:
        Unavailable: ``/proc`` belongs to another PID namespace, and the process is not this one.
    """
    if pid == os.getpid() and not files.has_children():
        return {}
    found = _by_children(files, proc_folder(files, pid))
    if found is not None:
        return dict.fromkeys(found, b"")
    return _by_parents(files, pid if is_proc_ours(files) else int(files.link("/proc/self")))


def _by_children(files: Files, root: str) -> list[int] | None:
    """The children of every thread; None if the kernel does not list them, or if the other way costs less."""
    pids: list[int] = []
    waiting = [root]
    walked = processes = 0
    threads = [0, 0]  # of the root, and of the others
    while waiting:
        folder = f"{waiting.pop()}/task"
        names = names_or_empty(files, folder)
        threads[walked > 0] += len(names)
        expected = sum(threads) + len(waiting) * threads[1] / max(1, walked)  # the rest has as many as those so far
        if expected > _FEW_THREADS:
            processes = processes or len(names_or_empty(files, "/proc"))
            if expected > processes:
                return None
        walked += 1
        for thread in names:
            try:
                children = [int(child) for child in files.read(f"{folder}/{thread}/children").split()]
            except FileNotFoundError:
                if not files.exists(f"{folder}/{thread}"):
                    continue  # the thread has ended
                return None
            except OSError:
                continue
            children = [child for child in children if child != os.getpid()]
            pids += children
            waiting += (f"/proc/{child}" for child in children)
    return pids


def _by_parents(files: Files, root: int) -> dict[int, bytes]:
    """The parent of every process on the machine; a process that cannot be read is missing, with its descendants."""
    children: dict[int, list[tuple[int, bytes]]] = {}
    for name in names_or_empty(files, "/proc"):
        if name.isdigit() and int(name) not in (root, os.getpid()):
            with suppress(OSError, ValueError, IndexError):  # it has ended, or belongs to another user
                text = files.read(f"/proc/{name}/stat")
                children.setdefault(int(procfs.stat(text)[1]), []).append((int(name), text))
    found = children.get(root, [])
    for pid, _ in found:  # grows on the way
        found += children.get(pid, ())
    return dict(found)
