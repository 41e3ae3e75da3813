"""The host of a simulated machine: the kernel's files of the real one, changed by what holds the program back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from errno import ENOENT
from typing import Any, Final, cast

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.simulator import amdgpu
from opentelemetry.instrumentation.hardware.simulator.machine import Machine
from opentelemetry.instrumentation.hardware.simulator.scenarios import HostLoad
from opentelemetry.instrumentation.hardware.system.files import Files, FilesystemSpace, Usage

_TICKS: Final = 100  # ticks per second of the times in ``/proc``

_GROUP: Final = "/sys/fs/cgroup/simulated"

_MOUNT: Final = b"9999 1 0:9999 / %b rw - cgroup2 cgroup2 rw\n" % _GROUP.encode()

_PERIOD: Final = 0.1  # seconds of a period of a CPU quota

PROGRAM: Final = 4242  # the program that holds the GPUs of a simulated server

_USER: Final = 70001  # its user, whom no real machine should know

_TRAFFIC: Final = 20e6  # bytes per second that it sends; it receives, and reads from the disk, twice as many

_UPTIME: Final = 40 * 86400.0  # seconds for which a simulated server has run at the start


class SimulatedHost(Files):
    """The kernel's files of a simulated machine.

    Args:
        elapsed: Returns simulated seconds since the start.
    """

    def __init__(self, load: HostLoad, elapsed: Callable[[], float], pid: int) -> None:
        super().__init__()
        self._load = load
        self._elapsed = elapsed
        self._processes = (f"/proc/{pid}", *(("/proc/self",) if pid == os.getpid() else ()))
        self._first: dict[str, bytes] = {}
        self._boot = super().uptime() - elapsed()

    def _real(self, path: str) -> bytes:
        """Return the content of a file of the real host."""
        return super().read(path)

    def read(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        if folder == "/proc/pressure":
            return self._pressure(name)
        if folder == _GROUP:
            return self._group(name)
        if folder in self._processes and self._load.quota and name == "cgroup":
            return b"0::/\n"
        content = self._real(path)
        if path == "/proc/stat":
            return self._stat(self._first.setdefault(path, content))
        if path == "/proc/vmstat":  # the real host swaps and kills in its own time
            return self._first.setdefault(path, content)
        if name == "mountinfo" and self._load.quota:
            kept = [line for line in content.splitlines(keepends=True) if b" - cgroup" not in line]
            return b"".join(kept) + _MOUNT
        if folder in self._processes and name == "stat":
            return self._process(self._first.setdefault(folder, content), content)
        return content

    def usage(self) -> Usage:
        return super().usage()._replace(user=self._load.program * self._elapsed())

    def uptime(self) -> float:
        return self._boot + self._elapsed()

    def _stat(self, first: bytes) -> bytes:
        """Return the CPU times, which go on from those at the first reading."""
        lines = first.splitlines(keepends=True)
        cpus = [line.split() for line in lines if re.match(rb"cpu\d", line)]
        table = []
        for number, (name, *columns) in enumerate(cpus):
            busy = self._load.busy(number)
            waiting = min(self._load.iowait, 1.0 - busy)
            # user, system, idle, iowait
            shares = {0: 0.9 * busy, 2: 0.1 * busy, 3: 1.0 - busy - waiting, 4: waiting}
            now = [int(value) + int(shares.get(at, 0.0) * self._elapsed() * _TICKS) for at, value in enumerate(columns)]
            table.append((name, now))
        total = [sum(column) for column in zip(*(now for _, now in table))]
        rows = [b" ".join([name, *(b"%d" % value for value in now)]) for name, now in [(b"cpu", total), *table]]
        return b"\n".join(rows) + b"\n" + b"".join(line for line in lines if not line.startswith(b"cpu"))

    def _pressure(self, resource: str) -> bytes:
        rows = ((kind, self._load.stalls.get((resource, kind), 0.0)) for kind in ("some", "full"))
        return b"".join(
            b"%b avg10=%.2f avg60=%.2f avg300=%.2f total=%d\n"
            % (kind.encode(), *3 * (100 * share,), int(1e6 * share * self._elapsed()))
            for kind, share in rows
        )

    def _group(self, name: str) -> bytes:
        """Return a file of the program's control group, which has a limit of CPUs."""
        quota, elapsed = self._load.quota, self._elapsed()
        if name == "cpu.max":
            return b"%d %d\n" % (1e6 * _PERIOD * quota, 1e6 * _PERIOD)
        if name == "cpu.stat":
            return b"usage_usec %d\nnr_periods %d\nnr_throttled %d\nthrottled_usec %d\n" % (
                1e6 * self._load.program * elapsed,
                elapsed / _PERIOD,
                self._load.throttled * elapsed / _PERIOD,
                1e6 * self._load.throttled * 0.5 * elapsed,
            )
        raise _missing(f"{_GROUP}/{name}")

    def _process(self, first: bytes, content: bytes) -> bytes:
        """Return the status of the program. Its CPU time continues from that at the first reading."""
        before, _, _ = first.rpartition(b") ")
        start, end, rest = content.rpartition(b") ")
        columns = rest.split(b" ")
        base = int(first[len(before) + 2 :].split(b" ")[11])
        columns[11] = b"%d" % (base + int(self._load.program * self._elapsed() * _TICKS))
        return start + end + b" ".join(columns)


