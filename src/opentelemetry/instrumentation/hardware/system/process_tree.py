"""ProcessTree: the observed process and its descendants, and which PIDs of a driver belong to them.

Drivers report the PIDs of the host, newer ones those of the PID namespace of the caller (pid_namespaces(7)), and one
driver can do both. In a container, the same number can be another process on the host.
There, a PID alone is not sufficient.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import ONE_ROUND, Machine

_HOST_NAMESPACE = "pid:[4026531836]"
"""The PID namespace of the host: the kernel gives it a fixed number (``PROC_PID_INIT_INO``)."""


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
        """Return those of a driver's PIDs that certainly belong to the tree.

        In a container, a driver may report the PIDs of the container or those of the host. If any of them does not
        exist here they are those of the host, and one that is the same as ours belongs to another process.

        Args:
            pids: All PIDs that the driver reports at a time.
        """
        pids = {*pids}
        if self.on_host:
            return pids & self._folder_by_pid.keys()
        return self.among_ours(pids) if self.exist(pids) else set()

    def among_ours(self, pids: Iterable[int]) -> set[int]:
        """Return those PIDs of this process's own namespace that belong to the tree and compute."""
        return {pid for pid in pids if pid in self._folder_by_pid and self._holds_evidence(self._folder_by_pid[pid])}

    def identifiable(self, pids: Iterable[int]) -> set[int]:
        """Return those of a driver's PIDs, of any program, that certainly are the processes in ``/proc``.

        Args:
            pids: All PIDs that the driver reports at a time.
        """
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
        if self._files is None:
            return False
        folder = f"{process}/fd"
        with suppress(OSError):  # a process of another user, or one that has ended
            for name in self._files.names(folder):
                with suppress(OSError):
                    if self._files.link(f"{folder}/{name}") in self._evidence:
                        return True
        return False


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
