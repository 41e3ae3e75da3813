"""Whose a process is that a driver names: of the observed program and its children, or somebody else's.

Drivers name processes by the numbers of the host. A program in a container knows its processes by other numbers, and
the same number may be somebody else's on the host; so there a number alone proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system import pid_namespace as numbers
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import Machine

_OUTERMOST = "pid:[4026531836]"
"""The process namespace of the host: the kernel gives it this number (``PROC_PID_INIT_INO``)."""


class ProcessTree:
    """The observed program: a process and all its descendants.

    Args:
        machine: knows the descendants.
        kernel: None where it is not Linux.
        pid: the process.
        evidence: the device files, one of which a program opens to compute, and that asking the driver does not open.

    Attributes:
        folders: those of its processes in ``/proc``, at the newest look.
    """

    def __init__(self, machine: Machine, kernel: Files | None, pid: int, *evidence: str) -> None:
        self._machine = machine
        self._kernel = kernel
        self._pid = pid
        self._evidence = evidence
        self._names: dict[int, str] = {}
        self.on_host = kernel is None or self._is_outermost(kernel)
        self.folders: list[str] = []

    @staticmethod
    def _is_outermost(kernel: Files) -> bool:
        try:
            return kernel.link("/proc/self/ns/pid") == _OUTERMOST
        except OSError:  # a kernel without process namespaces
            return True

    def look(self) -> None:
        """Walk the tree: it is what :meth:`among` goes by until the next look."""
        processes = self._processes()
        self.folders = [folder for _, folder in processes]
        if self.on_host or self._kernel is None:
            self._names = dict(processes)
        else:
            self._names = {name: folder for pid, folder in processes for name in self._chain(self._kernel, pid, folder)}

    def _processes(self) -> list[tuple[int, str]]:
        """The tree, each with its folder; nobody where ``/proc`` does not tell which process is meant."""
        own = f"/proc/{self._pid}"
        if self._kernel is not None:
            try:
                own = numbers.folder(self._kernel, self._pid)
            except Unavailable:
                return []
        return [(self._pid, own), *((pid, f"/proc/{pid}") for pid in self._machine.tree(self._pid))]

    @staticmethod
    def _chain(kernel: Files, pid: int, folder: str) -> list[int]:
        """The numbers of a process in each namespace that it is in, as far as they can be seen from here."""
        with suppress(OSError, ValueError):
            for line in kernel.read(f"{folder}/status").splitlines():
                if line.startswith(b"NSpid:"):
                    return [int(word) for word in line.split()[1:]]
        return [pid]

    def among(self, pids: Iterable[int]) -> set[int]:
        """Those of the driver's numbers that are certainly ours."""
        known = {pid for pid in pids if pid in self._names}
        return known if self.on_host else {pid for pid in known if self._computes(self._names[pid])}

    def computing(self) -> bool:
        """Whether any of our processes computes on a device."""
        return any(self._computes(folder) for folder in self.folders)

    def _computes(self, process: str) -> bool:
        """Whether a process holds a device file that stands for computing."""
        if self._kernel is None:
            return False
        folder = f"{process}/fd"
        with suppress(OSError):
            for name in self._kernel.names(folder):
                with suppress(OSError):
                    if self._kernel.link(f"{folder}/{name}") in self._evidence:
                        return True
        return False
