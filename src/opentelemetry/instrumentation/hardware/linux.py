"""What the Linux kernel says, parsed from its files: each file is read once for all that it answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware.cgroup import Cgroup
from opentelemetry.instrumentation.hardware.drivers import Kernel, Module, Space
from opentelemetry.instrumentation.hardware.machine import (
    Disk,
    Group,
    Interface,
    Limits,
    Memory,
    Mount,
    Paging,
    Port,
    Process,
    Relative,
    Swap,
    Zone,
)

TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096

# /proc/stat, columns of a cpu line after its name. guest and guest_nice are already in user and nice.
_MODES = (("user", 1), ("nice", 2), ("system", 3), ("idle", 4), ("iowait", 5), ("steal", 8))

_ERRORS = {
    "symbol_error": "symbol",
    "link_error_recovery": "link_recovery",
    "link_downed": "link_downed",
    "port_rcv_errors": "receive",
    "port_xmit_discards": "transmit_discard",
    "local_link_integrity_errors": "link_integrity",
}

# Mounts that come and go with containers, pods, snaps and users.
_PASSING = (
    "/proc",
    "/sys",
    "/dev",
    "/run",
    "/snap",
    "/var/lib/docker",
    "/var/lib/containers",
    "/var/lib/containerd",
    "/var/lib/kubelet",
)
_IMAGES = frozenset({"squashfs", "iso9660", "erofs", "udf", "cramfs"})
_UNBACKED = frozenset({"btrfs", "zfs", "overlay", "virtiofs", "fuseblk", "bcachefs"})
"""Real file systems that /proc/filesystems calls nodev, or that a container's root is."""


