"""What psutil says, in the same shapes: the way on every system but Linux."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from errno import ESRCH
from typing import Any

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace
from opentelemetry.instrumentation.hardware.system.machine import (
    Disk,
    Group,
    Interface,
    Limits,
    Memory,
    Mount,
    Paging,
    Process,
    PythonModule,
    Swap,
    TreeProcess,
)

_MODES = ("user", "nice", "system", "idle", "iowait", "interrupt", "steal")
_NO_DISK = ("loop", "ram", "zram", "nbd", "sr")
_VIRTUAL = (
    "lo",
    "Loopback",
    "veth",
    "docker",
    "br-",
    "virbr",
    "utun",
    "awdl",
    "llw",
    "gif",
    "stf",
    "anpi",
    "ifb",
    "dummy",
    "tun",
    "tap",
)
_ATTRIBUTES = (
    "cpu_times",
    "num_threads",
    "memory_info",
    "num_ctx_switches",
    "create_time",
    "io_counters",
    "num_fds",
    "num_handles",
)


class PsutilMachine:
    """A machine as psutil knows it. Not run by us on macOS or Windows: shown on Linux, with the kernel's files left
    alone.
    """

    linux = False

    def __init__(self, psutil: PythonModule, clock: PythonModule) -> None:
        self._psutil = psutil
        self._clock = clock
        self._attributes: list[str] | None = None

    def cpu(self) -> Mapping[str, float]:
        return _modes(self._psutil.call("cpu_times"))

    def cpus(self) -> Mapping[int, Mapping[str, float]]:
        return {number: _modes(times) for number, times in enumerate(self._psutil.call("cpu_times", True))}

    def counts(self) -> tuple[int | None, int | None]:
        return self._psutil.call("cpu_count", True), self._psutil.call("cpu_count", False)

    def frequencies(self) -> Mapping[int, float]:
        try:
            found = self._psutil.call("cpu_freq", True) or []
        except Unavailable:
            return {}
        return {number: each["current"] * 1e6 for number, each in enumerate(found) if each["current"]}

    def load(self) -> tuple[float, float, float] | None:
        if os.name == "nt":
            return None  # psutil emulates it there with a thread of its own
        one, five, fifteen = self._psutil.call("getloadavg")
        return one, five, fifteen

    def memory(self) -> tuple[Memory, Swap]:
        memory, swap = self._psutil.call("virtual_memory"), self._psutil.call("swap_memory")
        return (
            Memory(
                memory["total"], memory["available"], memory["free"], memory.get("cached", 0), memory.get("buffers", 0)
            ),
            Swap(swap["total"], swap["free"]),
        )

    def total_memory(self) -> int | None:
        return int(self._psutil.call("virtual_memory")["total"])

    def paging(self) -> Paging:
        swap = self._psutil.call("swap_memory")
        page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        return Paging(None, None, swap["sin"] // page, swap["sout"] // page)

    def disks(self) -> Mapping[str, Disk]:
        return {name: disk for name, disk in self._disks().items() if not name.startswith(_NO_DISK)}

    def _disks(self) -> dict[str, Disk]:
        found = self._psutil.call("disk_io_counters", True) or {}
        return {name: _disk(each) for name, each in found.items() if not _partition(name, found)}

    def interfaces(self, names: Sequence[str] | None = None) -> Mapping[str, Interface]:
        found = self._interfaces()
        if names is not None:
            return {name: each for name, each in found.items() if name in names}
        return {name: each for name, each in found.items() if not name.startswith(_VIRTUAL)}

    def _interfaces(self) -> dict[str, Interface]:
        return {name: _interface(each) for name, each in self._psutil.call("net_io_counters", True).items()}

    def connections(self) -> Mapping[tuple[str, str], int]:
        return {}

    def states(self) -> Mapping[str, int]:
        return {}

    def pressure(self) -> Mapping[tuple[str, str], float]:
        return {}

    def uptime(self) -> float:
        return self._now() - float(self._psutil.call("boot_time"))

    def _now(self) -> float:
        """Seconds since 1970, as psutil counts the start of things."""
        return float(self._clock.call("time"))

    def mounts(self) -> Sequence[Mount]:
        found: dict[str, Mount] = {}
        for each in self._psutil.call("disk_partitions", False):
            mount = Mount(each["mountpoint"], each["device"], each["fstype"])
            if each["fstype"] and (mount.device not in found or len(mount.path) < len(found[mount.device].path)):
                found[mount.device] = mount
        return sorted(found.values())

    def mount(self, path: str) -> Mount:
        best = None
        for each in self._psutil.call("disk_partitions", True):
            point = each["mountpoint"]
            inside = path == point or path.startswith(point.rstrip(os.sep) + os.sep)
            if inside and (best is None or len(point) >= len(best.path)):
                best = Mount(point, each["device"], each["fstype"])
        if best is None:
            raise FileNotFoundError(f"no file system is mounted on the way to {path}")
        return best

    def space(self, path: str) -> FilesystemSpace:
        usage = self._psutil.call("disk_usage", path)
        return FilesystemSpace(usage["total"], usage["total"] - usage["used"], usage["free"])

    def process(self, pid: int) -> Process:
        if self._attributes is None:
            self._attributes = [name for name in _ATTRIBUTES if self._has(pid, name)]
        each = self._about(pid, self._attributes)
        memory, io, switches = each["memory_info"], each.get("io_counters"), each.get("num_ctx_switches")
        return Process(
            user=each["cpu_times"]["user"],
            system=each["cpu_times"]["system"],
            threads=each["num_threads"],
            resident=memory["rss"],
            virtual=memory["vms"],
            minor=None,
            major=None,
            uptime=self._now() - each["create_time"],
            voluntary=switches["voluntary"] if switches and os.name == "nt" else None,
            involuntary=None,
            read=io["read_bytes"] if io else None,
            written=io["write_bytes"] if io else None,
            reads=io["read_count"] if io else None,
            writes=io["write_count"] if io else None,
            descriptors=each.get("num_fds"),
            handles=each.get("num_handles"),
        )

    def _has(self, pid: int, name: str) -> bool:
        """Whether psutil knows it of a process on this system. Asking for all would read environment and sockets."""
        try:
            self._psutil.call("Process.as_dict", pid, [name])
        except ValueError:
            return False
        return True

    def _about(self, pid: int, names: Sequence[str]) -> Any:
        """What psutil says of a process.

        Raises:
            ProcessLookupError: where it has ended, also where its parent has not noticed yet.
        """
        try:
            found = self._psutil.call("Process.as_dict", pid, names)
        except Exception as error:
            if type(error).__name__ == "NoSuchProcess":
                raise ProcessLookupError(ESRCH, "it has ended", str(pid)) from None
            raise
        if found["memory_info"] is None or found["cpu_times"] is None:
            raise ProcessLookupError(ESRCH, "it has ended", str(pid))
        return found

    def tree(self, pid: int) -> Sequence[int]:
        return [int(child) for child in self._psutil.call("Process.children", pid, True)]

    def relative(self, pid: int) -> TreeProcess:
        names = ["cpu_times", "num_threads", "memory_info", "create_time"]
        each = self._about(pid, names)
        times = each["cpu_times"]
        return TreeProcess(
            pid,
            each["create_time"],
            self._now() - each["create_time"],
            times["user"] + times["system"],
            each["memory_info"]["rss"],
            each["num_threads"],
        )

    def limits(self, pid: int) -> Limits:
        try:
            cpus = len(self._psutil.call("Process.cpu_affinity", pid))
        except Unavailable:
            cpus = self._psutil.call("cpu_count", True) or 1
        return Limits(cpus, None)

    def group(self, pid: int) -> Group:
        raise Unavailable("control groups are a thing of Linux")


def _partition(name: str, names: Mapping[str, object]) -> bool:
    """Whether another disk's name with a number behind it is this one's: sda1 of sda, nvme0n1p2 of nvme0n1."""
    whole = name.rstrip("0123456789")
    return whole != name and (whole in names or (whole.endswith("p") and whole[:-1] in names))


def _modes(times: Mapping[str, float]) -> dict[str, float]:
    modes = {mode: times[mode] for mode in _MODES if mode in times}
    for name in ("irq", "softirq", "dpc"):
        if name in times:
            modes["interrupt"] = modes.get("interrupt", 0.0) + times[name]
    return modes


def _disk(each: Mapping[str, int]) -> Disk:
    busy = each.get("busy_time")
    return Disk(
        each["read_bytes"],
        each["write_bytes"],
        each["read_count"],
        each["write_count"],
        each.get("read_time", 0) / 1e3,
        each.get("write_time", 0) / 1e3,
        None if busy is None else busy / 1e3,
    )


def _interface(each: Mapping[str, int]) -> Interface:
    return Interface(
        each["bytes_sent"],
        each["bytes_recv"],
        each["packets_sent"],
        each["packets_recv"],
        each["dropout"],
        each["dropin"],
        each["errout"],
        each["errin"],
    )
