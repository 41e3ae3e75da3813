"""Limits and usage of the control group (cgroup) of a process: version 1, version 2, or both mounted side by side.

A limit can be set on any group between the process's own and the root, and the tightest one applies to the process.
Usage and throttling are read from the group that has the tightest limit: these are the numbers that count against it.

See https://docs.kernel.org/admin-guide/cgroup-v2.html, https://docs.kernel.org/admin-guide/cgroup-v1/ and
https://docs.kernel.org/accounting/psi.html.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files, read_or_empty
from opentelemetry.instrumentation.hardware.system.machine import CgroupUsage
from opentelemetry.instrumentation.hardware.system.mounts import entries
from opentelemetry.instrumentation.hardware.system.procfs import pressure

# Version 1 reports a missing memory limit as the largest multiple of the page size that fits in int64.
_UNLIMITED = 1 << 62

_CONTAINER_WORDS = ("docker", "kubepods", "containerd", "libpod", "lxc", "garden", "crio", "podman", "nspawn", "/ecs/")
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")


class _Hierarchy(NamedTuple):
    """The groups of one controller from the process's own up to the root, and the version of their files.

    There are none if the controller is not mounted.
    """

    version: int = 2
    folders: Sequence[str] = ()

    def folder(self, level: int) -> str:
        """The folder of the group ``level`` levels above the process's own; empty if there is none."""
        return self.folders[level] if level < len(self.folders) else ""


class _Limit(NamedTuple):
    """The tightest limit, and how many levels above the process's own group it is set."""

    value: float | None
    level: int


class _Counter:
    """A counter that continues from its total when it is read from another group."""

    def __init__(self) -> None:
        self._folder = ""
        self._offset: float = 0
        self._total: float = 0

    def read(self, folder: str, count: float | None) -> float | None:
        """Return the total of all groups; None if the count of this one cannot be read."""
        if count is None:
            return None
        if folder != self._folder and self._folder:
            self._offset = self._total - count
        self._folder = folder
        self._total = count + self._offset
        return self._total


