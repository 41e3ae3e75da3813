"""The lock file of a user. A byte of it can be locked by one process.

A record lock is lost if the process closes any descriptor of the file, so a process opens each file once.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from opentelemetry.instrumentation.hardware.drivers.spawn import above_standard_streams, file_identity

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_HELD = (errno.EACCES, errno.EAGAIN)  # another process has the lock


class HostileError(OSError):
    """A file or folder that another user may have put there."""


class LockFile:
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
                raise HostileError(f"{self._path} is no regular file") from None
            raise
        self._identity = file_identity(self._descriptor)
        try:
            _check(os.fstat(self._descriptor), stat.S_ISREG, user, self._path)
        except OSError:
            self.close()
            raise

    def is_current(self) -> bool:
        """Whether the descriptor is still open, and the file was not removed."""
        try:
            status = os.lstat(self._path)
        except OSError:
            return False
        return file_identity(self._descriptor) == self._identity == (status.st_dev, status.st_ino)

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
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, byte)

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
        if file_identity(self._descriptor) == self._identity:
            os.close(self._descriptor)


_FLOCK = "@hhqqi0q"  # ``struct flock`` of Linux


def _check(status: os.stat_result, is_kind: Callable[[int], bool], user: int, path: str) -> None:
    if not is_kind(status.st_mode):
        raise HostileError(f"{path} is no regular file or folder")
    if status.st_uid != user:
        raise HostileError(f"{path} belongs to user {status.st_uid}")
    if status.st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH:
        raise HostileError(f"{path} can be changed by other users")


def folders(environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield the folders for the file, and whether to create them: the user's runtime directory, then public ones."""
    user = os.geteuid()
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if os.path.isabs(runtime):
        yield runtime, False
    yield f"/run/user/{user}", False
    for public in ("/tmp", "/dev/shm"):
        yield f"{public}/otel-hardware-{user}", True