class SimulatedServer(SimulatedHost):
    """The same without anything of the real host, for one that is simulated beside others.

    A server with eight CPUs and 128 GiB for each GPU. Its GPUs are held by a job of SLURM.
    """

    def __init__(self, load: HostLoad, elapsed: Callable[[], float], gpus: int, job: int) -> None:
        super().__init__(load, elapsed, PROGRAM)
        self._boot = _UPTIME
        self._cpus = 8 * gpus
        stalls = ("cpu", "memory", "io")
        total, used = 128 * gpus << 20, 40 * gpus << 20  # KiB
        self._content = {
            "/proc/stat": b"".join(b"cpu%d 0 0 0 0 0 0 0 0 0 0\n" % cpu for cpu in range(self._cpus)),
            "/proc/meminfo": b"MemTotal: %d kB\nMemFree: %d kB\nMemAvailable: %d kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
            % (total, total - used, total - used),
            "/proc/vmstat": b"pgmajfault 0\noom_kill 0\n",
            "/proc/self/mountinfo": b"22 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw\n",
            "/proc/filesystems": b"\text4\n",
            f"/proc/{PROGRAM}/cgroup": b"0::/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0\n" % job,
            f"/proc/{PROGRAM}/status": b"Uid:\t%d\t%d\t%d\t%d\n" % (4 * (_USER,)),
            **{f"/proc/pressure/{name}": b"some total=0\nfull total=0\n" for name in stalls},
        }

    def _real(self, path: str) -> bytes:
        sent, received = int(_TRAFFIC * self._elapsed()), int(2 * _TRAFFIC * self._elapsed())
        if path == "/proc/net/dev":
            counts = received, received >> 12, sent, sent >> 12
            return b"Inter-|\n face |\n eth0: %d %d 0 0 0 0 0 0 %d %d 0 0 0 0 0 0\n" % counts
        if path == "/proc/diskstats":
            blocks = received >> 9
            busy = int(1000 * max(0.02, self._load.iowait) * self._elapsed())
            return b"259 0 nvme0n1 %d 0 %d %d 0 0 0 0 0 %d %d\n" % (blocks >> 8, blocks, busy, busy, busy)
        if path == "/proc/loadavg":
            return b"%.2f 0 0 1/1 1\n" % (self._load.program + self._load.others * self._cpus)
        if path not in self._content:
            raise _missing(path)
        return self._content[path]

    def names(self, path: str) -> Sequence[str]:
        if path == "/sys/class/net":
            return ["eth0"]
        raise _missing(path)

    def exists(self, path: str) -> bool:
        return path in ("/sys/class/net/eth0/device", "/sys/block/nvme0n1/device")

    def link(self, path: str) -> str:
        if path == "/proc/self/ns/pid":
            return "pid:[4026531836]"  # that of the host
        raise _missing(path)

    def space(self, path: str) -> FilesystemSpace:
        total = 2 * 10**12
        free = int(total * (1.0 - self._load.disk))
        return FilesystemSpace(total, free, free)

    def has_children(self) -> bool:
        return False

    def online(self) -> int:
        return self._cpus


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(ENOENT, os.strerror(ENOENT), path)


class AmdgpuFiles:
    """The files of a host with those of simulated GPUs of AMD."""

    _FOLDERS: Final = ("/sys/class/drm", "/sys/class/kfd", "/sys/module/amdgpu")

    def __init__(self, host: Files, machine: Machine, pid: int) -> None:
        self._host = host
        self._machine = machine
        self._pid = pid

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)

    def _files(self) -> Mapping[str, amdgpu.Content]:
        self._machine.advance()
        return amdgpu.files(self._machine, self._pid)

    def read(self, path: str) -> bytes:
        if not path.startswith(self._FOLDERS):
            return self._host.read(path)
        content = self._files().get(path, _missing(path))
        if isinstance(content, OSError):
            raise content
        return content

    def names(self, path: str) -> Sequence[str]:
        if not path.startswith(self._FOLDERS):
            return self._host.names(path)
        inside = [each.removeprefix(f"{path}/") for each in self._files() if each.startswith(f"{path}/")]
        if not inside:
            raise _missing(path)
        return [*dict.fromkeys(each.partition("/")[0] for each in inside)]

    def exists(self, path: str) -> bool:
        if not path.startswith(self._FOLDERS):
            return self._host.exists(path)
        return any(each == path or each.startswith(f"{path}/") for each in self._files())


class SimulatedDrivers(Drivers):
    """The drivers of a simulated machine."""

    def __init__(self, machine: Machine, host: Files, pid: int) -> None:
        super().__init__()
        self.simulated = machine
        is_nvidia = machine.spec.vendor == "nvidia"
        self._files = host if is_nvidia else cast(Files, AmdgpuFiles(host, machine, pid))

    def files(self) -> Files:
        return self._files