class Cgroup:
    """The control group of the process with this folder in ``/proc``."""

    def __init__(self, files: Files, process: str) -> None:
        self._files = files
        self._process = process
        self._membership: bytes | None = None
        self._cpu = self._accounting = self._memory = _Hierarchy()
        self._is_container = False
        self._cpu_limit = self._memory_limit = _Limit(None, 0)
        self._stalled: dict[tuple[str, str], _Counter] = {}
        self._time, self._throttled, self._periods, self._throttled_periods = (_Counter() for _ in range(4))
        self._oom_kills = _Counter()

    def refresh(self) -> None:
        """Find the groups and read their limits again: a process can move, and a running container can be resized."""
        self._find()
        self._cpu_limit = _tightest(map(self._cpus, self._cpu.folders))
        file = "/memory.max" if self._memory.version == 2 else "/memory.limit_in_bytes"
        limits = (_number(self._read(folder + file)) for folder in self._memory.folders)
        self._memory_limit = _tightest(limit if limit is not None and limit < _UNLIMITED else None for limit in limits)

    def limits(self) -> tuple[float | None, int | None]:
        """Return the CPUs and bytes of memory that the process may use, at the last refresh; None for no limit."""
        memory = self._memory_limit.value
        return self._cpu_limit.value, None if memory is None else int(memory)

    def usage(self) -> CgroupUsage:
        """Return current usage and throttling, and the limits at the last refresh.

        Raises:
            Unavailable: The process runs neither in a container nor under a limit, or its group is not to be seen.
        """
        cpus, limit = self.limits()
        if cpus is None and limit is None and not self._is_container:
            raise Unavailable("this process runs neither in a container nor under a cgroup limit")
        if not (self._cpu.folders or self._accounting.folders or self._memory.folders):
            raise Unavailable("the cgroup of this container is not mounted in it")
        used, working_set = self._memory_usage(self._memory_limit.level)
        level = self._cpu_limit.level
        stat = self._read_at(self._cpu, level, "cpu.stat")
        return CgroupUsage(
            cpu_time=self._cpu_time(level, stat),
            **self._throttling(level, stat),
            oom_kills=self._killed(self._memory_limit.level),
            memory=used,
            working_set=working_set,
            cpu_limit=cpus,
            memory_limit=limit,
            pressure=dict(self._pressure()),
        )

    # -- where the groups are

    def _find(self) -> None:
        """Find the groups again if the process has moved to other ones."""
        try:
            membership = self._files.read(f"{self._process}/cgroup")
            if membership == self._membership:
                return
            mountinfo = self._files.read(f"{self._process}/mountinfo")
        except OSError:
            return
        self._membership = membership
        text = membership.decode(errors="surrogateescape")
        paths = _paths(text)
        mounts = _mounts(mountinfo)
        hierarchies = [_hierarchy(controller, paths, mounts) for controller in ("cpu", "cpuacct", "memory")]
        if any(len(each.folders) > 1 or (each.version == 1 and not each.folders) for each in hierarchies):
            # Version 1 has a group for each controller. If the process is in the root group of some controllers only,
            # these are ignored: a root group has the numbers of the whole machine. A group outside of its namespace has
            # no folder.
            hierarchies = [
                _Hierarchy() if each.version == 1 and len(each.folders) == 1 else each for each in hierarchies
            ]
        self._cpu, self._accounting, self._memory = hierarchies
        # The root file system is an overlay. With the group "/", this means a container in a cgroup namespace.
        has_overlay = any(b" / / " in line and b" - overlay " in line for line in mountinfo.splitlines())
        self._is_container = (
            any(word in text for word in _CONTAINER_WORDS)
            or any(map(self._files.exists, _CONTAINER_FILES))
            or (paths.get("") == "/" and has_overlay)
        )

    # -- limits

    def _cpus(self, folder: str) -> float | None:
        """Return the limit of a group: quota over period."""
        if self._cpu.version == 2:
            quota, _, period = self._read(folder + "/cpu.max").partition(b" ")
        else:
            quota, period = self._read(folder + "/cpu.cfs_quota_us"), self._read(folder + "/cpu.cfs_period_us")
        return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) > 0 else None

    # -- usage

    def _cpu_time(self, level: int, stat: bytes) -> float | None:
        """Seconds of CPU time of the group ``level`` levels above the process's own."""
        if self._accounting.version == 2:
            return self._time.read(self._cpu.folder(level), _seconds(_entry(stat, b"usage_usec"), 1e6))
        if len(self._cpu.folders) != len(self._accounting.folders):
            level = 0  # the two controllers of version 1 have different groups
        usage = _number(self._read_at(self._accounting, level, "cpuacct.usage"))
        return self._time.read(self._accounting.folder(level), _seconds(usage, 1e9))

    def _throttling(self, level: int, stat: bytes) -> dict[str, float | None]:
        """Seconds, periods and throttled periods of the group ``level`` levels above the process's own."""
        folder = self._cpu.folder(level)
        seconds = _seconds(_entry(stat, b"throttled_usec"), 1e6)
        if seconds is None:
            seconds = _seconds(_entry(stat, b"throttled_time"), 1e9)  # version 1
        return {
            "throttled": self._throttled.read(folder, seconds),
            "periods": self._periods.read(folder, _entry(stat, b"nr_periods")),
            "throttled_periods": self._throttled_periods.read(folder, _entry(stat, b"nr_throttled")),
        }

    def _pressure(self) -> Iterator[tuple[tuple[str, str], float]]:
        """Seconds of stall by resource and kind: of the group that limits the CPU, or memory. Version 1 has none."""
        limits = (self._cpu, self._cpu_limit), (self._memory, self._memory_limit)
        for (hierarchy, limit), resources in zip(limits, (("cpu",), ("memory", "io"))):
            if hierarchy.version == 1:
                continue
            for resource in resources:
                text = self._read_at(hierarchy, limit.level, f"{resource}.pressure")
                stalled = pressure(text + b"\n")
                for kind, seconds in stalled.items():
                    counter = self._stalled.setdefault((resource, kind), _Counter())
                    total = counter.read(hierarchy.folder(limit.level), seconds)
                    if total is not None:
                        yield (resource, kind), total

    def _memory_usage(self, level: int) -> tuple[int | None, int | None]:
        """Bytes in use, and bytes in use without inactive page cache, which can be reclaimed."""
        is_v1 = self._memory.version == 1
        used = _number(self._read_at(self._memory, level, "memory.usage_in_bytes" if is_v1 else "memory.current"))
        stat = self._read_at(self._memory, level, "memory.stat")
        reclaimable = _entry(stat, b"total_inactive_file" if is_v1 else b"inactive_file")
        return used, None if used is None or reclaimable is None else max(0, used - reclaimable)

    def _killed(self, level: int) -> float | None:
        """Processes of the group ``level`` levels above the process's own, and of those below it, that were killed."""
        file = "memory.events" if self._memory.version == 2 else "memory.oom_control"
        killed = _entry(self._read_at(self._memory, level, file), b"oom_kill")
        return self._oom_kills.read(self._memory.folder(level), killed)

    def _read_at(self, hierarchy: _Hierarchy, level: int, file: str) -> bytes:
        """The content of a file of the group ``level`` levels above the process's own; empty if it cannot be read."""
        folder = hierarchy.folder(level)
        return self._read(f"{folder}/{file}") if folder else b""

    def _read(self, path: str) -> bytes:
        return read_or_empty(self._files, path).strip()


