"""The processes that use accelerators, with their users and commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource, Holder
from opentelemetry.instrumentation.hardware.redaction import redacted

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.pipeline.session import Session


class Process(NamedTuple):
    """A process that uses a device. None and "" are unknown.

    Attributes:
        device: The name of the device.
        pid: Its PID.
        user: Its user.
        command: Its command line.
        device_memory: Bytes of the device's memory that it uses.
        cpu: CPU seconds per second since the previous call.
        memory: Its resident bytes.
        age: Seconds since its start.
    """

    device: str
    pid: int
    user: str
    command: str
    device_memory: int | None
    cpu: float | None
    memory: int | None
    age: float | None


class Facts(NamedTuple):
    """What ``/proc`` has about a process. None and "" are unknown."""

    user: str = ""
    command: str = ""
    cpu: float | None = None
    memory: int | None = None
    age: float | None = None


def holders(
    session: Session, names: Mapping[str, str], read: Callable[[Iterable[int]], Mapping[int, Facts]]
) -> list[Process]:
    """Return the processes that use the devices of a session.

    Args:
        session: The session.
        names: The names of the devices by ``hw.id``.
        read: Returns the facts of processes by PID; see :class:`ProcessReader`.
    """
    found: list[Holder] = []
    for runner in session.runners:
        if isinstance(runner.source, AcceleratorSource):
            found += runner.source.holders
    facts = read({holder.pid for holder in found if holder.is_known})
    unknown = Facts()
    processes = []
    for holder in found:
        known = facts.get(holder.pid, unknown) if holder.is_known else unknown
        name = names.get(holder.device, holder.device)
        processes.append(
            Process(name, holder.pid, known.user, known.command, holder.memory, known.cpu, known.memory, known.age)
        )
    return processes


class ProcessReader:
    """Reads processes with psutil. To be used in one thread."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}  # of psutil.Process, which is imported on first use

    def read(self, pids: Iterable[int]) -> dict[int, Facts]:
        """Return the facts of each process that exists. CPU utilization is that since the previous call."""
        import psutil

        found: dict[int, Facts] = {}
        known, self._known = self._known, {}
        for pid in pids:
            with suppress(psutil.Error):  # it has ended
                process = known.get(pid)
                is_new = process is None or not process.is_running()  # another process may have got its PID
                if is_new:
                    process = psutil.Process(pid)
                self._known[pid] = process
                found[pid] = _facts(process, is_new)
        return found


def _facts(process: Any, is_new: bool) -> Facts:
    import psutil

    user = command = ""
    with process.oneshot():
        with suppress(psutil.AccessDenied):
            user = process.username()
        with suppress(psutil.AccessDenied):
            command = process.name()
            command = " ".join(process.cmdline()) or command
        cpu = process.cpu_percent() / 100
        return Facts(
            user,
            redacted(command),
            None if is_new else cpu,
            process.memory_info().rss,
            max(0.0, time.time() - process.create_time()),
        )
