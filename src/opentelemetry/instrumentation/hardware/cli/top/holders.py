"""The processes that use accelerators, and the others of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from opentelemetry.instrumentation.hardware.accelerators.holders import Holder
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.cli.top.processes import Facts

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.pipeline.session import Session


class Process(NamedTuple):
    """A process, on a device or on none. None and "" are unknown.

    Attributes:
        device: The name of the device; "" without one.
        pid: Its PID.
        user: Its user.
        command: Its command line.
        device_memory: Bytes of the device's memory that it uses.
        cpu: CPU seconds per second since the previous call.
        memory: Its resident bytes.
        age: Seconds since its start.
        parent: The PID of its parent.
        is_known: Whether it is the process with this PID here. In a container, that may be another one.
    """

    device: str
    pid: int
    user: str
    command: str
    device_memory: int | None
    cpu: float | None
    memory: int | None
    age: float | None
    parent: int | None = None
    is_known: bool = True

    @property
    def key(self) -> tuple[str, int]:
        """What distinguishes it from others."""
        return self.device, self.pid


def holders(
    session: Session, names: Mapping[str, str], read: Callable[[Iterable[int]], Mapping[int, Facts]]
) -> list[Process]:
    """Return the processes that use the devices of a session.

    Args:
        session: The session.
        names: The names of the devices by ``hw.id``.
        read: Returns the facts of processes by PID.
    """
    found: list[Holder] = []
    for runner in session.runners:
        if isinstance(runner.source, AcceleratorSource):
            found += runner.source.holders
    facts = read({holder.pid for holder in found if holder.is_known})
    return [
        _process(
            names.get(each.device, each.device), each.pid, each.memory, facts.get(each.pid) if each.is_known else None
        )
        for each in found
    ]


def others(facts: Mapping[int, Facts], known: Iterable[Process]) -> list[Process]:
    """Return the processes that use no device, without threads of the kernel that are idle."""
    used = {each.pid for each in known if each.is_known}
    return [
        _process("", pid, None, each) for pid, each in facts.items() if pid not in used and (each.memory or each.cpu)
    ]


def _process(device: str, pid: int, memory: int | None, facts: Facts | None) -> Process:
    is_known = facts is not None
    facts = facts or Facts()
    return Process(
        device, pid, facts.user, facts.command, memory, facts.cpu, facts.memory, facts.age, facts.parent, is_known
    )