def _tightest(limits: Iterable[float | None]) -> _Limit:
    """The lowest limit, the nearest one if several are equal; level 0 without a limit."""
    known = [_Limit(limit, level) for level, limit in enumerate(limits) if limit is not None]
    return min(known, default=_Limit(None, 0))


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


def _entry(table: bytes, name: bytes) -> int | None:
    """The number after a name, in a file with one name and number per line."""
    _, _, rest = (b"\n" + table).partition(b"\n" + name + b" ")
    return _number(rest.partition(b"\n")[0])


def _seconds(value: int | None, per_second: float) -> float | None:
    return None if value is None else value / per_second


def _hierarchy(controller: str, paths: dict[str, str], mounts: dict[str, list[tuple[str, str]]]) -> _Hierarchy:
    """The groups of a controller: of version 1 if it is mounted there, else of version 2."""
    for name, version in ((controller, 1), ("", 2)):
        if name in paths and name in mounts:
            found = (_folders(paths[name], root, point) for root, point in mounts[name])
            return _Hierarchy(version, next(filter(None, found), ()))
    return _Hierarchy()


def _paths(text: str) -> dict[str, str]:
    """The path of the process's group by controller of version 1, and under "" for version 2. See cgroups(7)."""
    paths = {}
    for line in text.split("\n")[:-1]:  # not splitlines(): a group's name can contain other line separators
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _mounts(mountinfo: bytes) -> dict[str, list[tuple[str, str]]]:
    """Roots and mount points of each hierarchy by controller of version 1, and under "" for version 2."""
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in entries(mountinfo):
        controllers = {"cgroup": entry.options.split(","), "cgroup2": [""]}.get(entry.mount.type, ())
        for controller in controllers:
            found.setdefault(controller, []).append((entry.root, entry.mount.path))
    return found


def _folders(path: str, root: str, point: str) -> list[str]:
    """The folders from a group up to the root of its mount, the group's own first; none if they are unknown.

    A container sees its own group as the root in one of two ways. In a cgroup namespace, the path is "/", or begins
    with ".." for a group outside of it. Otherwise only a part of the hierarchy is mounted, and the mount's root is a
    prefix of the path. In the host's hierarchy, mounted into a container with a namespace, its groups have other names.
    """
    if root != "/" and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    elif root.startswith("/.."):
        return []
    parts = [part for part in path.split("/") if part and part != ".."]
    if f"{path}/".startswith("/../"):
        parts = []
    return [point + "".join("/" + part for part in parts[:depth]) for depth in range(len(parts), -1, -1)]
