"""Machine: what an operating system reports about itself and its processes, in base units.

There are two implementations with the same methods and value types: :class:`~.linux.LinuxMachine` parses the kernel's
files, :class:`~.psutil_backend.PsutilMachine` calls psutil, and describes the methods. Sources turn these values into
points, so a metric means the same on every system. ``None`` and missing keys stand for values that the system does not
report.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine
    from opentelemetry.instrumentation.hardware.system.psutil_backend import PsutilMachine

Machine: TypeAlias = "LinuxMachine | PsutilMachine"

ONE_ROUND: Final = 1.0  # seconds within which the sources of a session are read that are due at the same time


class Memory(NamedTuple):
    """Memory in bytes."""

    total: int
    available: int


class Swap(NamedTuple):
    """Swap space in bytes."""

    total: int
    free: int


class Disk(NamedTuple):
    """Bytes, operations and seconds of a disk since boot."""

    read: int
    written: int
    reads: int
    writes: int
    read_time: float | None
    write_time: float | None
    busy: float | None


class Interface(NamedTuple):
    """Bytes and packets of a network interface since it was created."""

    sent: int
    received: int
    packets_sent: int
    packets_received: int
    dropped_sent: int | None
    dropped_received: int
    errors_sent: int
    errors_received: int


class Mount(NamedTuple):
    """A mounted file system."""

    path: str
    device: str
    type: str


class ProcessLimits(NamedTuple):
    """CPUs by affinity and cgroup quota, and bytes by the tightest cgroup limit, which a process may use."""

    cpus: float
    memory: int | None


class CgroupUsage(NamedTuple):
    """Usage and limits of a process's cgroup, in seconds, periods, processes, bytes and CPUs.

    The counters do not jump if another group limits the process. ``pressure`` has the seconds of stall by resource and
    kind (``some``, ``full``).
    """

    cpu_time: float | None
    throttled: float | None
    periods: float | None
    throttled_periods: float | None
    oom_kills: float | None
    memory: int | None
    working_set: int | None
    cpu_limit: float | None
    memory_limit: int | None
    pressure: Mapping[tuple[str, str], float]


class Process(NamedTuple):
    """One process: seconds and counts since its start, and bytes now.

    The sizes of a zombie are ``None``; its totals are final.
    """

    user: float
    system: float
    threads: int | None
    resident: int | None
    virtual: int | None
    minor: int | None
    major: int | None
    uptime: float
    voluntary: int | None = None
    involuntary: int | None = None
    read: int | None = None
    written: int | None = None
    reads: int | None = None
    writes: int | None = None
    descriptors: int | None = None
    handles: int | None = None


class TreeProcess(NamedTuple):
    """One process of a process tree: seconds, bytes and a count.

    ``started`` distinguishes processes that have had the same PID. ``reaped_cpu_time`` is the CPU time of its children
    that have ended and were waited for, and of theirs; 0 where the system does not count it.
    ``threads`` is 0 where it is unknown.
    """

    pid: int
    parent: int
    started: float
    age: float
    cpu_time: float
    reaped_cpu_time: float
    resident: int
    threads: int
