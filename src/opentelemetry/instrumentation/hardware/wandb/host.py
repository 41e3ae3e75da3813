"""W&B's keys of the host and of one process.

Totals of disks and interfaces come from psutil, as W&B's do: they include what this package leaves out, such as
loopback, loop devices and partitions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace
from opentelemetry.instrumentation.hardware.system.local import machine
from opentelemetry.instrumentation.hardware.system.machine import CgroupUsage, Machine, Memory, Process
from opentelemetry.instrumentation.hardware.wandb.probe import Key, percent
from opentelemetry.instrumentation.hardware.wandb.probe import Probe as BaseProbe

_MIB = 1 << 20
_GIB = 1 << 30


class Transferred(NamedTuple):
    """Bytes since boot."""

    incoming: int
    outgoing: int


class Reading(NamedTuple):
    """The host and the observed process at one moment.

    Attributes:
        time: Unix time.
        clock: Monotonic time.
        capacity: CPUs that the process may use, as W&B counts them; None if unknown.
        cpus: Seconds by mode for each logical CPU.
        memory: Memory of the host.
        group: The cgroup of the process; None without a limit or a container.
        process: The process.
        spaces: Space of the file system at each configured path.
        disks: Read and written bytes of each block device, partitions included.
        mounted: The block devices of the configured paths, as W&B chooses them.
        disk_total: Read and written bytes of all disks.
        network: Received and sent bytes of all interfaces.
    """

    time: float
    clock: float
    capacity: float | None
    cpus: Mapping[int, Mapping[str, float]]
    memory: Memory | None
    group: CgroupUsage | None
    process: Process
    spaces: Mapping[str, FilesystemSpace]
    disks: Mapping[str, Transferred]
    mounted: frozenset[str]
    disk_total: Transferred | None
    network: Transferred | None

    @property
    def memory_limit(self) -> int | None:
        """The memory limit of the cgroup; without one the memory of the host."""
        if self.group is not None and self.group.memory_limit is not None:
            return self.group.memory_limit
        return self.memory.total if self.memory is not None else None


class History(NamedTuple):
    """The first reading, the previous one and the newest."""

    first: Reading
    before: Reading
    now: Reading


class Probe(BaseProbe[History]):
    """The host and one process."""

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(config, pid)
        self._drivers = Drivers()
        self._paths = config.disk_paths or ["/"]
        self._readings: tuple[Reading, Reading] | None = None

    def read(self) -> History:
        """Return the readings so far.

        Raises:
            OSError: The process has ended.
        """
        now = read(machine(self._drivers), self.pid, self._paths)
        first, before = self._readings or (now, now)
        self._readings = first, now
        missing = [path for path in self._paths if path not in now.spaces]
        self.error = f"cannot read {', '.join(missing)}" if missing else ""
        return History(first, before, now)

    def close(self) -> None:
        """Close the files."""
        self._drivers.close()


def read(system: Machine, pid: int, paths: list[str]) -> Reading:
    """Read the host and a process once.

    Args:
        system: The local machine.
        pid: The process.
        paths: The paths of file systems to report; one that cannot be read is left out.

    Raises:
        OSError: The process has ended.
    """
    spaces = {}
    for path in paths:
        try:
            spaces[path] = system.space(path)
        except OSError:
            continue
    try:
        group = system.cgroup(pid)
    except (Unavailable, OSError):
        group = None
    disks, disk_total, network = _totals()
    return Reading(
        time.time(),
        time.monotonic(),
        _capacity(system, pid, group),
        system.cpu_times_by_cpu(),
        system.memory()[0],
        group,
        system.process(pid),
        spaces,
        disks,
        _mounted(system, paths, disks),
        disk_total,
        network,
    )


def _capacity(system: Machine, pid: int, group: CgroupUsage | None) -> float | None:
    """Return the lower of the cgroup's CPU limit and a restricted affinity; without both the physical cores."""
    logical, physical = system.cpu_counts()
    limits = [group.cpu_limit] if group is not None and group.cpu_limit else []
    allowed = system.limits(pid).cpus
    if logical is not None and allowed < logical:
        limits.append(allowed)
    return min(limits, default=physical or logical)


