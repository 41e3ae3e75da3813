"""What is asked of the operating system itself: the protocol, and the Linux kernel that answers it."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import ClassVar, NamedTuple, Protocol, TypeAlias, cast

from opentelemetry.instrumentation.hardware.model import Unavailable

if sys.platform != "win32":
    import resource


class Usage(NamedTuple):
    """What ``getrusage`` says of this process: seconds and counts since its start."""

    user: float
    system: float
    minor: int
    major: int
    voluntary: int
    involuntary: int


class Space(NamedTuple):
    """What ``statvfs`` says of a file system, in bytes; ``available`` is free for everybody, ``free`` for root too.

    ``id`` tells it from another one that is mounted in its place; 0 where that is not known.
    """

    total: int
    free: int
    available: int
    id: int = 0


class Files(Protocol):
    """What a source asks of the operating system itself."""

    def read(self, path: str) -> bytes:
        """The whole of a small file that is read again and again, or of a long one what is asked for of it; its
        descriptor stays open.
        """

    def once(self, path: str) -> bytes:
        """The whole of a small file; nothing stays open."""

    def changed(self, path: str) -> bool:
        """Whether a file of which the kernel tells it has changed since this was last asked; True the first time.

        Its descriptor stays open. Who asks first and reads then misses nothing.
        """

    def names(self, path: str) -> Sequence[str]:
        """The entries of a folder."""

    def count(self, path: str) -> int:
        """How many entries a folder has."""

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""

    def link(self, path: str) -> str:
        """What a symbolic link says."""

    def space(self, path: str) -> Space:
        """The space of the file system that a path lies on. May block for as long as a dead server likes."""

    def usage(self) -> Usage:
        """CPU time, faults and context switches of this process."""

    def has_children(self) -> bool:
        """Whether this process has children, as far as the kernel tells; it is much cheaper than to look for them."""

    def affinity(self, pid: int) -> int:
        """How many logical CPUs a process may run on."""

    def online(self) -> int:
        """How many logical CPUs are online."""

    def uptime(self) -> float:
        """Seconds since the system started."""

    def forget(self, path: str) -> None:
        """Close what was kept open below a path."""

    def close(self) -> None:
        """Let go of everything."""


_Pread: TypeAlias = "Callable[[ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64], int]"
"""The C library's, which is given C's own types: to make them of Python's takes as long as the call."""

_START = ctypes.c_int64(0)
_FROM_HERE = ctypes.c_int(-100)  # AT_FDCWD
_FOLLOWED = ctypes.c_int(0)
_LINKS_AND_SIZE = ctypes.c_uint(0x204)  # STATX_NLINK, STATX_SIZE
_STATX = struct.Struct("=16x I 20x Q")
"""Where ``struct statx`` has them, on every machine."""

_ANEW = 600.0
"""Seconds after which threads are asked where they may run although there are as many as before."""

_ONE = ctypes.c_ulong(1)
_AT_ONCE = ctypes.c_int(0)


class _Poll(ctypes.Structure):
    """C's ``struct pollfd``."""

    _fields_: ClassVar = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class _Kept(NamedTuple):
    """A file that is read again and again: its number, what reads it, and what tells that the number is still its."""

    descriptor: ctypes.c_int
    pread: _Pread
    identity: bytes
    last: bytes
    """The line behind which nothing of it is asked for; nothing where all of it is."""


