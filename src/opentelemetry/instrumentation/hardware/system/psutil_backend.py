"""PsutilMachine: values from psutil, for every system but Linux. See https://psutil.readthedocs.io."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from errno import ESRCH
from typing import Any

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import FilesystemSpace
from opentelemetry.instrumentation.hardware.system.machine import (
    CgroupUsage,
    Disk,
    Interface,
    Memory,
    Mount,
    Process,
    ProcessLimits,
    Swap,
    TreeProcess,
)
from opentelemetry.instrumentation.hardware.system.mounts import containing

_MODES = ("user", "nice", "system", "idle", "iowait", "interrupt", "steal")
_VIRTUAL_DISKS = ("loop", "ram", "zram", "nbd", "sr")  # prefixes of the names of virtual disks

# Prefixes of the names of virtual interfaces.
_VIRTUAL_INTERFACES = re.compile("lo|Loopback|v[Ee]th|docker|br-|virbr|utun|awdl|llw|gif|stf|anpi|ifb|dummy|tun|tap")

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
    """The local machine through psutil. Tested on Linux, on Windows under Wine, and with recorded values of macOS.

    Args:
        psutil: Calls a function of psutil by its name; see :meth:`.drivers.python_module.PythonModule.call`.
        clock: The same of the module ``time``.
    """

    linux = False

    def __init__(self, psutil: Callable[..., Any], clock: Callable[..., Any]) -> None:
        self._psutil = psutil
        self._clock = clock
        self._attributes: list[str] | None = None

    def cpu_times(self) -> Mapping[str, float]:
        """Seconds by ``cpu.mode``, all logical CPUs together."""
        return _cpu_times(self._psutil("cpu_times"))

    def cpu_times_by_cpu(self) -> Mapping[int, Mapping[str, float]]:
        """The same for each logical CPU."""
        return {number: _cpu_times(times) for number, times in enumerate(self._psutil("cpu_times", True))}

    def cpu_counts(self) -> tuple[int | None, int | None]:
        """The number of logical CPUs and of physical cores."""
        return self._psutil("cpu_count", True), self._psutil("cpu_count", False)

    def cpu_frequencies(self) -> Mapping[int, float]:
        """The frequency of each logical CPU in Hz."""
        try:
            cpus = self._psutil("cpu_freq", True) or []
        except Unavailable:
            return {}
        return {number: each["current"] * 1e6 for number, each in enumerate(cpus) if each["current"]}

    def load_averages(self) -> tuple[float, float, float] | None:
        """Load over 1, 5 and 15 minutes."""
        if os.name == "nt":
            return None  # psutil emulates it on Windows with a thread
        one, five, fifteen = self._psutil("getloadavg")
        return one, five, fifteen

    def memory(self) -> tuple[Memory, Swap | None]:
        """Memory and swap space, which is None on a Windows without performance counters."""
        memory = self._psutil("virtual_memory")
        swap = None
        with suppress(RuntimeError):
            each = self._psutil("swap_memory")
            swap = Swap(each["total"], each["free"])
        return Memory(memory["total"], memory["available"]), swap

    def total_memory(self) -> int | None:
        """Memory in bytes. On Linux this does not read ``/proc/meminfo``, which can hang."""
        return int(self._psutil("virtual_memory")["total"])

    def vmstat(self) -> Mapping[str, int]:
        """Virtual memory counters since boot, by the names in ``/proc/vmstat``; pgminfault counts those not major."""
        if os.name == "nt":
            return {}  # psutil returns 0 there
        swap = self._psutil("swap_memory")
        page = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
        return {"pswpin": swap["sin"] // page, "pswpout": swap["sout"] // page}

    def disks(self, every: bool = False) -> Mapping[str, Disk]:
        """The disks that are hardware, without partitions; or every one that the system counts."""
        counters = self._psutil("disk_io_counters", True) or {}
        return {
            name: Disk(
                each["read_bytes"],
                each["write_bytes"],
                each["read_count"],
                each["write_count"],
                *(each[time] / 1e3 if time in each else None for time in ("read_time", "write_time", "busy_time")),
            )
            for name, each in counters.items()
            if every or not (is_partition(name, counters) or name.startswith(_VIRTUAL_DISKS))
        }

    def interfaces(self, names: Sequence[str] | None = None, every: bool = False) -> Mapping[str, Interface]:
        """The named interfaces; by default the hardware ones, or every one."""
        has_dropped_out = os.name == "nt" or sys.platform == "linux"  # psutil returns 0 on macOS and BSD
        return {
            name: Interface(
                each["bytes_sent"],
                each["bytes_recv"],
                each["packets_sent"],
                each["packets_recv"],
                each["dropout"] if has_dropped_out else None,
                each["dropin"],
                each["errout"],
                each["errin"],
            )
            for name, each in self._psutil("net_io_counters", True).items()
            if every or (name in names if names is not None else not _VIRTUAL_INTERFACES.match(name))
        }

    def connections(self) -> Mapping[tuple[str, str], int]:
        """The number of sockets by transport and state."""
        return {}

    def tcp_retransmits(self) -> int | None:
        """TCP segments that were sent again since boot."""
        return None

    def process_states(self) -> Mapping[str, int]:
        """The number of processes by state."""
        return {}

    def pressure(self) -> Mapping[tuple[str, str], float]:
        """Seconds that tasks were stalled, by resource and kind (some, full)."""
        return {}

    def uptime(self) -> float:
        """Seconds since boot."""
        return self._now() - float(self._psutil("boot_time"))

    def _now(self) -> float:
        """Seconds since 1970, the time base of psutil."""
        return float(self._clock("time"))

    def mounts(self) -> Sequence[Mount]:
        """Mounts of real file systems, without those of containers and images."""
        mounts: dict[str, Mount] = {}
        for mount in self._mounts(everything=False):
            if mount.type and (mount.device not in mounts or len(mount.path) < len(mounts[mount.device].path)):
                mounts[mount.device] = mount
        return sorted(mounts.values())

    def mount(self, path: str) -> Mount:
        """The mount that contains a path. Raises FileNotFoundError if there is none."""
        return containing(self._mounts(everything=True), path)

    def _mounts(self, everything: bool) -> Iterator[Mount]:
        for each in self._psutil("disk_partitions", everything):
            yield Mount(each["mountpoint"], each["device"], each["fstype"])

    def space(self, path: str) -> FilesystemSpace:
        """The space of a file system. Blocks while a network file system does not respond."""
        usage = self._psutil("disk_usage", path)
        return FilesystemSpace(usage["total"], usage["total"] - usage["used"], usage["free"])

    def process(self, pid: int) -> Process:
        """One process. Raises OSError if it has ended, as do the next ones."""
        if self._attributes is None:
            supported = []
            for name in _ATTRIBUTES:
                with suppress(ValueError):  # psutil does not have it on this system
                    self._of_process("as_dict", pid, [name])
                    supported.append(name)
            self._attributes = supported
        each = self._attributes_of(pid, self._attributes)
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

    def resident(self, pid: int) -> int | None:
        """The resident memory of a process in bytes; ``None`` for a zombie."""
        return self.process(pid).resident

    def _attributes_of(self, pid: int, names: Sequence[str]) -> Any:
        """Attributes of a process.

        Raises:
            ProcessLookupError: The process has ended, or is a zombie.
        """
        attributes = self._of_process("as_dict", pid, names)
        if attributes["memory_info"] is None or attributes["cpu_times"] is None:
            raise ProcessLookupError(ESRCH, "the process has ended", str(pid))
        return attributes

    def _of_process(self, method: str, pid: int, *arguments: object) -> Any:
        """Call a method of psutil.Process.

        Raises:
            ProcessLookupError: The process has ended.
        """
        try:
            return self._psutil(f"Process.{method}", pid, *arguments)
        except Exception as error:
            if type(error).__name__ in ("NoSuchProcess", "ZombieProcess"):
                raise ProcessLookupError(ESRCH, "the process has ended", str(pid)) from None
            raise

    def descendants(self, pid: int, max_age: float = 0.0) -> Sequence[int]:
        """The PIDs of all descendants of a process, at most so many seconds old; none if it has ended."""
        del max_age
        try:
            return [int(child) for child in self._of_process("children", pid, True)]
        except ProcessLookupError:
            return []

    def tree(self, pid: int, max_age: float = 0.0) -> Sequence[TreeProcess]:
        """A process and its descendants, each behind its parent. Descendants that cannot be read are left out.

        The descendants are those that another source may have listed so many seconds ago; their values are current.
        """
        del max_age
        me = self.process(pid)
        tree = [TreeProcess(pid, 0, 0.0, me.uptime, me.user + me.system, 0.0, me.resident or 0, me.threads or 0)]
        for child in self.descendants(pid):
            with suppress(ProcessLookupError):
                each = self._attributes_of(child, ["cpu_times", "num_threads", "memory_info", "create_time"])
                process = TreeProcess(
                    pid=child,
                    parent=0,  # needed only for reaped_cpu_time, which macOS and Windows do not report
                    started=each["create_time"],
                    age=self._now() - each["create_time"],
                    cpu_time=each["cpu_times"]["user"] + each["cpu_times"]["system"],
                    reaped_cpu_time=0.0,
                    resident=each["memory_info"]["rss"],
                    threads=each["num_threads"],
                )
                tree.append(process)
        return tree

    def limits(self, pid: int) -> ProcessLimits:
        """CPUs and memory that a process may use."""
        try:
            cpus = len(self._of_process("cpu_affinity", pid))
        except (Unavailable, ProcessLookupError):
            cpus = self._psutil("cpu_count", True) or 1
        return ProcessLimits(cpus, None)

    def cgroup(self, pid: int, refresh: bool = True) -> CgroupUsage:
        """Usage and limits of the cgroup of a process, which is found again or the last one.

        Raises:
            Unavailable: The process runs neither in a container nor under a limit.
        """
        raise Unavailable("cgroups exist on Linux only")


def is_partition(name: str, names: Mapping[str, object]) -> bool:
    """Whether the name is another disk's name with a number, like sda1 of sda, nvme0n1p2 of nvme0n1."""
    disk = name.rstrip("0123456789")
    return disk != name and (disk in names or (disk.endswith("p") and disk[:-1] in names))


def _cpu_times(times: Mapping[str, float]) -> dict[str, float]:
    modes = {mode: times[mode] for mode in _MODES if mode in times}
    for name in ("irq", "softirq", "dpc"):
        if name in times:
            modes["interrupt"] = modes.get("interrupt", 0.0) + times[name]
    return modes