def _totals() -> tuple[dict[str, Transferred], Transferred | None, Transferred | None]:
    """Bytes of each block device, of all disks, and of all interfaces."""
    import psutil

    try:
        disks = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        disk_total = psutil.disk_io_counters(nowrap=False)
    except (OSError, RuntimeError):  # NotImplementedError in some containers
        disks, disk_total = {}, None
    try:
        network = psutil.net_io_counters(nowrap=False)
    except OSError:
        network = None
    return (
        {name: Transferred(each.read_bytes, each.write_bytes) for name, each in disks.items()},
        Transferred(disk_total.read_bytes, disk_total.write_bytes) if disk_total else None,
        Transferred(network.bytes_recv, network.bytes_sent) if network else None,
    )


def _mounted(system: Machine, paths: list[str], disks: Mapping[str, Transferred]) -> frozenset[str]:
    """Return the block devices with a mount point that is a string prefix of a path.

    In a container, the root is not a block device, and W&B takes every mounted one. If none has counters, it takes all
    but loop and RAM disks.
    """
    try:
        mounts = system.mounts()
    except OSError:
        mounts = ()
    chosen = [mount for mount in mounts if any(path.startswith(mount.path) for path in paths)]
    if all(mount.path != "/" for mount in mounts):
        chosen = [*mounts]
    devices = {os.path.basename(os.path.realpath(mount.device)) for mount in chosen} & disks.keys()
    return frozenset(devices or (name for name in disks if not name.startswith(("loop", "ram", "zram"))))


def _cpu(history: History) -> float | None:
    elapsed = history.now.clock - history.before.clock
    if elapsed <= 0 or not history.now.capacity:
        return None
    before, now = (each.process.user + each.process.system for each in (history.before, history.now))
    return max(0.0, now - before) / elapsed * 100 / history.now.capacity


def _cpus(history: History) -> dict[int, float | None]:
    shares = {}
    for number, now in history.now.cpus.items():
        before = history.before.cpus.get(number, now)
        increase = {mode: max(0.0, seconds - before.get(mode, seconds)) for mode, seconds in now.items()}
        idle = increase.get("idle", 0.0) + increase.get("iowait", 0.0)
        shares[number] = percent(sum(increase.values()) - idle, sum(increase.values()))
    return shares


def _memory(history: History) -> float | None:
    memory = history.now.memory
    return None if memory is None else percent(memory.total - memory.available, memory.total)


def _memory_percent(history: History) -> float | None:
    group = history.now.group
    if group is not None and group.memory_limit is not None:
        return percent(group.memory, group.memory_limit)
    return _memory(history)


def _available(history: History) -> float | None:
    group, memory = history.now.group, history.now.memory
    if group is not None and group.memory_limit is not None:
        return None if group.memory is None else max(0, group.memory_limit - group.memory) / _MIB
    return _mib(memory.available) if memory is not None else None


def _mib(size: int | None) -> float | None:
    return None if size is None else size / _MIB


def _increase(first: Transferred | None, now: Transferred | None) -> Transferred | tuple[None, None]:
    if first is None or now is None:
        return None, None
    return Transferred(now.incoming - first.incoming, now.outgoing - first.outgoing)


def _disk_total(history: History, direction: int) -> float | None:
    return _mib(_increase(history.first.disk_total, history.now.disk_total)[direction])


def _disks(history: History, direction: int) -> dict[str, float | None]:
    first, now = history.first.disks, history.now.disks
    return {name: _mib(_increase(first.get(name), now[name])[direction]) for name in sorted(history.now.mounted)}


def _network(history: History, direction: int) -> int | None:
    return _increase(history.first.network, history.now.network)[direction]