class LinuxMachine:
    """One Linux machine; what does not change is looked up once."""

    linux = True

    def __init__(self, kernel: Kernel, psutil: Module) -> None:
        self._kernel = kernel
        self._psutil = psutil
        self._groups: dict[int, Cgroup] = {}
        self._pressures: list[tuple[str, str]] | None = None
        self._whole: dict[str, bool] = {}
        self._stable: tuple[bytes, Sequence[Mount]] = b"", ()
        self._physical: tuple[float, list[str]] | None = None
        self._powercap: list[tuple[str, str, str]] | None = None
        self._energy: dict[str, tuple[int, int]] = {}

    def _file(self, path: str) -> bytes:
        """A file; nothing where this kernel, or the sandbox around us, has none."""
        try:
            return self._kernel.read(path)
        except OSError:
            return b""

    def _lines(self, path: str) -> list[bytes]:
        """The lines of a file, complete ones only: a number that was cut is a wrong number."""
        text = self._file(path)
        return text[: text.rfind(b"\n") + 1].splitlines()

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
        return _modes(first.split()) if end else {}

    def cpus(self) -> Mapping[int, Mapping[str, float]]:
        found = {}
        for line in self._lines("/proc/stat")[1:]:
            if not line.startswith(b"cpu"):
                break
            columns = line.split()
            found[int(columns[0][3:])] = _modes(columns)
        return found

    def counts(self) -> tuple[int | None, int | None]:
        cpus = [name for name in self._names("/sys/devices/system/cpu") if name[:3] == "cpu" and name[3:].isdigit()]
        cores = {self._core(f"/sys/devices/system/cpu/{name}/topology/") for name in cpus} - {None}
        return self._kernel.online(), len(cores) or None

    def _core(self, topology: str) -> bytes | None:
        """The logical CPUs of a core, which tell it from all others; before 4.18 they have another name."""
        for file in ("core_cpus_list", "thread_siblings_list"):
            try:
                return self._kernel.once(topology + file)
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
        meminfo = b"\n" + self._file("/proc/meminfo")
        total, free = _kib(meminfo, b"MemTotal"), _kib(meminfo, b"MemFree")
        buffers, cached = _kib(meminfo, b"Buffers"), _kib(meminfo, b"Cached")
        memory = swap = None
        if total is not None and free is not None and buffers is not None and cached is not None:
            cached += _kib(meminfo, b"SReclaimable") or 0
            memory = Memory(total, _kib(meminfo, b"MemAvailable"), free, cached, buffers)
        total, free = _kib(meminfo, b"SwapTotal"), _kib(meminfo, b"SwapFree")
        if total is not None and free is not None:
            swap = Swap(total, free)
        return memory, swap

    def paging(self) -> Paging:
        vmstat = self._file("/proc/vmstat")
        faults, major = _entry(vmstat, b"\npgfault "), _entry(vmstat, b"\npgmajfault ")
        minor = None if faults is None or major is None else faults - major
        return Paging(minor, major, _entry(vmstat, b"\npswpin "), _entry(vmstat, b"\npswpout "))

    # -- disks and network

    def disks(self) -> Mapping[str, Disk]:
        return dict(self._disks(self._is_whole))

    def _disks(self, chosen: Callable[[str], bool]) -> Iterator[tuple[str, Disk]]:
        for line in self._lines("/proc/diskstats"):
            columns = line.split(None, 3)
            if len(columns) > 3 and chosen(name := columns[2].decode()):
                counts = [int(column) for column in columns[3].split(None, 10)[:10]]
                if len(counts) < 10:
                    continue
                reads, _, sectors_read, read_ms, writes, _, sectors_written, write_ms, _, busy_ms = counts
                yield (
                    name,
                    Disk(
                        sectors_read * 512,
                        sectors_written * 512,
                        reads,
                        writes,
                        read_ms / 1e3,
                        write_ms / 1e3,
                        busy_ms / 1e3,
                    ),
                )

    def _is_whole(self, name: str) -> bool:
        """A disk with a device behind it: no partition, no loop or ram disk, nothing built on other disks."""
        whole = self._whole.get(name)
        if whole is None:
            block = "/sys/block/" + name.replace("/", "!")
            whole = self._whole[name] = self._kernel.exists(block + "/device") and not name.startswith(
                ("sr", "fd", "nbd")
            )
        return whole

    def interfaces(self, names: Sequence[str] | None = None) -> Mapping[str, Interface]:
        return dict(self._interfaces(self._chosen() if names is None else names))

    def _interfaces(self, names: Sequence[str] | None) -> Iterator[tuple[str, Interface]]:
        for line in self._lines("/proc/net/dev")[2:]:
            label, _, rest = line.partition(b":")
            name = label.strip().decode()
            if names is None or name in names:
                c = rest.split()
                yield (
                    name,
                    Interface(int(c[8]), int(c[0]), int(c[9]), int(c[1]), int(c[11]), int(c[3]), int(c[10]), int(c[2])),
                )

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
            self._physical = now, found or self._routed()
        return self._physical[1]

    def _routed(self) -> list[str]:
        routes = (self._text("/proc/net/route") or "").splitlines()[1:]
        return sorted({columns[0] for line in routes if len(columns := line.split()) > 1 and columns[1] == "00000000"})

    def connections(self) -> Mapping[tuple[str, str], int]:
        four, six = _sockets(self._lines("/proc/net/sockstat")), _sockets(self._lines("/proc/net/sockstat6"))
        found: dict[tuple[str, str], int] = {}
        if "TCP" in four:
            established = self._established()
            if established is not None:
                found["tcp", "established"] = established
            if "tw" in four["TCP"]:
                found["tcp", "time_wait"] = four["TCP"]["tw"]
        if "inuse" in four.get("UDP", {}):
            found["udp", ""] = four["UDP"]["inuse"] + six.get("UDP6", {}).get("inuse", 0)
        return found

    def _established(self) -> int | None:
        lines = [line.split() for line in self._lines("/proc/net/snmp") if line.startswith(b"Tcp:")]
        if len(lines) != 2 or b"CurrEstab" not in lines[0]:
            return None
        return int(lines[1][lines[0].index(b"CurrEstab")])

    def states(self) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for name in self._names("/proc"):
            if name.isdigit():
                try:
                    stat = self._kernel.once(f"/proc/{name}/stat")
                except OSError:
                    continue
                state = _STATES.get(stat[stat.rindex(b")") + 2 : stat.rindex(b")") + 3])
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
            for line in self._lines(path):
                kind = line.partition(b" ")[0].decode()
                if (resource, kind) != ("cpu", "full"):  # means nothing for a whole system: always 0
                    found[resource, kind] = int(line.rpartition(b"=")[2]) / 1e6
        return found

    def uptime(self) -> float:
        return self._kernel.uptime()

    def energy(self) -> Sequence[Zone]:
        """Zones of powercap: package is the processor, dram its memory, psys the machine. core and uncore lie inside
        package.
        """
        return [
            Zone(f"{kind}-{name.split(':')[1]}" if kind == "dram" else label, kind, joules)
            for name, label, kind in self._zones()
            if (joules := self._joules(name)) is not None
        ]

    def _zones(self) -> list[tuple[str, str, str]]:
        if self._powercap is None:
            labels = [
                (name, self._text(f"/sys/class/powercap/{name}/name") or "")
                for name in sorted(self._names("/sys/class/powercap"))
                if name.startswith("intel-rapl:")
            ]
            zones = [(name, label, label.partition("-")[0]) for name, label in labels]
            self._powercap = [zone for zone in zones if zone[2] in ("package", "dram", "psys")]
        return self._powercap

    def _joules(self, name: str) -> float | None:
        """Energy of a zone since boot or since it was first read; the counter wraps within minutes on a large
        machine.
        """
        micro = self._number(f"/sys/class/powercap/{name}/energy_uj")
        if micro is None:
            return None
        last, wrapped = self._energy.get(name, (micro, 0))
        if micro < last:
            wrapped += self._number(f"/sys/class/powercap/{name}/max_energy_range_uj") or last
        self._energy[name] = micro, wrapped
        return (micro + wrapped) / 1e6

    def ports(self) -> Sequence[Port]:
        found = []
        for adapter in self._names("/sys/class/infiniband"):
            for port in self._names(f"/sys/class/infiniband/{adapter}/ports"):
                folder = f"/sys/class/infiniband/{adapter}/ports/{port}"
                state = self._text(folder + "/state")
                errors = {
                    word: count
                    for file, word in _ERRORS.items()
                    if (count := self._number(f"{folder}/counters/{file}")) is not None
                }
                sent, received = (self._number(f"{folder}/counters/port_{way}_data") for way in ("xmit", "rcv"))
                found.append(
                    Port(
                        f"{adapter}/{port}",
                        None if state is None else state.startswith("4"),
                        None if sent is None else sent * 4,
                        None if received is None else received * 4,
                        errors,
                    )
                )
        return found

    def _names(self, path: str) -> Sequence[str]:
        try:
            return self._kernel.names(path)
        except OSError:
            return ()

    # -- file systems

    def mounts(self) -> Sequence[Mount]:
        text = self._mountinfo()
        if text != self._stable[0]:
            self._stable = text, self._choose(_mounted(text))
        return self._stable[1]

    def _choose(self, mounted: Iterable[tuple[str, str, Mount]]) -> Sequence[Mount]:
        real = _UNBACKED | {
            line.strip()
            for line in (self._text("/proc/filesystems") or "").splitlines()
            if not line.startswith("nodev")
        }
        found: dict[str, Mount] = {}
        for number, root, mount in mounted:
            if mount.type not in real or mount.type in _IMAGES or (mount.type == "overlay" and mount.path != "/"):
                continue
            if mount.path != "/" and (root != "/" and mount.type != "btrfs"):
                continue  # a part of a file system bound somewhere else
            if any(mount.path == passing or mount.path.startswith(passing + "/") for passing in _PASSING):
                continue
            key = mount.device if mount.type == "btrfs" else number
            if key not in found or len(mount.path) < len(found[key].path):
                found[key] = mount
        return sorted(found.values())

    def mount(self, path: str) -> Mount:
        best = None
        for _, _, mount in _mounted(self._mountinfo()):
            inside = mount.path in ("/", path) or path.startswith(mount.path + "/")
            if inside and (best is None or len(mount.path) >= len(best.path)):  # a later mount covers an earlier one
                best = mount
        if best is None:
            raise FileNotFoundError(f"no file system is mounted on the way to {path}")
        return best

    def _mountinfo(self) -> bytes:
        try:
            return self._kernel.once("/proc/self/mountinfo")
        except OSError:
            return b""

    def space(self, path: str) -> Space:
        return self._kernel.space(path)

    # -- processes

    def _folder(self, pid: int) -> str:
        return "/proc/self" if pid == os.getpid() else f"/proc/{pid}"

    def process(self, pid: int) -> Process:
        folder, mine = self._folder(pid), pid == os.getpid()
        fields = _stat(self._kernel.read(folder + "/stat"))
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
            read=_entry(io, b"\nread_bytes: "),
            written=_entry(io, b"\nwrite_bytes: "),
            reads=_entry(io, b"\nsyscr: "),
            writes=_entry(io, b"\nsyscw: "),
            descriptors=None if ended else self._count(folder + "/fd"),
        )

    def _count(self, folder: str) -> int | None:
        try:
            return self._kernel.count(folder)
        except OSError:
            return None

    def tree(self, pid: int) -> Sequence[int]:
        found: list[int] = []
        waiting = [pid]
        while waiting:
            folder = f"/proc/{waiting.pop()}/task"
            for task in self._names(folder):
                try:
                    children = [int(child) for child in self._kernel.once(f"{folder}/{task}/children").split()]
                except FileNotFoundError:
                    if not self._kernel.exists(f"{folder}/{task}"):
                        continue  # the thread ended
                    return [int(child) for child in self._psutil.call("Process.children", pid, True)]
                except OSError:
                    continue
                found += children
                waiting += children
        return found

    def relative(self, pid: int) -> Relative:
        fields = _stat(self._kernel.once(f"/proc/{pid}/stat"))
        return Relative(
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
            self._groups[pid] = Cgroup(self._kernel, pid)
        return self._groups[pid]

    def everything(self) -> tuple[Mapping[str, Disk], Mapping[str, Interface]]:
        return dict(self._disks(lambda name: self._kernel.exists("/sys/block/" + name.replace("/", "!")))), dict(
            self._interfaces(None)
        )


_STATES = {
    b"R": "running",
    b"S": "sleeping",
    b"D": "sleeping",
    b"I": "sleeping",
    b"T": "stopped",
    b"t": "stopped",
    b"Z": "defunct",
}
"""The conventions know four states; waiting for a disk and idle kernel threads sleep."""


def _modes(columns: Sequence[bytes]) -> dict[str, float]:
    modes = {mode: int(columns[at]) / TICKS for mode, at in _MODES if at < len(columns)}
    if len(columns) > 7:
        modes["interrupt"] = (int(columns[6]) + int(columns[7])) / TICKS
    return modes


def _entry(text: bytes, label: bytes) -> int | None:
    at = text.find(label)
    end = text.find(b"\n", at + 1)
    return None if at < 0 or end < 0 else int(text[at + len(label) : end])


def _kib(meminfo: bytes, name: bytes) -> int | None:
    """A line of /proc/meminfo, in bytes."""
    at = meminfo.find(b"\n" + name + b":")
    end = meminfo.find(b" kB\n", at)
    return None if at < 0 or end < 0 else int(meminfo[at + len(name) + 2 : end]) << 10


def _stat(text: bytes) -> list[bytes]:
    """The fields after the name, which may hold anything; ``state`` is field 0."""
    return text[text.rindex(b")") + 2 :].split()


def _sockets(lines: Sequence[bytes]) -> dict[str, dict[str, int]]:
    found = {}
    for line in lines:
        label, _, rest = line.decode().partition(":")
        words = rest.split()
        found[label] = {name: int(count) for name, count in zip(words[::2], words[1::2])}
    return found


def _mounted(mountinfo: bytes) -> Iterator[tuple[str, str, Mount]]:
    """Device number, root and mount of each line."""
    for line in mountinfo.decode(errors="surrogateescape").split("\n")[:-1]:
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        yield fields[2], _unescape(fields[3]), Mount(_unescape(fields[4]), _unescape(kind[1]), kind[0])


def _unescape(path: str) -> str:
    """Blanks and the like are octal in mountinfo."""
    for code in ("\\040", "\\011", "\\012", "\\134"):
        if code in path:
            path = path.replace(code, chr(int(code[1:], 8)))
    return path
