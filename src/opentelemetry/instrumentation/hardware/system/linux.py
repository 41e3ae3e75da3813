"""LinuxMachine: values from the files of the Linux kernel."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from opentelemetry.instrumentation.hardware.system import mounts, procfs
from opentelemetry.instrumentation.hardware.system.cgroup import Cgroup
from opentelemetry.instrumentation.hardware.system.files import Files, FilesystemSpace, names_or_empty, read_or_empty
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
from opentelemetry.instrumentation.hardware.system.procfs import PAGE, TICKS
from opentelemetry.instrumentation.hardware.system.tree import SharedWalk, Walk, descendants, proc_folder

_CPUS = "/sys/devices/system/cpu"

_INTERFACES_PERIOD = 60.0  # seconds after which the hardware interfaces are listed again


class LinuxMachine:
    """The local machine. If a file is missing, as in a sandbox or an old kernel, only its own values are missing.

    Its walk over the process tree may be shared with other sources.
    """

    linux = True

    def __init__(self, files: Files, walk: SharedWalk | None = None) -> None:
        self._files = files
        self._shared = walk
        self._cgroups: dict[int, Cgroup] = {}
        self._cpu_counts: tuple[int | None, int | None] = None, None
        self._is_hardware: dict[str, bool] = {}
        self._hardware_interfaces: tuple[float, list[str]] | None = None
        self._mount_table = b""
        self._stable_mounts: tuple[bytes, Sequence[Mount]] = b"", ()

    # -- processor

    def cpu_times(self) -> Mapping[str, float]:
        first, end, _ = self._read("/proc/stat").partition(b"\n")
        return procfs.cpu_times(first.split()) if end else {}

    def cpu_times_by_cpu(self) -> Mapping[int, Mapping[str, float]]:
        times = {}
        for line in procfs.lines(self._read("/proc/stat"))[1:]:
            if not line.startswith(b"cpu"):
                break
            columns = line.split()
            times[int(columns[0][3:])] = procfs.cpu_times(columns)
        return times

    def cpu_counts(self) -> tuple[int | None, int | None]:
        online = self._files.online()
        if online != self._cpu_counts[0]:  # a file of each CPU is read only if their number has changed
            folders = [f"{_CPUS}/cpu{number}/topology" for number in self._cpu_numbers()]
            names = "core_cpus_list", "thread_siblings_list"  # its CPUs identify a core; the second, before Linux 4.18
            cores = [self._read(f"{each}/{names[0]}") or self._read(f"{each}/{names[1]}") for each in folders]
            known = [each for each in cores if each]  # a CPU that is offline has none
            # In a container, lxcfs says how many CPUs are online, but the folders are those of the machine.
            self._cpu_counts = online, len({*known}) or None if len(known) == online else None
        return self._cpu_counts

    def cpu_frequencies(self) -> Mapping[int, float]:
        frequencies = {}
        for number in self._cpu_numbers():
            khz = self._read(f"{_CPUS}/cpu{number}/cpufreq/scaling_cur_freq").strip()
            if khz.isdigit():
                frequencies[number] = int(khz) * 1e3
        return frequencies

    def _cpu_numbers(self) -> list[int]:
        names = names_or_empty(self._files, _CPUS)
        return [int(name[3:]) for name in names if name.startswith("cpu") and name[3:].isdigit()]

    def load_averages(self) -> tuple[float, float, float] | None:
        columns = self._read("/proc/loadavg").split()
        if len(columns) < 4 or columns[3] == b"0/0":  # gVisor counts no threads
            return None
        return float(columns[0]), float(columns[1]), float(columns[2])

    # -- memory

    def memory(self) -> tuple[Memory | None, Swap | None]:
        return procfs.meminfo(self._read("/proc/meminfo"))

    def total_memory(self) -> int | None:
        try:
            return self._files.physical_memory()
        except OSError:
            return None

    def vmstat(self) -> Mapping[str, int]:
        return procfs.vmstat(self._read("/proc/vmstat"))

    # -- disks and network

    def disks(self, every: bool = False) -> Mapping[str, Disk]:
        is_wanted = (lambda name: True) if every else self._is_hardware_disk
        return dict(procfs.diskstats(self._read("/proc/diskstats"), is_wanted))

    def _is_hardware_disk(self, name: str) -> bool:
        """Whether a disk is backed by a device. Partitions, loop and RAM disks, RAID and LVM volumes are not.

        Nor is an NVMe disk with several ports, which has an I/O policy. Each path to it is listed as well, such as
        nvme0c1n1 of nvme0n1, and counts the operations; the disk counts the same ones, but only since Linux 6.4. See
        https://docs.kernel.org/admin-guide/nvme-multipath.html.
        """
        if name not in self._is_hardware:
            device = "/sys/block/" + name.replace("/", "!") + "/device"
            is_virtual = name.startswith(("sr", "fd", "nbd")) or (
                name.startswith("nvme") and self._files.exists(device + "/iopolicy")
            )
            self._is_hardware[name] = not is_virtual and self._files.exists(device)
        return self._is_hardware[name]

    def interfaces(self, names: Sequence[str] | None = None, every: bool = False) -> Mapping[str, Interface]:
        wanted = None if every else self._default_interfaces() if names is None else names
        return dict(procfs.net_dev(self._read("/proc/net/dev"), wanted))

    def _default_interfaces(self) -> list[str]:
        """Return the hardware interfaces, with bonds in place of their members, and those of a container's routes."""
        now = self._files.uptime()
        if self._hardware_interfaces is None or now - self._hardware_interfaces[0] >= _INTERFACES_PERIOD:
            every = names_or_empty(self._files, "/sys/class/net")
            names = [*filter(self._is_hardware_interface, every)]
            # That of a container is linked to one of another namespace; a bridge or a VLAN is not.
            numbers = {b"", *(self._read(f"/sys/class/net/{name}/ifindex") for name in every)}
            outward = {name for name in every if self._read(f"/sys/class/net/{name}/iflink") not in numbers}
            if not names or outward.difference(names):  # the tables of a host may be long
                routed = procfs.default_interfaces(*map(self._read, ("/proc/net/route", "/proc/net/ipv6_route")))
                names += [name for name in routed if name not in names and (not names or name in outward)]
            self._hardware_interfaces = now, names
        return self._hardware_interfaces[1]

    def _is_hardware_interface(self, name: str) -> bool:
        folder = f"/sys/class/net/{name}"
        if self._files.exists(folder + "/bonding"):
            return True
        # The master is a bond, or the virtual adapter of a VM that counts the traffic of the hardware one (Azure).
        has_master = any(self._files.exists(f"{folder}/master/{sign}") for sign in ("bonding", "device"))
        return self._files.exists(folder + "/device") and not has_master

    def connections(self) -> Mapping[tuple[str, str], int]:
        ipv4, ipv6 = (procfs.sockstat(self._read(f"/proc/net/{name}")) for name in ("sockstat", "sockstat6"))
        tcp, udp = ipv4.get("TCP"), ipv4.get("UDP", {}).get("inuse")
        counts = {
            ("tcp", "established"): None if tcp is None else procfs.tcp(self._read("/proc/net/snmp")).get("CurrEstab"),
            ("tcp", "time_wait"): None if tcp is None else tcp.get("tw"),
            ("udp", ""): None if udp is None else udp + ipv6.get("UDP6", {}).get("inuse", 0),
        }
        return {which: count for which, count in counts.items() if count is not None}

    def tcp_retransmits(self) -> int | None:
        return procfs.tcp(self._read("/proc/net/snmp")).get("RetransSegs")

    # -- the rest of the host

    def process_states(self) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        is_whole = self._read("/proc/1/stat")  # else the processes of others are hidden, by hidepid or Android
        for name in filter(str.isdigit, names_or_empty(self._files, "/proc") if is_whole else ()):
            with suppress(OSError):  # the process has ended
                state = procfs.state(self._files.read(f"/proc/{name}/stat"))
                if state:
                    counts[state] = counts.get(state, 0) + 1
        return counts

    def pressure(self) -> Mapping[tuple[str, str], float]:
        stalled = {}
        for resource in ("cpu", "memory", "io"):
            for kind, seconds in procfs.pressure(self._read(f"/proc/pressure/{resource}")).items():
                if (resource, kind) != ("cpu", "full"):  # undefined for a whole system: always 0
                    stalled[resource, kind] = seconds
        return stalled

    def uptime(self) -> float:
        return self._files.uptime()

    # -- file systems

    def mounts(self) -> Sequence[Mount]:
        table = self._mountinfo()
        if table != self._stable_mounts[0]:
            types = self._read("/proc/filesystems").decode(errors="replace")
            self._stable_mounts = table, mounts.stable(table, types)
        return self._stable_mounts[1]

    def mount(self, path: str) -> Mount:
        return mounts.containing((entry.mount for entry in mounts.entries(self._mountinfo())), path)

    def _mountinfo(self) -> bytes:
        """The table of mounts; the previous one if it cannot be read now, as in a program without free descriptors."""
        with suppress(OSError):
            self._mount_table = self._files.read("/proc/self/mountinfo")
        return self._mount_table

    def space(self, path: str) -> FilesystemSpace:
        return self._files.space(path)

    # -- processes

    def process(self, pid: int) -> Process:
        folder = proc_folder(self._files, pid)
        fields = procfs.stat(self._files.read(folder + "/stat"))
        memory = procfs.statm(self._files.read(folder + "/statm")) if fields[0] != b"Z" else None
        virtual, resident = memory or (None, None)
        has_ended = memory is None  # the kernel frees the memory before it sets the state
        usage = self._files.usage() if pid == os.getpid() else None
        minor, major = (usage.minor, usage.major) if usage else (int(fields[7]), int(fields[9]))
        io = self._read(folder + "/io")  # empty for a process of another user
        # Its bytes include those of children that were waited for.
        read, written = procfs.entry(io, b"\nread_bytes: "), procfs.entry(io, b"\nwrite_bytes: ")
        if usage and io:
            read, written = usage.read, usage.written
        descriptors = None
        if not has_ended:
            with suppress(OSError):
                descriptors = self._files.count(folder + "/fd")
        is_counted = minor > 0  # gVisor counts neither page faults, nor switches, nor bytes
        return Process(
            user=usage.user if usage else int(fields[11]) / TICKS,
            system=usage.system if usage else int(fields[12]) / TICKS,
            threads=None if has_ended else int(fields[17]) or None,  # 0: see tree()
            resident=resident,
            virtual=virtual,
            minor=minor if is_counted else None,
            major=major if is_counted else None,
            uptime=self._files.uptime() - int(fields[19]) / TICKS,
            voluntary=usage.voluntary if usage and is_counted else None,
            involuntary=usage.involuntary if usage and is_counted else None,
            read=read if is_counted else None,
            written=written if is_counted else None,
            reads=procfs.entry(io, b"\nsyscr: "),
            writes=procfs.entry(io, b"\nsyscw: "),
            descriptors=descriptors,
        )

    def resident(self, pid: int) -> int | None:
        memory = procfs.statm(self._files.read(proc_folder(self._files, pid) + "/statm"))
        return memory[1] if memory else None

    def descendants(self, pid: int, max_age: float = 0.0) -> Sequence[int]:
        if self._shared is None:
            return [*descendants(self._files, pid)]
        return [*self._walk(pid, max_age).stats]

    def _walk(self, pid: int, max_age: float) -> Walk:
        now = self._files.uptime()

        def walk() -> Walk:
            return Walk(now, descendants(self._files, pid))

        return walk() if self._shared is None else self._shared.get(pid, max_age, walk, now)

    def tree(self, pid: int, max_age: float = 0.0) -> Sequence[TreeProcess]:
        folder = proc_folder(self._files, pid)
        walk = self._walk(pid, max_age)
        root = self._tree_process(self._files.read(f"{folder}/stat"), walk.time)
        if not root.threads:  # QEMU, which emulates another CPU for the program, leaves the rest of the file 0
            me = self.process(pid)
            root = root._replace(cpu_time=me.user + me.system, resident=me.resident or 0)
        parents = {root.pid, *walk.stats}
        tree = [root]
        for child, text in walk.stats.items():
            with suppress(OSError):  # it has ended
                process = self._tree_process(text or self._files.read(f"/proc/{child}/stat"), walk.time)
                if process.parent in parents:  # else another process has its PID by now, or its parent has ended
                    tree.append(process)
        return tree

    @staticmethod
    def _tree_process(text: bytes, now: float) -> TreeProcess:
        fields = procfs.stat(text)
        started = int(fields[19]) / TICKS
        return TreeProcess(
            int(text[: text.index(b" ")]),
            int(fields[1]),
            started,
            now - started,
            (int(fields[11]) + int(fields[12])) / TICKS,
            (int(fields[13]) + int(fields[14])) / TICKS,
            int(fields[21]) * PAGE,
            int(fields[17]),
        )

    def limits(self, pid: int) -> ProcessLimits:
        cgroup = self._cgroup(pid)
        cgroup.refresh()
        quota, memory = cgroup.limits()
        try:
            cpus: float = self._files.affinity(pid)
        except OSError:
            cpus = self._files.online()
        return ProcessLimits(min(cpus, quota) if quota else cpus, memory)

    def cgroup(self, pid: int, refresh: bool = True) -> CgroupUsage:
        cgroup = self._cgroup(pid)
        if refresh:
            cgroup.refresh()
        return cgroup.usage()

    def _cgroup(self, pid: int) -> Cgroup:
        if pid not in self._cgroups:
            self._cgroups[pid] = Cgroup(self._files, proc_folder(self._files, pid))
        return self._cgroups[pid]

    def _read(self, path: str) -> bytes:
        return read_or_empty(self._files, path)
