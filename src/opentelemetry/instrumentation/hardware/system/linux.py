"""What the Linux kernel says in its files: each is read once for all that it answers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from opentelemetry.instrumentation.hardware.system import mounts, procfs
from opentelemetry.instrumentation.hardware.system import pid_namespace as pids
from opentelemetry.instrumentation.hardware.system.cgroup import Cgroup
from opentelemetry.instrumentation.hardware.system.files import Files, FilesystemSpace
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
from opentelemetry.instrumentation.hardware.system.procfs import PAGE, TICKS


class LinuxMachine:
    """One Linux machine; what does not change is looked up once."""

    linux = True

    def __init__(self, kernel: Files, psutil: PythonModule) -> None:
        self._kernel = kernel
        self._psutil = psutil
        self._folders: dict[int, str] = {}
        self._groups: dict[int, Cgroup] = {}
        self._pressures: list[tuple[str, str]] | None = None
        self._whole: dict[str, bool] = {}
        self._mount_table = b""
        self._stable_mounts: tuple[bytes, Sequence[Mount]] = b"", ()
        self._physical: tuple[float, list[str]] | None = None

    def _file(self, path: str) -> bytes:
        """A file; nothing where this kernel, or the sandbox around us, has none."""
        try:
            return self._kernel.read(path)
        except OSError:
            return b""

    def _answers(self, path: str) -> bool:
        try:
            self._kernel.read(path)
        except OSError:
            return False
        return True

    def _text(self, path: str) -> str | None:
        try:
            return self._kernel.read(path).decode().strip()
        except (OSError, UnicodeDecodeError):
            return None

    def _number(self, path: str) -> int | None:
        text = self._text(path)
        return int(text) if text is not None and text.lstrip("-").isdigit() else None

    # -- processor

    def cpu(self) -> Mapping[str, float]:
        first, end, _ = self._file("/proc/stat").partition(b"\n")
        return procfs.modes(first.split()) if end else {}

    def cpus(self) -> Mapping[int, Mapping[str, float]]:
        found = {}
        for line in procfs.lines(self._file("/proc/stat"))[1:]:
            if not line.startswith(b"cpu"):
                break
            columns = line.split()
            found[int(columns[0][3:])] = procfs.modes(columns)
        return found

    def counts(self) -> tuple[int | None, int | None]:
        cpus = [name for name in self._names("/sys/devices/system/cpu") if name[:3] == "cpu" and name[3:].isdigit()]
        cores = {self._core(f"/sys/devices/system/cpu/{name}/topology/") for name in cpus} - {None}
        return self._kernel.online(), len(cores) or None

    def _core(self, topology: str) -> bytes | None:
        """The logical CPUs of a core, which tell it from all others; before 4.18 they have another name."""
        for file in ("core_cpus_list", "thread_siblings_list"):
            try:
                return self._kernel.read(topology + file)
            except OSError:
                continue  # offline
        return None

    def frequencies(self) -> Mapping[int, float]:
        found = {}
        for name in self._names("/sys/devices/system/cpu"):
            if name.startswith("cpu") and name[3:].isdigit():
                khz = self._number(f"/sys/devices/system/cpu/{name}/cpufreq/scaling_cur_freq")
                if khz is not None:
                    found[int(name[3:])] = khz * 1e3
        return found

    def load(self) -> tuple[float, float, float] | None:
        columns = self._file("/proc/loadavg").split()
        return (float(columns[0]), float(columns[1]), float(columns[2])) if len(columns) > 3 else None

    # -- memory

    def memory(self) -> tuple[Memory | None, Swap | None]:
        return procfs.meminfo(self._file("/proc/meminfo"))

    def total_memory(self) -> int | None:
        try:
            return self._kernel.physical_memory()
        except OSError:
            return None

    def paging(self) -> Paging:
        return procfs.vmstat(self._file("/proc/vmstat"))

    # -- disks and network

    def disks(self) -> Mapping[str, Disk]:
        return dict(procfs.diskstats(self._file("/proc/diskstats"), self._is_whole))

    def _is_whole(self, name: str) -> bool:
        """A disk with a device behind it: no partition, no loop or ram disk, nothing built on other disks."""
        whole = self._whole.get(name)
        if whole is None:
            backed = self._kernel.exists(_block(name) + "/device")
            whole = self._whole[name] = backed and not name.startswith(("sr", "fd", "nbd"))
        return whole

    def interfaces(self, names: Sequence[str] | None = None) -> Mapping[str, Interface]:
        chosen = self._chosen() if names is None else names
        return dict(procfs.net_dev(self._file("/proc/net/dev"), chosen))

    def _chosen(self) -> list[str]:
        """Interfaces with a device behind them, a bond instead of its members; looked up once a minute.

        In a container's own network nothing has a device: there it is what carries the default route.
        """
        now = self._kernel.uptime()
        if self._physical is None or now - self._physical[0] >= 60:
            found = []
            for name in self._names("/sys/class/net"):
                folder = f"/sys/class/net/{name}"
                # Of a bond, or of a virtual machine's adapter that counts what its hardware one carries (Azure).
                member = any(self._kernel.exists(f"{folder}/master/{mark}") for mark in ("bonding", "device"))
                if self._kernel.exists(folder + "/bonding") or (self._kernel.exists(folder + "/device") and not member):
                    found.append(name)
            self._physical = now, found or procfs.routed(self._text("/proc/net/route") or "")
        return self._physical[1]

    def connections(self) -> Mapping[tuple[str, str], int]:
        four, six = (procfs.sockstat(self._file(f"/proc/net/{name}")) for name in ("sockstat", "sockstat6"))
        found: dict[tuple[str, str], int] = {}
        if "TCP" in four:
            established = procfs.established(self._file("/proc/net/snmp"))
            if established is not None:
                found["tcp", "established"] = established
            if "tw" in four["TCP"]:
                found["tcp", "time_wait"] = four["TCP"]["tw"]
        if "inuse" in four.get("UDP", {}):
            found["udp", ""] = four["UDP"]["inuse"] + six.get("UDP6", {}).get("inuse", 0)
        return found

    def states(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for name in self._names("/proc"):
            if name.isdigit():
                try:
                    state = procfs.state(self._kernel.read(f"/proc/{name}/stat"))
                except OSError:
                    continue
                if state:
                    found[state] = found.get(state, 0) + 1
        return found

    # -- the rest of the host

    def pressure(self) -> Mapping[tuple[str, str], float]:
        if self._pressures is None:
            paths = [(resource, f"/proc/pressure/{resource}") for resource in ("cpu", "memory", "io")]
            self._pressures = [(resource, path) for resource, path in paths if self._answers(path)]
        found = {}
        for resource, path in self._pressures:
            for kind, seconds in procfs.pressure(self._file(path)).items():
                if (resource, kind) != ("cpu", "full"):  # means nothing for a whole system: always 0
                    found[resource, kind] = seconds
        return found

    def uptime(self) -> float:
        return self._kernel.uptime()

    def _names(self, path: str) -> Sequence[str]:
        try:
            return self._kernel.names(path)
        except OSError:
            return ()

    # -- file systems

    def mounts(self) -> Sequence[Mount]:
        table = self._mountinfo()
        if table != self._stable_mounts[0]:
            self._stable_mounts = table, mounts.stable(table, self._text("/proc/filesystems") or "")
        return self._stable_mounts[1]

    def mount(self, path: str) -> Mount:
        return mounts.below(self._mountinfo(), path)

    def _mountinfo(self) -> bytes:
        """The table of mounts; the last one that was read if it cannot be read now."""
        with suppress(OSError):
            self._mount_table = self._kernel.read("/proc/self/mountinfo")
        return self._mount_table

    def space(self, path: str) -> FilesystemSpace:
        return self._kernel.space(path)

    # -- processes

    def _folder(self, pid: int) -> str:
        found = self._folders.get(pid)
        if found is None:
            found = self._folders[pid] = pids.folder(self._kernel, pid)
        return found

    def process(self, pid: int) -> Process:
        folder, mine = self._folder(pid), pid == os.getpid()
        fields = procfs.stat(self._kernel.read(folder + "/stat"))
        statm = self._kernel.read(folder + "/statm").split()
        usage = self._kernel.usage() if mine else None
        ended = fields[0] == b"Z"  # its parent has not looked yet
        io = self._file(folder + "/io")  # nothing of another user's process
        return Process(
            user=usage.user if usage else int(fields[11]) / TICKS,
            system=usage.system if usage else int(fields[12]) / TICKS,
            threads=None if ended else int(fields[17]),
            resident=None if ended else int(statm[1]) * PAGE,
            virtual=None if ended else int(statm[0]) * PAGE,
            minor=usage.minor if usage else int(fields[7]),
            major=usage.major if usage else int(fields[9]),
            uptime=self._kernel.uptime() - int(fields[19]) / TICKS,
            voluntary=usage.voluntary if usage else None,
            involuntary=usage.involuntary if usage else None,
            read=procfs.entry(io, b"\nread_bytes: "),
            written=procfs.entry(io, b"\nwrite_bytes: "),
            reads=procfs.entry(io, b"\nsyscr: "),
            writes=procfs.entry(io, b"\nsyscw: "),
            descriptors=None if ended else self._count(folder + "/fd"),
        )

    def _count(self, folder: str) -> int | None:
        try:
            return self._kernel.count(folder)
        except OSError:
            return None

    def tree(self, pid: int) -> Sequence[int]:
        if pid == os.getpid() and not self._kernel.has_children():
            return ()
        found: list[int] = []
        waiting = [self._folder(pid)]
        while waiting:
            folder = f"{waiting.pop()}/task"
            for task in self._names(folder):
                try:
                    children = [int(child) for child in self._kernel.read(f"{folder}/{task}/children").split()]
                except FileNotFoundError:
                    if not self._kernel.exists(f"{folder}/{task}"):
                        continue  # the thread ended
                    number = pid if pids.are_ours(self._kernel) else int(self._kernel.link("/proc/self"))
                    return [int(child) for child in self._psutil.call("Process.children", number, True)]
                except OSError:
                    continue
                found += children
                waiting += (f"/proc/{child}" for child in children)
        return found

    def relative(self, pid: int) -> TreeProcess:
        fields = procfs.stat(self._kernel.read(f"/proc/{pid}/stat"))
        return TreeProcess(
            pid,
            int(fields[19]) / TICKS,
            self._kernel.uptime() - int(fields[19]) / TICKS,
            (int(fields[11]) + int(fields[12])) / TICKS,
            int(fields[21]) * PAGE,
            int(fields[17]),
        )

    def limits(self, pid: int) -> Limits:
        quota, memory = self._cgroup(pid).limits()
        try:
            cpus: float = self._kernel.affinity(pid)
        except OSError:
            cpus = self._kernel.online()
        return Limits(min(cpus, quota) if quota else cpus, memory)

    def group(self, pid: int) -> Group:
        return self._cgroup(pid).read()

    def _cgroup(self, pid: int) -> Cgroup:
        if pid not in self._groups:
            self._groups[pid] = Cgroup(self._kernel, self._folder(pid))
        return self._groups[pid]


def _block(disk: str) -> str:
    """The folder of a disk, which a partition has not."""
    return "/sys/block/" + disk.replace("/", "!")
