"""The key of a job: what all its processes have in common, on this host and in this container."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.system.job import read_job

JOB: Final = PREFIX + "JOB"
"""``<user>/<key>`` of the job that a process belongs to, inherited by its descendants. Set by us, not by users."""

_NAMESPACES = ("pid", "uts", "cgroup")
"""A container has at least one of these namespaces of its own. Mount namespaces do not count: ranks of one job may
each have one, for example with Apptainer."""


def job_of(environ: Mapping[str, str], pid: int) -> tuple[int, str]:
    """Return the user who began the job of a process, and the key of the job."""
    job = read_job(environ)
    user, slash, inherited = environ.get(JOB, "").partition("/")
    if not (slash and user.isascii() and user.isdecimal() and len(user) < 11 and 0 < len(inherited) < 1000):
        user, inherited = str(_owner(pid)), ""
    if job.system == "slurm":  # jobs that were submitted by one instrumented program inherit its key
        return int(user), job.key
    if inherited or job.key:
        return int(user), inherited or job.key
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return int(user), "container"
    return int(user), f"process:{_named(_root(pid, job.rank is not None))}"


def _owner(pid: int) -> int:
    """Return the effective user of a process; 0 on Windows."""
    if pid != os.getpid():
        with suppress(OSError):
            return os.stat(f"/proc/{pid}").st_uid
    return os.geteuid() if hasattr(os, "geteuid") else 0


def byte_of(key: str) -> int:
    """Return the byte that stands for a job on this host and in this container; the next one is free."""
    parts = [key]
    for name in _NAMESPACES:
        with suppress(OSError):
            parts.append(os.readlink(f"/proc/self/ns/{name}"))
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        parts.append(file.read())
    number = 0xCBF29CE484222325  # FNV-1a; hashlib would load OpenSSL: 1 ms and 0.7 MiB
    for byte in "\0".join(parts).encode(errors="replace"):
        number = (number ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return number >> 2 << 1


def start_time(pid: int) -> str | None:
    """Return the start time of a process, which identifies it if its PID is reused; None if it does not run."""
    process = _stat(pid)
    if process is not None:
        return None if process.state in "ZX" else process.start_time
    if os.path.exists("/proc/self/stat"):
        return None
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


class _Stat(NamedTuple):
    """A process in ``/proc``. Its memory has been laid out at random addresses when its program was started."""

    pid: int
    state: str
    parent: int
    start_time: str
    layout: list[str]


def _stat(pid: int | str) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode(errors="replace")
        fields = text.rpartition(")")[2].split()
        return _Stat(int(text.split(maxsplit=1)[0]), fields[0], int(fields[1]), fields[19], fields[23:26])
    except (OSError, ValueError, IndexError):
        return None


def _named(pid: int) -> str:
    """Return a name of a process that no other process ever has."""
    return f"{pid}.{start_time(pid)}"


def _root(pid: int, is_rank: bool) -> int:
    """Return the process that began the job of a process without a key.

    The ranks of a launcher are one job; so are the workers of a server that forks, even if the server itself is not
    instrumented.
    """
    begun_by = None
    if pid == os.getpid():
        begun_by = getattr(sys.modules.get("multiprocessing"), "parent_process", lambda: None)()
    if begun_by is not None and begun_by.pid is not None:
        pid = begun_by.pid
    process = _stat("self" if pid == os.getpid() else pid)  # /proc may be of another PID namespace
    if process is None:
        return os.getppid() if is_rank and pid == os.getpid() else pid
    while (parent := _stat(process.parent)) is not None and _is_fork(process, parent):
        process = parent
    return process.parent if is_rank else process.pid


def _is_fork(process: _Stat, parent: _Stat) -> bool:
    """Whether a process was forked, and still has the program of its parent."""
    if process.layout == parent.layout and process.layout[-1] != "0":  # 0: hidden from us
        return True
    try:
        with open(f"/proc/{process.pid}/cmdline", "rb") as own, open(f"/proc/{parent.pid}/cmdline", "rb") as theirs:
            return own.read() == theirs.read() != b""
    except OSError:
        return False
