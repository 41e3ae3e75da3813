"""Machine: what an operating system reports about itself and its processes, in base units.

There are two implementations with the same value types: :class:`~.linux.LinuxMachine` parses the kernel's files,
:class:`~.psutil_backend.PsutilMachine` calls psutil. Sources turn these values into points, so a metric means the same
on every system. ``None`` and missing keys stand for values that the system does not report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace

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
    """Usage and limits of a process's cgroup, in seconds, periods, bytes and CPUs.

    The counters do not jump if another group limits the process. ``pressure`` has the seconds of stall by resource and
    kind (``some``, ``full``).
    """

    cpu_time: float | None
    throttled: float | None
    periods: float | None
    throttled_periods: float | None
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
    """

    pid: int
    parent: int
    started: float
    age: float
    cpu_time: float
    reaped_cpu_time: float
    resident: int
    threads: int


class Machine(Protocol):
    """The values that sources read from the operating system."""

    linux: bool

    def cpu_times(self) -> Mapping[str, float]:
        """Seconds by ``cpu.mode``, all logical CPUs together."""

    def cpu_times_by_cpu(self) -> Mapping[int, Mapping[str, float]]:
        """Seconds by ``cpu.mode`` for each logical CPU."""

    def cpu_counts(self) -> tuple[int | None, int | None]:
        """The number of logical CPUs and of physical cores."""

    def cpu_frequencies(self) -> Mapping[int, float]:
        """The frequency of each logical CPU in Hz."""

    def load_averages(self) -> tuple[float, float, float] | None:
        """Load over 1, 5 and 15 minutes."""

    def memory(self) -> tuple[Memory | None, Swap | None]:
        """Memory and swap space, from one reading."""

    def total_memory(self) -> int | None:
        """Memory in bytes. On Linux this does not read ``/proc/meminfo``, which can hang."""

    def vmstat(self) -> Mapping[str, int]:
        """Virtual memory counters since boot, by the names in ``/proc/vmstat``; elsewhere some of them.

        pgminfault is the number of page faults that were not major.
        """

    def disks(self, every: bool = False) -> Mapping[str, Disk]:
        """The disks that are hardware, without partitions; or every one that the system counts."""

    def interfaces(self, names: Sequence[str] | None = None, every: bool = False) -> Mapping[str, Interface]:
        """The named interfaces; by default the hardware ones, or every one."""

    def connections(self) -> Mapping[tuple[str, str], int]:
        """The number of sockets by transport and state."""

    def process_states(self) -> Mapping[str, int]:
        """The number of processes by state."""

    def pressure(self) -> Mapping[tuple[str, str], float]:
        """Seconds that tasks were stalled, by resource and kind (some, full)."""

    def uptime(self) -> float:
        """Seconds since boot."""

    def mounts(self) -> Sequence[Mount]:
        """Mounts of real file systems, without those of containers and images."""

    def mount(self, path: str) -> Mount:
        """The mount that contains a path.

        Raises:
            FileNotFoundError: No mount contains it.
        """

    def space(self, path: str) -> FilesystemSpace:
        """The space of a file system. Blocks while a network file system does not respond."""

    def process(self, pid: int) -> Process:
        """One process.

        Raises:
            OSError: The process has ended.
        """

    def resident(self, pid: int) -> int | None:
        """The resident memory of a process in bytes; ``None`` for a zombie.

        Raises:
            OSError: The process has ended.
        """

    def descendants(self, pid: int, max_age: float = 0.0) -> Sequence[int]:
        """The PIDs of all descendants of a process, at most so many seconds old."""

    def tree(self, pid: int, max_age: float = 0.0) -> Sequence[TreeProcess]:
        """A process and its descendants, each behind its parent. Descendants that cannot be read are left out.

        Args:
            pid: The process.
            max_age: Maximum seconds since another source listed the descendants. The other values are current.

        Raises:
            OSError: The process has ended.
        """

    def limits(self, pid: int) -> ProcessLimits:
        """CPUs and memory that a process may use."""

    def cgroup(self, pid: int, refresh: bool = True) -> CgroupUsage:
        """Usage and limits of the cgroup of a process.

        Args:
            pid: The process.
            refresh: Find the cgroup and read its limits again; else the last ones are used.

        Raises:
            Unavailable: The process runs neither in a container nor under a limit.
        """
