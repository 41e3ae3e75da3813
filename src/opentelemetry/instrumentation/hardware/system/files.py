"""Files and system calls of the Linux kernel.

Every call that can block releases the interpreter lock. A file of ``/proc`` or ``/sys`` may be served by a FUSE process
(lxcfs) or by a device, and reading it can hang; that must stop only the thread that reads it.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.model import Unavailable

if sys.platform != "win32":
    import resource

# Bytes of one read. The kernel returns at most a page of a table such as mountinfo, also if more is requested.
_CHUNK = 1 << 16

_BLOCK = 512  # bytes of a block in getrusage(2)


class Usage(NamedTuple):
    """CPU seconds, page faults, context switches and bytes of this process since its start, from getrusage(2)."""

    user: float
    system: float
    minor: int
    major: int
    voluntary: int
    involuntary: int
    read: int
    written: int


class FilesystemSpace(NamedTuple):
    """Space of a file system in bytes, from statvfs(3).

    ``available`` is the space for ordinary users; ``free`` includes the blocks reserved for root.
    """

    total: int
    free: int
    available: int


class Files:
    """The files and system calls of this machine. Every method raises OSError where the system call fails.

    Raises:
        Unavailable: The system is not Linux.
    """

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise Unavailable("this system is not Linux")

    def read(self, path: str) -> bytes:
        """The whole content of a file."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            chunks = []
            while chunk := os.read(descriptor, _CHUNK):
                chunks.append(chunk)
            return b"".join(chunks)
        finally:
            os.close(descriptor)

    def names(self, path: str) -> Sequence[str]:
        """The entries of a folder."""
        return os.listdir(path)

    def count(self, path: str) -> int:
        """The number of entries of a folder."""
        # /proc/<pid>/fd has the number of open files as its size since Linux 6.2; a server may have 100,000 of them.
        if path.endswith("/fd") and (size := os.stat(path).st_size):
            return size
        return len(os.listdir(path)) - (path == "/proc/self/fd")  # without the descriptor that lists the folder

    def exists(self, path: str) -> bool:
        """Whether a file or folder exists."""
        return os.path.exists(path)

    def link(self, path: str) -> str:
        """The target of a symbolic link."""
        return os.readlink(path)

    def space(self, path: str) -> FilesystemSpace:
        """The space of the file system that contains a path. Blocks while a network file system does not respond."""
        result = os.statvfs(path)
        size = result.f_frsize
        return FilesystemSpace(result.f_blocks * size, result.f_bfree * size, result.f_bavail * size)

    def usage(self) -> Usage:
        """Resource usage of this process."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        return Usage(
            used.ru_utime,
            used.ru_stime,
            used.ru_minflt,
            used.ru_majflt,
            used.ru_nvcsw,
            used.ru_nivcsw,
            used.ru_inblock * _BLOCK,
            used.ru_oublock * _BLOCK,
        )

    def has_children(self) -> bool:
        """Whether this process has child processes, zombies included."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)  # WNOWAIT leaves zombies to their parent
        except ChildProcessError:
            return False
        return True

    def affinity(self, pid: int) -> int:
        """The number of logical CPUs that the threads of a process may run on."""
        # All threads: OpenMP and others pin the first one to a single CPU and let the rest run anywhere.
        cpus = os.sched_getaffinity(pid)
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):  # the thread has ended
                cpus |= os.sched_getaffinity(int(thread))
        return len(cpus)

    def online(self) -> int:
        """The number of logical CPUs that are online."""
        # os.cpu_count() reads the same file, but holds the interpreter lock meanwhile; and lxcfs serves this file.
        try:
            ranges = self.read("/sys/devices/system/cpu/online").decode().strip().split(",")
            bounds = [[int(number) for number in each.split("-")] for each in ranges]
        except (OSError, ValueError):  # a sandbox without /sys
            return os.cpu_count() or 1
        return sum(each[-1] - each[0] + 1 for each in bounds)

    def physical_memory(self) -> int:
        """The memory of the machine in bytes."""
        # sysinfo(2), not /proc/meminfo: this one cannot hang.
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

    def uptime(self) -> float:
        """Seconds since boot, time in suspend included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)


def read_or_empty(files: Files, path: str) -> bytes:
    """The content of a file; empty if it cannot be read."""
    try:
        return files.read(path)
    except OSError:
        return b""


def read_text(files: Files, path: str) -> str:
    """The content of a file without surrounding whitespace; empty if it cannot be read."""
    return read_or_empty(files, path).decode(errors="replace").strip()


def link_or_empty(files: Files, path: str) -> str:
    """The target of a symbolic link; empty if it cannot be read."""
    try:
        return files.link(path)
    except OSError:
        return ""


def utf8(text: str) -> str:
    """Escape invalid UTF-8 in a path or name. OTLP exporters drop attributes with surrogates and log an error each."""
    return text.encode(errors="surrogateescape").decode(errors="backslashreplace")


def integer(text: str) -> int | None:
    """Parse a text of at most 20 digits; None for other texts."""
    return int(text) if re.fullmatch("[0-9]{1,20}", text) else None


def read_integer(files: Files, path: str) -> int | None:
    """The number in a file; None if it cannot be read."""
    return integer(read_text(files, path))


def open_files(files: Files, process: str) -> Iterator[str]:
    """Yield the paths of the files that the process of a folder has open; none of another user's process."""
    for name in names_or_empty(files, f"{process}/fd"):
        with suppress(OSError):  # it was closed
            yield files.link(f"{process}/fd/{name}")


def names_or_empty(files: Files, folder: str) -> Sequence[str]:
    """The entries of a folder; empty if it cannot be listed."""
    try:
        return files.names(folder)
    except OSError:
        return ()
