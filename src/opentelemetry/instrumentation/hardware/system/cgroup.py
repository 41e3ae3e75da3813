"""Cgroup: what the control group of a process allows and says, version 1, 2 or both mounted side by side.

A limit may stand on any group between the process's own and the root, so the tightest of the whole ancestry counts.
Limits change while programs run (a pod is resized), so they are read anew, not kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.machine import Group

_UNLIMITED = 1 << 62
"""Version 1 says "no limit" as the largest multiple of a page in int64."""

_CONTAINER_WORDS = ("docker", "kubepods", "containerd", "libpod", "lxc", "garden", "crio", "podman", "nspawn")
_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv")


_Limits: TypeAlias = "tuple[float | None, int | None]"


class _Place(NamedTuple):
    """The groups of one controller, the process's own first, and which version of the files they hold."""

    version: int
    folders: Sequence[str]


class Cgroup:
    """The control group of one process. Where it lies is looked up again whenever its limits are."""

    def __init__(self, kernel: Files, process: str) -> None:
        """Take it from the folder of the process in ``/proc``."""
        self._kernel = kernel
        self._process = process
        self._lines: bytes | None = None
        self._cpu: _Place | None = None
        self._accounting: _Place | None = None
        self._memory: _Place | None = None
        self._contained = False
        self._read: _Limits | None = None

    def limits(self) -> _Limits:
        """CPUs and bytes, each the tightest on the way to the root; None where there is none.

        Those that :meth:`read` has just said are said again, once.
        """
        just_read, self._read = self._read, None
        return just_read or self._limits()

    def _limits(self) -> _Limits:
        self._find()
        return self._cpu_limit(), self._memory_limit()

    def read(self) -> Group:
        """What the group used, and its limits.

        Raises:
            Unavailable: where the process runs neither in a container nor under a limit.
        """
        cpus, bytes_ = self._read = self._limits()
        if cpus is None and bytes_ is None and not self._contained:
            raise Unavailable("this process runs neither in a container nor under a cgroup limit")
        stat = self._own(self._cpu, "cpu.stat")
        if self._accounting is not None and self._accounting.version == 1:
            time = _scaled(_whole(self._own(self._accounting, "cpuacct.usage")), 1e9)
        else:
            time = _scaled(_entry(stat, b"usage_usec"), 1e6)
        throttled = _scaled(_entry(stat, b"throttled_usec"), 1e6)
        if throttled is None:
            throttled = _scaled(_entry(stat, b"throttled_time"), 1e9)
        version1 = self._memory is not None and self._memory.version == 1
        usage = _whole(self._own(self._memory, "memory.usage_in_bytes" if version1 else "memory.current"))
        memory = self._own(self._memory, "memory.stat")
        droppable = _entry(memory, b"total_inactive_file" if version1 else b"inactive_file")
        working = None if usage is None or droppable is None else max(0, usage - droppable)
        return Group(time, throttled, usage, working, cpus, bytes_)

    # -- where

    def _find(self) -> None:
        try:
            lines = self._kernel.read(f"{self._process}/cgroup")
            if lines == self._lines:
                return
            mounted = self._kernel.read(f"{self._process}/mountinfo")
        except OSError:
            return
        self._lines = lines
        words = lines.decode(errors="surrogateescape")
        paths = _paths(words)
        mounts = _mounts(mounted.decode(errors="surrogateescape"))
        self._cpu = self._place("cpu", paths, mounts)
        self._accounting = self._place("cpuacct", paths, mounts)
        self._memory = self._place("memory", paths, mounts)
        self._leave_the_machines_own()
        self._contained = (
            any(word in words for word in _CONTAINER_WORDS)
            or any(map(self._kernel.exists, _CONTAINER_FILES))
            or (paths.get("") == "/" and _has_overlay_root(mounted))
        )

    def _place(self, controller: str, paths: dict[str, str], mounts: dict[str, tuple[str, str]]) -> _Place | None:
        for name, version in ((controller, 1), ("", 2)):
            if name in paths and name in mounts:
                root, point = mounts[name]
                return _Place(version, _ancestry(paths[name], root, point))
        return None

    def _leave_the_machines_own(self) -> None:
        """Version 1 has a group for each controller: where one is a part of the machine, another's root is no part."""
        places = [self._cpu, self._accounting, self._memory]
        if any(place and len(place.folders) > 1 for place in places):
            self._cpu, self._accounting, self._memory = (
                None if place and place.version == 1 and len(place.folders) == 1 else place for place in places
            )

    # -- what

    def _cpu_limit(self) -> float | None:
        if self._cpu is None:
            return None
        found = []
        for folder in self._cpu.folders:
            if self._cpu.version == 2:
                words = self._file(folder + "/cpu.max").split()
                quota, period = words if len(words) == 2 else (b"", b"")
            else:
                quota, period = self._file(folder + "/cpu.cfs_quota_us"), self._file(folder + "/cpu.cfs_period_us")
            if quota.isdigit() and period.isdigit() and int(period) > 0:
                found.append(int(quota) / int(period))
        return min(found, default=None)

    def _memory_limit(self) -> int | None:
        if self._memory is None:
            return None
        file = "/memory.max" if self._memory.version == 2 else "/memory.limit_in_bytes"
        limits = [_whole(self._file(folder + file)) for folder in self._memory.folders]
        return min([limit for limit in limits if limit is not None and limit < _UNLIMITED], default=None)

    def _file(self, path: str) -> bytes:
        """A file without the end of its line; nothing where there is none."""
        try:
            return self._kernel.read(path).strip()
        except OSError:
            return b""

    def _own(self, place: _Place | None, file: str) -> bytes:
        """A file of the process's own group; nothing where there is none."""
        return b"" if place is None else self._file(f"{place.folders[0]}/{file}")


