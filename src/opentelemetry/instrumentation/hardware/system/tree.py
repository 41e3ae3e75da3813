"""The observed process and its descendants: who they are, which PIDs of a driver they have, and their CPU time.

There are two ways to find the descendants in ``/proc``. The kernel lists the children of each thread
(``CONFIG_PROC_CHILDREN``): one file per thread of the tree. Or each process has its parent in its stat file: one file
per process of the machine. The first is cheaper for a small tree on a crowded machine, the second for processes with
many threads.

Drivers report the PIDs of the host, newer ones those of the PID namespace of the caller (pid_namespaces(7)), and one
driver can do both. In a container, the same number can be another process on the host. There, a PID alone is not
sufficient.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from errno import EPERM
from math import inf
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system import procfs
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty, open_files
from opentelemetry.instrumentation.hardware.system.machine import ONE_ROUND, Machine, TreeProcess

# The PID namespace of the host: the kernel gives it a fixed number (PROC_PID_INIT_INO).
_HOST_NAMESPACE = "pid:[4026531836]"

# Up to this number of threads, the children are read without counting the processes of the machine.
_FEW_THREADS = 256

# Seconds to wait for the walk of another source. It may hang.
_PATIENCE = 1.0

# Seconds by which the ages of two processes that are read one after the other can be wrong.
_AT_ONCE = 0.05


class ProcessTree:
    """A process and all its descendants.

    Args:
        machine: The machine, which lists the descendants.
        files: The kernel's files; None if the system is not Linux.
        pid: The process.
        evidence: Device files that a program opens to compute. Querying the driver must not open them.

    Attributes:
        folders: The folders of the processes in ``/proc`` at the last :meth:`refresh`.
        on_host: Whether this process is in the host's PID namespace, which the driver's PIDs refer to.
    """

    def __init__(self, machine: Machine, files: Files | None, pid: int, *evidence: str) -> None:
        self._machine = machine
        self._files = files
        self._pid = pid
        self._evidence = evidence
        self._folder_by_pid: dict[int, str] = {}
        self.on_host = files is None or _is_host_namespace(files)
        self.folders: list[str] = []

    def refresh(self) -> None:
        """List the processes of the tree again, for :meth:`among` and :meth:`computing`."""
        self._folder_by_pid = dict(self._processes())
        self.folders = [*self._folder_by_pid.values()]

    def _processes(self) -> list[tuple[int, str]]:
        """The PID in ``/proc`` and the folder of each process; empty if another namespace's ``/proc`` hides them."""
        pid, folder = self._pid, f"/proc/{self._pid}"
        if self._files is not None:
            try:
                folder = proc_folder(self._files, pid)
                if not (self.on_host or is_proc_ours(self._files)):
                    pid = int(self._files.link("/proc/self"))
            except (Unavailable, OSError):
                return []
        return [
            (pid, folder),
            *((child, f"/proc/{child}") for child in self._machine.descendants(self._pid, ONE_ROUND)),
        ]

    def among(self, pids: Iterable[int]) -> set[int]:
        """Return those of all PIDs that a driver reports at a time that certainly belong to the tree.

        In a container, a driver may report the PIDs of the container or those of the host. If any of them does not
        exist here they are those of the host, and one that is the same as ours belongs to another process.
        """
        pids = {*pids}
        if self.on_host:
            return pids & self._folder_by_pid.keys()
        return self.among_ours(pids) if self.exist(pids) else set()

    def among_ours(self, pids: Iterable[int]) -> set[int]:
        """Return those PIDs of this process's own namespace that belong to the tree and compute."""
        return {pid for pid in pids if pid in self._folder_by_pid and self._holds_evidence(self._folder_by_pid[pid])}

    def identifiable(self, pids: Iterable[int]) -> set[int]:
        """Return those of all PIDs that a driver reports at a time that certainly are the processes in ``/proc``."""
        pids = {*pids}
        if self.on_host:
            return pids
        return {pid for pid in pids if self._holds_evidence(f"/proc/{pid}")} if self.exist(pids) else set()

    def exist(self, pids: Iterable[int]) -> bool:
        """Whether there are processes with all of these PIDs in ``/proc``. On the host, the answer is not needed."""
        files = self._files
        return self.on_host or files is None or all(files.exists(f"/proc/{pid}") for pid in pids if pid)

    def computing(self) -> bool:
        """Whether any process of the tree has one of the evidence files open."""
        return any(map(self._holds_evidence, self.folders))

    def _holds_evidence(self, process: str) -> bool:
        return self._files is not None and any(path in self._evidence for path in open_files(self._files, process))


