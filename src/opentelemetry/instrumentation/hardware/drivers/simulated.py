"""The host of a simulated machine: the kernel's files of the real one, changed by what holds the program back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Final

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.simulator.machine import Spec, machine
from opentelemetry.instrumentation.hardware.simulator.scenarios import HostLoad
from opentelemetry.instrumentation.hardware.system.files import LocalFiles, Usage

_TICKS: Final = 100
"""Ticks per second of the times in ``/proc``."""

_GROUP: Final = "/sys/fs/cgroup/simulated"

_MOUNT: Final = b"9999 1 0:9999 / %b rw - cgroup2 cgroup2 rw\n" % _GROUP.encode()

_PERIOD: Final = 0.1
"""Seconds of a period of a CPU quota."""


class SimulatedHost(LocalFiles):
    """The kernel's files of a simulated machine.

    Args:
        load: What happens on the host.
        elapsed: Returns simulated seconds since the start.
        pid: The program.
    """

    def __init__(self, load: HostLoad, elapsed: Callable[[], float], pid: int) -> None:
        super().__init__()
        self._load = load
        self._elapsed = elapsed
        self._processes = (f"/proc/{pid}", *(("/proc/self",) if pid == os.getpid() else ()))
        self._first: dict[str, bytes] = {}
        self._boot = super().uptime() - elapsed()

    def read(self, path: str) -> bytes:
        folder, _, name = path.rpartition("/")
        if folder == "/proc/pressure" and (name, "some") in self._load.stalls:
            return self._pressure(name)
        if folder == _GROUP:
            return self._group(name)
        if folder in self._processes and self._load.quota and name == "cgroup":
            return b"0::/\n"
        content = super().read(path)
        if path == "/proc/stat":
            return self._stat(self._first.setdefault(path, content))
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
            busy = self._load.busy(number, len(cpus))
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
        raise FileNotFoundError(2, "No such file or directory", f"{_GROUP}/{name}")

    def _process(self, first: bytes, content: bytes) -> bytes:
        """Return the status of the program, whose CPU time goes on from that at the first reading."""
        before, _, _ = first.rpartition(b") ")
        start, end, rest = content.rpartition(b") ")
        columns = rest.split(b" ")
        base = int(first[len(before) + 2 :].split(b" ")[11])
        columns[11] = b"%d" % (base + int(self._load.program * self._elapsed() * _TICKS))
        return start + end + b" ".join(columns)


class SimulatedDrivers(Drivers):
    """The drivers of a machine whose host is simulated.

    Args:
        spec: What to simulate.
        speed: Simulated seconds per second.
        pid: The program.
    """

    def __init__(self, spec: Spec, speed: float | None, pid: int) -> None:
        super().__init__()
        self._host = SimulatedHost(spec.host or HostLoad(), machine(spec, speed).now, pid)

    def files(self) -> SimulatedHost:
        """Return its files."""
        return self._host
