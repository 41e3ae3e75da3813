"""The PIDs of all descendants of a process, from ``/proc``.

There are two ways. The kernel lists the children of each thread (``CONFIG_PROC_CHILDREN``): one file per thread of the
tree. Or each process has its parent in its stat file: one file per process of the machine. The first is cheaper for a
small tree on a crowded machine, the second for processes with many threads.
"""

from __future__ import annotations

import os
from contextlib import suppress

from opentelemetry.instrumentation.hardware.system import procfs
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty
from opentelemetry.instrumentation.hardware.system.process_tree import is_proc_ours, proc_folder

_FEW_THREADS = 256
"""Up to so many threads, the children are read without counting the processes of the machine."""


def descendants(files: Files, pid: int) -> list[int]:
    """Return the descendants of a process, each behind its parent.

    This process and its own are left out, if it is an agent that the other process has started.

    Raises:
        Unavailable: ``/proc`` belongs to another PID namespace, and the process is not this one.
    """
    if pid == os.getpid() and not files.has_children():
        return []
    found = _by_children(files, proc_folder(files, pid))
    if found is None:
        found = _by_parents(files, pid if is_proc_ours(files) else int(files.link("/proc/self")))
    return found


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


def _by_parents(files: Files, root: int) -> list[int]:
    """The parent of every process on the machine; a process that cannot be read is missing, with its descendants."""
    children: dict[int, list[int]] = {}
    for name in names_or_empty(files, "/proc"):
        if name.isdigit() and int(name) not in (root, os.getpid()):
            with suppress(OSError, ValueError, IndexError):  # it has ended, or belongs to another user
                children.setdefault(int(procfs.stat(files.read(f"/proc/{name}/stat"))[1]), []).append(int(name))
    pids = children.get(root, [])
    for pid in pids:  # grows on the way
        pids += children.get(pid, ())
    return pids