_IN, _OUT = 0, 1

_DISK_TOTAL: Final = "all disks, loop and RAM disks included, since the first sample (W&B up to 0.17)"
_DISK: Final = "the block device of a configured path since the first sample (W&B 0.21 and later)"
_INTERFACES: Final = "all interfaces, loopback included, since the first sample"

KEYS: Final[tuple[Key[History], ...]] = (
    Key(
        "cpu", "%", "CPU time of the process / elapsed time, divided by the CPU limit of its cgroup or its CPU "
        "affinity; without both by the number of physical cores", _cpu, (c.PROCESS_CPU_UTILIZATION,),
    ),
    Key(
        "cpu.{i}.cpu_percent", "%", "time of a logical CPU that was neither idle nor iowait / all its time", _cpus,
        (c.SYSTEM_CPU_UTILIZATION,),
    ),
    Key("memory", "%", "(total - available) / total memory of the host", _memory, (c.SYSTEM_MEMORY_UTILIZATION,)),
    Key(
        "memory_percent", "%", "memory in use by the cgroup / its limit; without a limit the same as `memory`",
        _memory_percent, (c.CONTAINER_MEMORY_USAGE, c.SYSTEM_MEMORY_UTILIZATION),
    ),
    Key(
        "proc.memory.availableMB", "MiB", "memory limit of the cgroup - memory that it has in use; without a limit the "
        "available memory of the host", _available, (c.SYSTEM_MEMORY_USAGE,),
    ),
    Key(
        "proc.memory.rssMB", "MiB", "resident memory of the process", lambda each: _mib(each.now.process.resident),
        (c.PROCESS_MEMORY_USAGE,),
    ),
    Key(
        "proc.memory.percent", "%", "resident memory of the process / memory limit of its cgroup; without a limit / "
        "memory of the host", lambda each: percent(each.now.process.resident, each.now.memory_limit),
        (c.PROCESS_MEMORY_UTILIZATION,),
    ),
    Key(
        "proc.cpu.threads", "threads", "threads of the process", lambda each: each.now.process.threads,
        (c.PROCESS_THREAD_COUNT,),
    ),
    Key(
        "disk.{path}.usagePercent", "%", "used / (used + available to users without privilege)",
        lambda each: {
            path: percent(space.total - space.free, space.total - space.free + space.available)
            for path, space in each.now.spaces.items()
        },
        (c.SYSTEM_FILESYSTEM_UTILIZATION,),
    ),
    Key(
        "disk.{path}.usageGB", "GiB", "used space of the file system at the path",
        lambda each: {path: (space.total - space.free) / _GIB for path, space in each.now.spaces.items()},
        (c.SYSTEM_FILESYSTEM_USAGE,),
    ),
    Key(
        "disk.in", "MiB", f"bytes read from {_DISK_TOTAL}", lambda each: _disk_total(each, _IN), (c.SYSTEM_DISK_IO,)
    ),
    Key(
        "disk.out", "MiB", f"bytes written to {_DISK_TOTAL}", lambda each: _disk_total(each, _OUT), (c.SYSTEM_DISK_IO,)
    ),
    Key("disk.{device}.in", "MiB", f"bytes read from {_DISK}", lambda each: _disks(each, _IN), (c.SYSTEM_DISK_IO,)),
    Key("disk.{device}.out", "MiB", f"bytes written to {_DISK}", lambda each: _disks(each, _OUT), (c.SYSTEM_DISK_IO,)),
    Key(
        "network.sent", "bytes", f"bytes sent by {_INTERFACES}", lambda each: _network(each, _OUT),
        (c.SYSTEM_NETWORK_IO,),
    ),
    Key(
        "network.recv", "bytes", f"bytes received by {_INTERFACES}", lambda each: _network(each, _IN),
        (c.SYSTEM_NETWORK_IO,),
    ),
)  # fmt: skip
"""The keys of every machine."""
