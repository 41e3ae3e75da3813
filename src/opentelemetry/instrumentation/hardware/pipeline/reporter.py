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

import os
import sys
from collections.abc import Collection, MutableMapping
from contextlib import suppress

from opentelemetry.instrumentation.hardware.pipeline.lock_file import HostileError
from opentelemetry.instrumentation.hardware.settings import JOB, PREFIX
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.settings.redaction import printable
from opentelemetry.instrumentation.hardware.system.job import byte_of, job_of
from opentelemetry.instrumentation.hardware.system.tree import runs

if sys.platform == "win32":
    from opentelemetry.instrumentation.hardware.pipeline.windows_lock import LockFile, folders
else:
    from opentelemetry.instrumentation.hardware.pipeline.lock_file import LockFile, folders

_LOG = logger(__name__)

_FILE = "otel-hardware.lock"


class Reporter:
    """The lock of a job. One thread uses it at a time.

    Args:
        environ: Contains the key of the job, or the variables of a launcher.
        mode: ``auto``; ``always``: report the host even without the lock; ``never``: do not try to get it.
        file: The name of the file. A process uses one object for each, because closing a file releases all its locks.
        pid: The process with these environment variables, which identifies the job; by default this one.

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
        self._user, self._key = job_of(environ, self._pid)
        self._value = f"{self._user}/{self._key}"
        self._is_ours = environ.get(JOB) != self._value
        self._byte = byte_of(self._key)
        self._claimed: dict[str, int] = {}
        self._name = file
        self._file: LockFile | None = None
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
        try:
            file = self._current_file()
            if idle and file.holder(self._byte + 1) is not None:
                self.release()
                return False
            if not self.holds and self._is_held_by_another_user(self._byte):
                return False
            if file.lock(self._byte):
                file.unlock(self._byte + 1)
                return True
            if not idle:
                file.lock(self._byte + 1, shared=True)
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
        if self._file is None and not ids:
            return ids
        try:
            file = self._current_file()
            for other in self._claimed.keys() - ids:
                file.unlock(self._claimed.pop(other))
            for each in ids:
                byte = self._claimed.get(each) or byte_of(f"{self._key}\0{each}")
                is_free = each in self._claimed or not self._is_held_by_another_user(byte)
                if is_free and file.lock(byte):
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
                printable(reason),
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

    def _current_file(self) -> LockFile:
        """Return the open file; another one, without locks, if it was closed or removed."""
        if self._file is None or not self._file.is_current():
            self.release()
            self._file = self._open()
        return self._file

    def _open(self) -> LockFile:
        """Open the first file that can be locked.

        Raises:
            OSError: There is none.
        """
        problems = []
        for folder, create in folders(self._environ):
            file = None
            try:
                file = LockFile(folder, create, self._name)
                file.holder(self._byte)  # some file systems have no locks
                return file
            except HostileError as error:
                if not self._warned:
                    _LOG.warning("%s; it is not used", printable(str(error)))
                problems.append(str(error))
            except OSError as error:
                problems.append(f"{error.filename or folder}: {error.strerror}")
            if file is not None:
                file.close()
        raise OSError("; ".join(problems))

    def _is_held_by_another_user(self, byte: int) -> bool:
        """Whether a process of the user who began the job has the lock. This process cannot open its file.

        Anybody can lock the same byte of another file, so the user of the process counts.
        """
        if sys.platform == "win32" or self._user == os.geteuid():
            return False
        number = str(byte).encode()
        with suppress(OSError), open("/proc/locks", "rb") as locks:  # it also lists processes that /proc hides
            rows = [line.split() for line in locks]
            return any(row[-2] == number and _runs_as(self._user, int(row[-4])) for row in rows if b"POSIX" in row)
        return False


def _runs_as(user: int, pid: int) -> bool:
    """Whether a process runs as a user. True also if /proc hides processes of others, so that it is not known."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # the owner of the folder may be root instead
            return any(line.startswith(b"Uid:") and int(line.split()[2]) == user for line in file)
    except OSError:
        return runs(pid)


def reports_itself(pid: int) -> bool:
    """Whether a process is instrumented and exports: it has opened the file. False if that may not be read."""
    with suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.path.basename(os.readlink(entry.path)) == _FILE:
                    return True
    return False
