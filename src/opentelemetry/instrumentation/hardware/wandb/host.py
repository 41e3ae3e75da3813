"""W&B's keys of the host and of one process.

Totals of disks and interfaces come from psutil, as W&B's do: they include what this package leaves out, such as
loopback, loop devices and partitions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Metric, Number, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace
from opentelemetry.instrumentation.hardware.system.machine import CgroupUsage, Machine, Memory, Process, machine
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
    """The smaller of the cgroup's CPU limit and a restricted affinity; without both the physical cores."""
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
    """The block devices whose mount point is a string prefix of a path.

    In a container the root is no block device, and W&B takes every mounted one. If none has counters, it takes all but
    loop and RAM disks.
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


_Pairs: TypeAlias = "Iterator[tuple[str, Number]]"


def _one(name: str, value: Callable[[History], Number | None]) -> Callable[[History], _Pairs]:
    def values(history: History) -> _Pairs:
        found = value(history)
        if found is not None:
            yield name, found

    return values


def _key(
    name: str, unit: str, formula: str, value: Callable[[History], Number | None], *metrics: Metric
) -> Key[History]:
    return Key(name, unit, formula, _one(name, value), metrics)


def _cpu(history: History) -> float | None:
    elapsed = history.now.clock - history.before.clock
    if elapsed <= 0 or not history.now.capacity:
        return None
    before, now = (each.process.user + each.process.system for each in (history.before, history.now))
    return max(0.0, now - before) / elapsed * 100 / history.now.capacity


def _cpus(history: History) -> _Pairs:
    for number, modes in history.now.cpus.items():
        before = history.before.cpus.get(number)
        if before is not None:
            increase = {mode: max(0.0, seconds - before.get(mode, seconds)) for mode, seconds in modes.items()}
            idle = increase.get("idle", 0.0) + increase.get("iowait", 0.0)
            whole = sum(increase.values())
            if whole > 0:
                yield f"cpu.{number}.cpu_percent", (whole - idle) / whole * 100


def _memory(history: History) -> float | None:
    memory = history.now.memory
    if memory is None or memory.available is None:
        return None
    return percent(memory.total - memory.available, memory.total)


def _memory_percent(history: History) -> float | None:
    group = history.now.group
    if group is not None and group.memory_limit is not None:
        return percent(group.memory, group.memory_limit)
    return _memory(history)


def _available(history: History) -> float | None:
    group, memory = history.now.group, history.now.memory
    if group is not None and group.memory_limit is not None:
        return None if group.memory is None else max(0, group.memory_limit - group.memory) / _MIB
    return memory.available / _MIB if memory is not None and memory.available is not None else None


def _rss(history: History) -> float | None:
    resident = history.now.process.resident
    return None if resident is None else resident / _MIB


def _usage_percent(history: History) -> _Pairs:
    for path, space in history.now.spaces.items():
        used = space.total - space.free
        share = percent(used, used + space.available)
        if share is not None:
            yield f"disk.{path}.usagePercent", share


def _usage(history: History) -> _Pairs:
    for path, space in history.now.spaces.items():
        yield f"disk.{path}.usageGB", (space.total - space.free) / _GIB


def _disk_total(direction: int) -> Callable[[History], Number | None]:
    def value(history: History) -> float | None:
        first, now = history.first.disk_total, history.now.disk_total
        return None if first is None or now is None else (now[direction] - first[direction]) / _MIB

    return value


def _disk(word: str, direction: int) -> Callable[[History], _Pairs]:
    def values(history: History) -> _Pairs:
        for name in sorted(history.now.mounted & history.first.disks.keys()):
            now, first = history.now.disks[name], history.first.disks[name]
            yield f"disk.{name}.{word}", (now[direction] - first[direction]) / _MIB

    return values


def _network(direction: int) -> Callable[[History], Number | None]:
    def value(history: History) -> Number | None:
        first, now = history.first.network, history.now.network
        return None if first is None or now is None else now[direction] - first[direction]

    return value


_IN, _OUT = 0, 1

_DISK_TOTAL: Final = "all disks, loop and RAM disks included, since the first sample (W&B up to 0.17)"
_DISK: Final = "the block device of a configured path since the first sample (W&B 0.21 and later)"

KEYS: Final[tuple[Key[History], ...]] = (
    _key(
        "cpu", "%", "CPU time of the process / elapsed time, divided by the CPU limit of its cgroup or its CPU "
        "affinity; without both by the number of physical cores", _cpu, c.PROCESS_CPU_UTILIZATION,
    ),
    Key(
        "cpu.{i}.cpu_percent", "%", "time of a logical CPU that was neither idle nor iowait / all its time", _cpus,
        (c.SYSTEM_CPU_UTILIZATION,),
    ),
    _key("memory", "%", "(total - available) / total memory of the host", _memory, c.SYSTEM_MEMORY_UTILIZATION),
    _key(
        "memory_percent", "%", "memory in use by the cgroup / its limit; without a limit the same as `memory`",
        _memory_percent, c.CONTAINER_MEMORY_USAGE, c.SYSTEM_MEMORY_UTILIZATION,
    ),
    _key(
        "proc.memory.availableMB", "MiB", "memory limit of the cgroup - memory that it has in use; without a limit the "
        "available memory of the host", _available, c.SYSTEM_MEMORY_LINUX_AVAILABLE, c.SYSTEM_MEMORY_AVAILABLE,
    ),
    _key("proc.memory.rssMB", "MiB", "resident memory of the process", _rss, c.PROCESS_MEMORY_USAGE),
    _key(
        "proc.memory.percent", "%", "resident memory of the process / memory limit of its cgroup; without a limit / "
        "memory of the host", lambda history: percent(history.now.process.resident, history.now.memory_limit),
        c.PROCESS_MEMORY_UTILIZATION,
    ),
    _key(
        "proc.cpu.threads", "threads", "threads of the process", lambda history: history.now.process.threads,
        c.PROCESS_THREAD_COUNT,
    ),
    Key(
        "disk.{path}.usagePercent", "%", "used / (used + available to users without privilege)", _usage_percent,
        (c.SYSTEM_FILESYSTEM_UTILIZATION,),
    ),
    Key(
        "disk.{path}.usageGB", "GiB", "used space of the file system at the path", _usage, (c.SYSTEM_FILESYSTEM_USAGE,)
    ),
    _key("disk.in", "MiB", f"bytes read from {_DISK_TOTAL}", _disk_total(_IN), c.SYSTEM_DISK_IO),
    _key("disk.out", "MiB", f"bytes written to {_DISK_TOTAL}", _disk_total(_OUT), c.SYSTEM_DISK_IO),
    Key("disk.{device}.in", "MiB", f"bytes read from {_DISK}", _disk("in", _IN), (c.SYSTEM_DISK_IO,)),
    Key("disk.{device}.out", "MiB", f"bytes written to {_DISK}", _disk("out", _OUT), (c.SYSTEM_DISK_IO,)),
    _key(
        "network.sent", "bytes", "bytes sent by all interfaces, loopback included, since the first sample",
        _network(_OUT), c.SYSTEM_NETWORK_IO,
    ),
    _key(
        "network.recv", "bytes", "bytes received by all interfaces, loopback included, since the first sample",
        _network(_IN), c.SYSTEM_NETWORK_IO,
    ),
)  # fmt: skip
"""The keys of every machine."""
