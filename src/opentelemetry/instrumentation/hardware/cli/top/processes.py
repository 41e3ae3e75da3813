"""The processes that use accelerators, and the others of the host, by psutil."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.system.holders import Holder

_COST = 0.01  # the share of a CPU for reading all processes. On a crowded host they are read less often.

_FRESH = 24  # processes with the most CPU time that are read every time


class Process(NamedTuple):
    """A process, on a device or on none. None and "" are unknown.

    Attributes:
        pid: Its PID.
        user: Its user.
        command: Its command line.
        cpu: CPU seconds per second since the previous reading.
        memory: Its resident bytes.
        age: Seconds since its start.
        parent: The PID of its parent.
        device: The name of the device; "" without one.
        device_memory: Bytes of the device's memory that it uses.
        is_known: Whether it is the process with this PID here. In a container, that may be another one.
    """

    pid: int
    user: str = ""
    command: str = ""
    cpu: float | None = None
    memory: int | None = None
    age: float | None = None
    parent: int | None = None
    device: str = ""
    device_memory: int | None = None
    is_known: bool = True

    @property
    def key(self) -> tuple[str, int]:
        return self.device, self.pid


def holders(session: Session) -> list[tuple[str, Holder]]:
    """Return who uses the devices of a session, with the ``hw.id`` of the device."""
    held = session.held or {}
    devices = [device for runner in session.runners for device in held.get(runner.name, ())]
    return [(str(device.attributes[c.HW_ID]), user) for device in devices for user in device.users or ()]


def users(found: Iterable[tuple[str, Holder]], names: Mapping[str, str], known: Mapping[int, Process]) -> list[Process]:
    """Return the processes that use devices, which have names by ``hw.id``."""
    processes = []
    for device, holder in found:
        process = None if holder.owner is None else known.get(holder.pid)
        process = Process(holder.pid, is_known=False) if process is None else process
        processes.append(process._replace(device=names.get(device, device), device_memory=holder.memory))
    return processes


def others(every: Iterable[Process], used: Iterable[Process]) -> list[Process]:
    """Return the processes that use no device, without threads of the kernel that are idle."""
    pids = {each.pid for each in used if each.is_known}
    return [each for each in every if each.pid not in pids and (each.memory or each.cpu)]


class ProcessReader:
    """Reads processes with psutil. To be used in one thread."""

    def __init__(self) -> None:
        # The psutil.Process, its name, user, command and parent.
        self._known: dict[int, tuple[Any, str, str, str, int]] = {}
        self._every: dict[int, Process] = {}
        self._due = 0.0

    def everything(self, wanted: Iterable[int]) -> dict[int, Process]:
        """Return all processes by PID. Some wanted ones and those that use most CPU are read every time."""
        import psutil

        now = time.monotonic()
        if now >= self._due:
            start = time.thread_time()
            self._every = self.read(psutil.pids())
            self._known = {pid: known for pid, known in self._known.items() if pid in self._every}
            self._due = now + (time.thread_time() - start) / _COST
        else:
            busy = sorted(self._every, key=lambda pid: -(self._every[pid].cpu or 0.0))[:_FRESH]
            pids = {*wanted, *busy}
            found = self.read(pids)
            self._every = {pid: each for pid, each in self._every.items() if pid not in pids} | found
        return self._every

    def read(self, pids: Iterable[int]) -> dict[int, Process]:
        """Return the processes that exist. CPU utilization is that since the previous reading of each."""
        import psutil

        found: dict[int, Process] = {}
        for pid in pids:
            with suppress(psutil.Error, OSError):  # it has ended, or Windows does not allow to read it
                found[pid] = self._read(pid)
        return found

    def _read(self, pid: int) -> Process:
        import psutil

        current = psutil.Process(pid)
        process, name, user, command, parent = self._known.get(pid, (None, "", "", "", 0))
        is_new = process != current  # another process may have got its PID
        process = current if is_new else process
        cpu = memory = None
        with process.oneshot():
            if is_new or process.name() != name:  # it has executed another program
                name = process.name()
                with suppress(psutil.AccessDenied):
                    user = process.username()
                command = name
                with suppress(psutil.AccessDenied):
                    command = redacted(" ".join(process.cmdline()) or name)
                parent = process.ppid()  # psutil's most expensive call, and it seldom changes
                self._known[pid] = process, name, user, command, parent
            with suppress(psutil.AccessDenied):  # of other users, on macOS
                cpu = process.cpu_percent() / 100
                memory = process.memory_info().rss
            age = max(0.0, time.time() - process.create_time())
            return Process(pid, user, command, None if is_new else cpu, memory, age, parent)
