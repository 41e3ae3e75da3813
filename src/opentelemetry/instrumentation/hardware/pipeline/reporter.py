"""The reporter: the process of a job that reports the host. It holds a lock, which the kernel releases when it dies.

The lock is a record lock (``fcntl``) on one byte of a file of the user. Unlike ``flock`` and open file description
locks, a record lock is not inherited by any kind of fork, also not by one in C that runs no hook of Python: a child
that outlives the reporter never keeps the lock. The number of the byte is derived from the job, so that all jobs of a
user share one empty file, and none is left behind by each job. A record lock is lost if the process closes any other
descriptor of the file, or all descriptors, as daemons do; so the lock is requested again each time, which costs nothing
if it is held.

The ranks of a batch job may be restricted to different devices, which the reporter of the host cannot see. So there,
each process reports those of its devices that it locks, each with a byte of its own. The file is another one, because
closing it must not release the lock of the host.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
import struct
import sys
from collections.abc import Collection, Iterator, Mapping, MutableMapping
from contextlib import suppress
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.drivers.child import above_standard_streams
from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.system.job import read_job

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_LOG = logging.getLogger(__name__)

JOB: Final = PREFIX + "JOB"
"""``<user>/<key>`` of the job that a process belongs to, inherited by its descendants. Set by us, not by users."""

_FILE = "otel-hardware.lock"

_NAMESPACES = ("pid", "uts", "cgroup")
"""A container has at least one of these namespaces of its own. Mount namespaces do not count: ranks of one job may
each have one, for example with Apptainer."""

_HELD = (errno.EACCES, errno.EAGAIN)
"""Another process has the lock."""


class Reporter:
    """The lock of a job. One thread uses it at a time.

    Args:
        environ: Contains the key of the job, or the variables of a launcher.
        mode: ``auto``; ``always``: report the host even without the lock; ``never``: do not try to get it.
        file: The name of the file. A process uses one object for each, because closing a file releases all its locks.
        pid: The process whose job it is, with these environment variables; by default this one.

    Attributes:
        holds: Whether this process has the lock, or reports the host because no lock can be used.
    """

    def __init__(
        self, environ: MutableMapping[str, str], mode: str = "auto", file: str = _FILE, pid: int | None = None
    ) -> None:
        self.mode = mode
        self.holds = False
        self._environ = environ
        self._pid = os.getpid() if pid is None else pid
        self._user, self._key = _job(environ, self._pid)
        self._value = f"{self._user}/{self._key}"
        self._is_ours = environ.get(JOB) != self._value
        self._byte = _byte(self._key)
        self._claimed: dict[str, int] = {}
        self._name = file
        self._file: _LockFile | None = None
        self._warned = False

    def join(self) -> None:
        """Put the key of the job into the environment of child processes."""
        self._environ[JOB] = self._value

    def leave(self) -> None:
        """Release the lock, and remove the key that :meth:`join` has added."""
        self.release()
        if self._is_ours and self._environ.get(JOB) == self._value:
            del self._environ[JOB]

    def update(self, has_reader: bool = True, idle: bool = False) -> bool:
        """Get, keep or release the lock. Reads files.

        Args:
            has_reader: Whether a reader may collect from this process. If not, it does not have the lock.
            idle: Whether there was no collection for a long time. The lock is left to a process that has one.

        Returns:
            Whether this process reports the host.
        """
        if not has_reader or self.mode == "never":
            self.release()
        else:
            self.holds = self._update(idle)
        return self.holds or self.mode == "always"

    def _update(self, idle: bool) -> bool:
        if fcntl is None:
            return True
        try:
            if self._file is None or not self._file.is_current():
                self.release()
                self._file = self._open()
            if idle and self._file.is_locked(self._byte + 1):
                self.release()
                return False
            if not self.holds and self._is_held_by_another_user(self._byte):
                return False
            if self._file.lock(self._byte):
                self._file.unlock(self._byte + 1)
                return True
            if not idle:
                self._file.lock(self._byte + 1, shared=True)
        except OSError as error:
            self.release()
            self.give_up(str(error))
            return True
        return False

    def of_devices(self, source: str) -> Reporter:
        """Return the locks of the devices of a source; see :meth:`claim`."""
        return Reporter(self._environ, self.mode, f"otel-hardware-{source}.lock", self._pid)

    def claim(self, ids: Collection[str]) -> Collection[str]:
        """Lock these devices, and unlock all others. Reads files.

        Returns:
            Those that this process reports: all that no other process of the job has locked, or all if no lock can be
            used.
        """
        if fcntl is None or (self._file is None and not ids):
            return ids
        try:
            if self._file is None or not self._file.is_current():
                self.release()
                self._file = self._open()
            for other in self._claimed.keys() - ids:
                self._file.unlock(self._claimed.pop(other))
            for each in ids:
                byte = self._claimed.get(each) or _byte(f"{self._key}\0{each}")
                is_free = each in self._claimed or not self._is_held_by_another_user(byte)
                if is_free and self._file.lock(byte):
                    self._claimed[each] = byte
                else:
                    self._claimed.pop(each, None)
        except OSError:  # the lock of the host cannot be used either, so there is a warning
            self.release()
            return ids
        return ids if self.mode == "always" else [*self._claimed]

    def give_up(self, reason: str) -> None:
        """Report the host without a lock, and log a warning, once."""
        self.holds = True
        if not self._warned:
            self._warned = True
            _LOG.warning(
                "No lock can be used (%s), so every process of this job reports the host; set %sREPORTER to always in "
                "one process and to never in the others",
                reason,
                PREFIX,
            )

    def release(self) -> None:
        """Release the lock, and those of devices."""
        self.holds = False
        self._claimed.clear()
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def holder(self) -> int | None:
        """Return the PID of another process that has the lock; None if there is none or it is not known."""
        try:
            file = self._file or self._open()
        except OSError:
            return None
        try:
            return file.holder(self._byte)
        finally:
            if self._file is None:
                file.close()

    def _open(self) -> _LockFile:
        """Open the first file that can be locked.

        Raises:
            OSError: There is none.
        """
        if fcntl is None:
            raise OSError(errno.ENOSYS, "no file locks on this system")
        problems = []
        for folder, create in _folders(self._environ):
            file = None
            try:
                file = _LockFile(folder, create, self._name)
                file.is_locked(self._byte)  # some file systems have no locks
                return file
            except _HostileError as error:
                if not self._warned:
                    _LOG.warning("%s; it is not used", error)
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{error.filename or folder}: {error.strerror}")
            if file is not None:
                file.close()
        raise OSError("; ".join(problems))

    def _is_held_by_another_user(self, byte: int) -> bool:
        """Whether a process of the user who began the job has the lock. This process cannot open its file."""
        if self._user == os.geteuid():
            return False
        number = str(byte).encode()
        with suppress(OSError), open("/proc/locks", "rb") as locks:  # it also lists processes that /proc hides
            return any(line.split()[-2:-1] == [number] for line in locks)
        return False


class _HostileError(OSError):
    """A file or folder that another user may have put there."""


class _LockFile:
    """The open file of a user.

    Raises:
        OSError: It cannot be used.
    """

    def __init__(self, folder: str, create: bool, name: str) -> None:
        self._path = os.path.join(folder, name)
        user = os.geteuid()
        if create:
            with suppress(FileExistsError):
                os.mkdir(folder, 0o700)
        _check(os.lstat(folder) if create else os.stat(folder), stat.S_ISDIR, user, folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._descriptor = above_standard_streams(os.open(self._path, flags, 0o600))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):  # a symbolic link, a pipe
                raise _HostileError(f"{self._path} is no regular file") from None
            raise
        status = os.fstat(self._descriptor)
        self._identity = status.st_dev, status.st_ino
        try:
            _check(status, stat.S_ISREG, user, self._path)
        except OSError:
            self.close()
            raise

    def is_current(self) -> bool:
        """Whether the descriptor is still open, and the file was not removed."""
        try:
            return self._owns_descriptor() and _identity(os.stat(self._path, follow_symlinks=False)) == self._identity
        except OSError:
            return False

    def _owns_descriptor(self) -> bool:
        try:
            return _identity(os.fstat(self._descriptor)) == self._identity
        except OSError:
            return False

    def lock(self, byte: int, shared: bool = False) -> bool:
        """Lock a byte, which may be locked by us already. Returns False if another process has it."""
        try:
            fcntl.lockf(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, 1, byte)
        except OSError as error:
            if error.errno in _HELD:
                return False
            raise
        return True

    def unlock(self, byte: int) -> None:
        """Unlock a byte."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)

    def is_locked(self, byte: int) -> bool:
        """Whether another process has locked a byte."""
        return self.holder(byte) is not None

    def holder(self, byte: int) -> int | None:
        """Return the PID of another process that has locked a byte; 0 if it is unknown, None if there is none."""
        if not sys.platform.startswith("linux"):
            if not self.lock(byte):
                return 0
            self.unlock(byte)
            return None
        request = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(self._descriptor, fcntl.F_GETLK, request))
        return None if kind == fcntl.F_UNLCK else max(pid, 0)

    def close(self) -> None:
        """Close the file, unless the program has closed the descriptor and uses its number for something else."""
        if self._owns_descriptor():
            os.close(self._descriptor)