def _whole(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None


def _entry(table: bytes, name: bytes) -> int | None:
    """The number behind a name; a table has many, of which few are wanted."""
    _, _, rest = (b"\n" + table).partition(b"\n" + name + b" ")
    return _whole(rest.partition(b"\n")[0])


def _scaled(value: int | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _has_overlay_root(mountinfo: bytes) -> bool:
    """With a group that is called "/", the mark of a container in a namespace of its own."""
    return any(b" / / " in line and b" - overlay " in line for line in mountinfo.splitlines())


def _paths(text: str) -> dict[str, str]:
    """The group of each controller of version 1, and under "" of version 2."""
    found = {}
    for line in text.split("\n")[:-1]:  # a group may be called anything, other ends of lines in its name included
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _mounts(text: str) -> dict[str, tuple[str, str]]:
    """Root and mount point of the hierarchy of each controller of version 1, and under "" of version 2."""
    found: dict[str, tuple[str, str]] = {}
    for line in text.split("\n")[:-1]:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind:
            continue
        if kind[0] == "cgroup2":
            found.setdefault("", (fields[3], fields[4]))
        elif kind[0] == "cgroup" and len(kind) > 2:
            for option in kind[2].split(","):
                found.setdefault(option, (fields[3], fields[4]))
    return found


def _ancestry(path: str, root: str, point: str) -> list[str]:
    """The folders from a group up to the root of its mount, the group's own first.

    A container sees its own group as the root: by a namespace (the path is then "/", or begins with ".." for a group
    outside of it), or because only a part of the hierarchy is mounted (the mount's root is then a prefix of the
    path).
    """
    if root != "/" and (path == root or path.startswith(root + "/")):
        path = path[len(root) :]
    parts = [part for part in path.split("/") if part and part != ".."]
    if f"{path}/".startswith("/../"):
        parts = []
    return [point + "".join("/" + part for part in parts[:depth]) for depth in range(len(parts), -1, -1)]
