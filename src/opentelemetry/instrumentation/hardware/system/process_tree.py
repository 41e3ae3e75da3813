"""ProcessTree: the observed process and its descendants, and which PIDs of a driver belong to them.

Drivers report the PIDs of the host. In a container, processes have other PIDs in their own PID namespace
(pid_namespaces(7)), and the same number can be another process on the host. There, a PID alone is not sufficient.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import Machine

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
        processes = self._processes()
        self.folders = [folder for _, folder in processes]
        if self.on_host or self._files is None:
            self._folder_by_pid = dict(processes)
        else:
            self._folder_by_pid = {
                number: folder for pid, folder in processes for number in _namespace_pids(self._files, pid, folder)
            }

    def _processes(self) -> list[tuple[int, str]]:
        """The PID and folder of each process; empty if ``/proc`` belongs to another PID namespace."""
        folder = f"/proc/{self._pid}"
        if self._files is not None:
            try:
                folder = proc_folder(self._files, self._pid)
            except Unavailable:
                return []
        return [(self._pid, folder), *((pid, f"/proc/{pid}") for pid in self._machine.descendants(self._pid))]

    def among(self, pids: Iterable[int]) -> set[int]:
        """Return those of a driver's PIDs that certainly belong to the tree."""
        known = {pid for pid in pids if pid in self._folder_by_pid}
        return known if self.on_host else {pid for pid in known if self._holds_evidence(self._folder_by_pid[pid])}

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


def _namespace_pids(files: Files, pid: int, folder: str) -> list[int]:
    """The PIDs of a process in its PID namespace and in the parent namespaces that this process can see."""
    with suppress(OSError, ValueError):
        for line in files.read(f"{folder}/status").splitlines():
            if line.startswith(b"NSpid:"):
                return [int(word) for word in line.split()[1:]]
    return [pid]
