"""What a machine can say of itself, in base units, however it is asked.

Two readers give the same shapes: :class:`~.linux.LinuxMachine` parses the kernel's files,
:class:`~.portable.PsutilMachine` asks psutil. The sources turn the shapes into points; so a number means the same
on every system. ``None`` and a missing key mean that this machine does not say it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files, FilesystemSpace


class Memory(NamedTuple):
    """Bytes; used is total - free - cached - buffers, so that the states sum to the total."""

    total: int
    available: int | None
    free: int
    cached: int
    buffers: int

    @property
    def used(self) -> int:
        return max(0, self.total - self.free - self.cached - self.buffers)


class Swap(NamedTuple):
    """Bytes."""

    total: int
    free: int


class Paging(NamedTuple):
    """Counts since boot."""

    minor: int | None
    major: int | None
    swapped_in: int | None
    swapped_out: int | None


class Disk(NamedTuple):
    """Bytes, counts and seconds since boot."""

    read: int
    written: int
    reads: int
    writes: int
    read_time: float
    write_time: float
    busy: float | None


class Interface(NamedTuple):
    """Bytes and counts since the interface came up."""

    sent: int
    received: int
    packets_sent: int
    packets_received: int
    dropped_sent: int
    dropped_received: int
    errors_sent: int
    errors_received: int


class Mount(NamedTuple):
    """A file system and where it is."""

    path: str
    device: str
    type: str


class Limits(NamedTuple):
    """What a process may use: CPUs by affinity and cgroup, bytes by the tightest limit (None where there is none)."""

    cpus: float
    memory: int | None


class Group(NamedTuple):
    """What a process's cgroup says; seconds and bytes."""

    cpu_time: float | None
    throttled: float | None
    memory: int | None
    working_set: int | None
    cpu_limit: float | None
    memory_limit: int | None


class Process(NamedTuple):
    """One process: seconds and counts since its start, bytes now; of one that has ended the totals remain."""

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
    """What a tree needs of one of its processes."""

    pid: int
    born: float
    age: float
    cpu: float
    resident: int
    threads: int


class Machine(Protocol):
    """The questions that sources ask."""

    linux: bool

    def cpu(self) -> Mapping[str, float]:
        """Seconds by ``cpu.mode``, all logical CPUs together."""

    def cpus(self) -> Mapping[int, Mapping[str, float]]:
        """Seconds by ``cpu.mode`` for each logical CPU."""

    def counts(self) -> tuple[int | None, int | None]:
        """Logical CPUs and physical cores."""

    def frequencies(self) -> Mapping[int, float]:
        """Hz of each logical CPU."""

    def load(self) -> tuple[float, float, float] | None:
        """Load over 1, 5 and 15 minutes."""

    def memory(self) -> tuple[Memory | None, Swap | None]:
        """Memory and swap, of one reading."""

    def total_memory(self) -> int | None:
        """Bytes of memory; on Linux without reading a file that can hang."""

    def paging(self) -> Paging:
        """Faults and swapped pages."""

    def disks(self) -> Mapping[str, Disk]:
        """Whole disks, each once."""

    def interfaces(self, names: Sequence[str] | None = None) -> Mapping[str, Interface]:
        """The named interfaces; by default the physical ones."""

    def connections(self) -> Mapping[tuple[str, str], int]:
        """Sockets by transport and state."""

    def states(self) -> Mapping[str, int]:
        """Processes by state."""

    def pressure(self) -> Mapping[tuple[str, str], float]:
        """Seconds that tasks waited, by resource and some/full."""

    def uptime(self) -> float:
        """Seconds since boot."""

    def mounts(self) -> Sequence[Mount]:
        """Stable mounts of real file systems."""

    def mount(self, path: str) -> Mount:
        """The mount that a path lies on."""

    def space(self, path: str) -> FilesystemSpace:
        """The space of a file system. May block."""

    def process(self, pid: int) -> Process:
        """One process."""

    def tree(self, pid: int) -> Sequence[int]:
        """All descendants of a process, by the numbers that :meth:`relative` knows."""

    def relative(self, pid: int) -> TreeProcess:
        """A process of a tree."""

    def limits(self, pid: int) -> Limits:
        """What a process may use."""

    def group(self, pid: int) -> Group:
        """The cgroup of a process.

        Raises:
            Unavailable: where the process runs neither in a container nor under a limit.
        """


class PythonModule(Protocol):
    """A Python module whose functions return plain data."""

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of the module; ``Process.name`` with a pid calls a method of a new object."""


class Drivers(Protocol):
    """Access to the files of the kernel and to Python modules."""

    def files(self) -> Files:
        """The kernel's files.

        Raises:
            Unavailable: this machine does not run Linux.
        """

    def python_module(self, name: str) -> PythonModule:
        """A Python module by its name."""


def machine(drivers: Drivers) -> Machine:
    """The local machine: read from the kernel's files on Linux, through psutil elsewhere."""
    from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine
    from opentelemetry.instrumentation.hardware.system.psutil_backend import PsutilMachine

    try:
        return LinuxMachine(drivers.files(), drivers.python_module("psutil"))
    except Unavailable:
        return PsutilMachine(drivers.python_module("psutil"), drivers.python_module("time"))