_FLOCK = "@hhqqi0q"
"""``struct flock`` of Linux."""


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _check(status: os.stat_result, is_kind: object, user: int, path: str) -> None:
    if not is_kind(status.st_mode):  # type: ignore[operator]
        raise _HostileError(f"{path} is no regular file or folder")
    if status.st_uid != user:
        raise _HostileError(f"{path} belongs to user {status.st_uid}")


def _folders(environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield the folders for the file, and whether to create them: the user's runtime directory, then public ones."""
    user = os.geteuid()
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        yield runtime, False
    yield f"/run/user/{user}", False
    for public in ("/tmp", "/dev/shm"):
        yield f"{public}/otel-hardware-{user}", True


def reports_itself(pid: int) -> bool:
    """Whether a process is instrumented and exports: it has opened the file. False if that may not be read."""
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.path.basename(os.readlink(entry.path)) == _FILE:
                    return True
    return False


# -- the job


def _job(environ: Mapping[str, str], pid: int) -> tuple[int, str]:
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


def _byte(key: str) -> int:
    """Return the byte that stands for a job on this host and in this container; the next one is free."""
    parts = [key]
    for name in _NAMESPACES:
        with suppress(OSError):
            parts.append(os.readlink(f"/proc/self/ns/{name}"))
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        parts.append(file.read())
    return int.from_bytes(hashlib.sha256("\0".join(parts).encode(errors="replace")).digest()[:8], "big") >> 2 << 1


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