class LocalFiles:
    """The Linux kernel. Files of ``/proc`` and ``/sys`` are read without letting go of the interpreter lock.

    Beside a busy thread every system call that lets go of the lock waits up to 5 ms to get it back; these files are
    made by the kernel on the spot, in microseconds, so holding the lock is what disturbs the program least. What can
    block lets go of it: :meth:`space`, and files behind which a device is asked.

    A program may close all descriptors that it knows nothing of, and then has sockets and files of its own under the
    numbers of ours: a number is closed only after the kernel has said that it is still the file that was opened.
    """

    _FIRST = 4096
    _SHORT = 2048
    """Half a page. So much less than a page is a whole file: the records of no table are that long."""

    _LAST: ClassVar = {"/proc/vmstat": b"\npgmajfault "}
    """Long tables that the kernel makes line by line: the line behind which nothing is asked for. Up to there they are
    read, which is half of the work.
    """

    _GROWTH = 64
    """Digits that the numbers up to there may have more the next time."""

    _ASKING = (
        "/sys/class/infiniband/",
        "/sys/class/powercap/",
        "/sys/class/drm/",
        "/sys/class/hwmon/",
        "/sys/devices/system/cpu/",
    )
    """Reading these makes the kernel ask a device or another CPU and wait: before 5.18 10 ms for a CPU's frequency."""

    _TRUSTED = 0.02
    """Seconds for which what was open is taken to be open still: a round of readings, and not two."""

    _WALL = 0x40000000
    """__WALL, which Python does not name."""

    _IDENTITY = 16
    """So far the device and the inode reach in ``struct stat``, whatever the machine."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise Unavailable("this system is not Linux")
        self._libc = ctypes.PyDLL(None, use_errno=True)
        self._holding, self._letting_go = (
            getattr(library, "pread64", library.pread) for library in (self._libc, ctypes.CDLL(None, use_errno=True))
        )
        for pread in (self._holding, self._letting_go):
            pread.restype = ctypes.c_ssize_t
        self._libc.open.argtypes = [ctypes.c_char_p, ctypes.c_int]
        self._stat = _stat(self._libc)
        self._libc.readlink.restype = ctypes.c_ssize_t
        self._libc.readlink.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t]
        self._statx = getattr(self._libc, "statx", None)  # since glibc 2.28
        self._entries = getattr(self._libc, "getdents64", None)
        if self._entries is not None:
            self._entries.restype = ctypes.c_ssize_t
            self._entries.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
        self._open: dict[str, _Kept] = {}
        self._outer: tuple[_Kept, ...] | None = None
        self._enough: dict[str, int] = {}
        self._cpus = self.online()
        self._trusted = 0.0
        self._pinned: tuple[object, float, int] = (), 0.0, 0
        # Of whatever kind, ended ones included; they are left to be waited for.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT | self._WALL
        self._children = ctypes.c_int(os.P_ALL), ctypes.c_int(0), ctypes.c_void_p(), ctypes.c_int(options)
        self._poll = _Poll(events=select.POLLPRI)
        self._polled = ctypes.byref(self._poll), _ONE, _AT_ONCE
        self._room(self._FIRST)

    def _room(self, size: int) -> None:
        """Have so many bytes for answers."""
        buffer = ctypes.create_string_buffer(size)
        self._size, self._address, self._view = size, ctypes.addressof(buffer), memoryview(buffer)
        self._begin, self._all = ctypes.c_void_p(self._address), ctypes.c_size_t(size)

    def _failed(self, path: str) -> OSError:
        number = ctypes.get_errno()
        return OSError(number, os.strerror(number), path)

    def _descriptor(self, path: str, flags: int = 0) -> int:
        descriptor: int = self._libc.open(os.fsencode(path), os.O_RDONLY | os.O_CLOEXEC | flags)
        if descriptor < 0:
            raise self._failed(path)
        return descriptor

    def _pread(self, path: str) -> _Pread:
        """What reads a file."""
        found: _Pread = self._letting_go if path.startswith(self._ASKING) else self._holding
        return found

    def _whole(self, descriptor: ctypes.c_int, pread: _Pread, path: str, got: int = 0) -> bytes:
        # The kernel gives tables (mounts, disks, interfaces) a page at a time, whatever is asked for, and ends a page
        # before the record that does not fit: only an empty answer means the end, or one with room for a record more,
        # which :meth:`read` knows of.
        while True:
            if got == self._size:
                self._room(got * 4)
                got = 0
            room = ctypes.c_void_p(self._address + got), ctypes.c_size_t(self._size - got)
            count = pread(descriptor, *room, ctypes.c_int64(got))
            if count < 0:
                raise self._failed(path)
            if count == 0:
                return self._view[:got].tobytes()
            got += count

    def _identity(self, descriptor: ctypes.c_int) -> bytes:
        """What tells an open file from every other one; nothing where none is open."""
        return self._view[: self._IDENTITY].tobytes() if self._stat(descriptor, self._begin) == 0 else b""

    def _keep(self, path: str) -> _Kept:
        """Open a file that is read again and again."""
        descriptor = ctypes.c_int(self._descriptor(path))
        last = self._LAST.get(path, b"")
        kept = self._open[path] = _Kept(descriptor, self._pread(path), self._identity(descriptor), last)
        self._outer = None
        return kept

    def _let_go(self, path: str) -> bool:
        """Close a file that is kept open, if the number is still ours.

        Returns:
            Whether it was.
        """
        kept = self._open.pop(path)
        self._outer = None
        ours = self._ours(kept)
        if ours:
            self._libc.close(kept.descriptor)
        return ours

    def _ours(self, kept: _Kept) -> bool:
        return self._identity(kept.descriptor) == kept.identity

    def _look(self) -> None:
        """Notice when numbers are no longer ours.

        Who closes what they know nothing of closes ranges, and new files get the lowest free numbers: it would show
        at the lowest or the highest of ours.
        """
        if self._outer is None:
            kept = sorted(self._open.values(), key=lambda each: each.descriptor.value)
            self._outer = (*kept[:1], *kept[-1:])
        if not all(map(self._ours, self._outer)):
            self._sort_out()
        self._trusted = time.monotonic() + self._TRUSTED

    def _sort_out(self) -> None:
        """Forget every number that is no longer ours; each may be another file of ours once one is opened."""
        self._open = {path: kept for path, kept in self._open.items() if self._ours(kept)}
        self._outer = None

    def read(self, path: str) -> bytes:
        if time.monotonic() > self._trusted:
            self._look()
        found = self._open.get(path)
        if found is None:
            found = self._keep(path)
        descriptor, pread, _, last = found
        if last and (beginning := self._beginning(path, found)):
            return beginning
        count = pread(descriptor, self._begin, self._all, _START)
        if 0 <= count < self._SHORT:
            return self._view[:count].tobytes()
        try:
            return self._whole(descriptor, pread, path, max(0, count))
        except OSError:  # the process, device or cgroup behind it is gone; another may come under the same name
            if self._let_go(path):
                raise
        self._sort_out()  # the number was no longer ours: the answer says nothing of the file
        return self.read(path)

    def _beginning(self, path: str, kept: _Kept) -> bytes:
        """A long table up to the last line that is asked for; nothing where that does not come within a page."""
        size = min(self._enough.get(path, self._FIRST), self._size)
        if size == 0:
            return b""
        count = kept.pread(kept.descriptor, self._begin, ctypes.c_size_t(size), _START)
        text = self._view[: max(0, count)].tobytes()
        at = text.rfind(kept.last)
        end = text.find(b"\n", at + 1) if at >= 0 else -1
        self._enough[path] = end + self._GROWTH if end > 0 else 0
        return text if end > 0 else b""

    def once(self, path: str) -> bytes:
        descriptor = self._descriptor(path)
        try:
            return self._whole(ctypes.c_int(descriptor), self._pread(path), path)
        finally:
            self._libc.close(descriptor)

    def changed(self, path: str) -> bool:
        kept = self._open.get(path)
        if kept is None or not self._ours(kept):
            self._sort_out()
            self._keep(path)
            return True
        self._poll.fd = kept.descriptor
        return bool(self._libc.poll(*self._polled))  # less than 0 where nobody knows

    def names(self, path: str) -> Sequence[str]:
        if self._entries is None:
            return os.listdir(path)
        descriptor = self._descriptor(path, os.O_DIRECTORY)
        try:
            found: list[str] = []
            while (count := self._entries(descriptor, self._address, self._size)) > 0:
                found += _entries(self._view[:count].tobytes())
            if count < 0:
                raise self._failed(path)
            return found
        finally:
            self._libc.close(descriptor)

    def count(self, path: str) -> int:
        # From 6.2 on the kernel says it as the size of /proc/{pid}/fd; before, and elsewhere, it has to be counted.
        _, size = self._folder(path)
        if size and path.endswith("/fd"):
            return size
        return len(self.names(path)) - (path == "/proc/self/fd")  # where the descriptor that lists them is one of them

    def _folder(self, path: str) -> tuple[int, int]:
        """The links and the size of a folder, of which the kernel makes numbers of its own in ``/proc``."""
        place = _FROM_HERE, ctypes.c_char_p(os.fsencode(path))
        if self._statx is not None and self._statx(*place, _FOLLOWED, _LINKS_AND_SIZE, self._begin) == 0:
            links, size = _STATX.unpack_from(self._view)
            return links, size
        status = os.stat(path)  # lets go of the interpreter lock
        return status.st_nlink, status.st_size

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def link(self, path: str) -> str:
        count: int = self._libc.readlink(os.fsencode(path), self._address, self._size)
        if count < 0:
            raise self._failed(path)
        return os.fsdecode(self._view[:count].tobytes())

    def space(self, path: str) -> Space:
        answer = os.statvfs(path)
        size = answer.f_frsize
        return Space(answer.f_blocks * size, answer.f_bfree * size, answer.f_bavail * size, answer.f_fsid)

    def usage(self) -> Usage:
        answer = resource.getrusage(resource.RUSAGE_SELF)
        return Usage(
            answer.ru_utime, answer.ru_stime, answer.ru_minflt, answer.ru_majflt, answer.ru_nvcsw, answer.ru_nivcsw
        )

    def has_children(self) -> bool:
        return self._libc.waitid(*self._children) == 0 or ctypes.get_errno() != errno.ECHILD

    def affinity(self, pid: int) -> int:
        # Of all threads: OpenMP and the like pin the first one to a CPU and let the others run on all.
        cpus = os.sched_getaffinity(pid)
        if len(cpus) >= self._cpus:
            return len(cpus)
        threads = f"/proc/{pid}/task"
        first, now = (pid, frozenset(cpus), self._folder(threads)[0]), time.monotonic()
        if first != self._pinned[0] or now - self._pinned[1] >= _ANEW:
            for thread in self.names(threads):
                with suppress(OSError):  # one that ended
                    cpus |= os.sched_getaffinity(int(thread))
            self._pinned = first, now, len(cpus)
        return self._pinned[2]

    def online(self) -> int:
        return os.sysconf("SC_NPROCESSORS_ONLN")

    def uptime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def forget(self, path: str) -> None:
        for name in [name for name in self._open if name.startswith(path)]:
            self._let_go(name)

    def close(self) -> None:
        self.forget("")


def _stat(libc: ctypes.PyDLL) -> Callable[[ctypes.c_int, ctypes.c_void_p], int]:
    """The C library's ``fstat``, of a number into an address."""
    for name in ("fstat64", "fstat"):
        found = getattr(libc, name, None)
        if found is not None:
            return cast(Callable[[ctypes.c_int, ctypes.c_void_p], int], found)
    # glibc before 2.33 has it under this name only; 0 is the kernel's own structure
    return partial(libc.__fxstat64, 0)


def _entries(packed: bytes) -> list[str]:
    """The names in a buffer of ``struct linux_dirent64`` records."""
    found = []
    at = 0
    while at < len(packed):
        (length,) = struct.unpack_from("=H", packed, at + 16)
        name = os.fsdecode(packed[at + 19 : packed.index(b"\0", at + 19)])
        if name not in (".", ".."):
            found.append(name)
        at += length
    return found