def runs(pid: int) -> bool:
    """Whether a process has this PID, also of another user or where ``/proc`` hides it."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == EPERM
    return True


def proc_folder(files: Files, pid: int) -> str:
    """The folder of a process in ``/proc``.

    A sandbox can start a program in a PID namespace of its own and leave it the ``/proc`` of the host. There
    ``/proc/<pid>`` is another process; only ``/proc/self`` and the children that the kernel lists are correct.

    Raises:
        Unavailable: ``/proc`` belongs to another PID namespace, and the process is not this one.
    """
    if pid == os.getpid():
        return "/proc/self"
    if not is_proc_ours(files):
        raise Unavailable(
            f"process {pid} cannot be identified: this is a PID namespace, and /proc shows the pids of the host",
            "mount a /proc for the namespace: unshare --mount-proc, bwrap --proc /proc",
        )
    return f"/proc/{pid}"


def is_proc_ours(files: Files) -> bool:
    """Whether ``/proc`` belongs to the PID namespace of this process."""
    return files.exists(f"/proc/self/task/{os.getpid()}")


def _is_host_namespace(files: Files) -> bool:
    try:
        return files.link("/proc/self/ns/pid") == _HOST_NAMESPACE
    except OSError:  # a kernel without PID namespaces
        return True


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


class TreeCpuTime:
    """CPU seconds that a process tree has used since the first walk. They never fall.

    When a process ends, its CPU time leaves the tree. The kernel adds it to the time of the parent's ended children
    when the parent waits for it (``cutime`` in proc_pid_stat(5)). So what a process used between the last walk and its
    end is counted, and what was counted before is not counted twice. Time is lost if no process of the tree waits for
    it: if the parent ignores SIGCHLD, or has ended before it.

    Attributes:
        seconds: The CPU time.
        has_children: Whether there has been a child since the first walk.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.has_children = False
        self._last: dict[int, TreeProcess] = {}
        self._due: dict[int, float] = {}
        self._root_age = 0.0

    def add(self, tree: Sequence[TreeProcess]) -> None:
        """Add what the processes, each behind its parent, used since the last walk."""
        ended = self._ended({each.pid: each.started for each in tree})
        due: dict[int, float] = {}
        for each in tree:
            before = self._last.get(each.pid)
            if before is not None and before.started == each.started:
                self.seconds += max(0.0, each.cpu_time - before.cpu_time)
                counted = ended.get(each.pid, 0.0)
                gained = each.reaped_cpu_time - before.reaped_cpu_time - self._due.get(each.pid, 0.0) - counted
                self.seconds += max(0.0, gained)
                self.has_children |= gained > 0
                if gained < 0 < counted:
                    # Not waited for yet: the parent was read before it did. It is expected until the next walk.
                    due[each.pid] = min(counted, -gained)
            elif self._last and each.age <= tree[0].age - self._root_age + _AT_ONCE:
                self.seconds += each.cpu_time + each.reaped_cpu_time
            # else it is older than the last walk, which missed it: it counts from now on
        self.has_children |= len(tree) > 1
        self._last = {each.pid: each for each in tree}
        self._due = due
        self._root_age = tree[0].age

    def _ended(self, started: dict[int, float]) -> dict[int, float]:
        """By PID of a parent that lives, the CPU time of its ended descendants that is counted already."""
        counted: dict[int, float] = {}
        for each in reversed(self._last.values()):  # children before their parents
            if started.get(each.pid) != each.started:
                time = each.cpu_time + each.reaped_cpu_time + counted.pop(each.pid, 0.0)
                counted[each.parent] = counted.get(each.parent, 0.0) + time
        return counted
