"""The lock file of a user on Windows, with the methods of :mod:`.lock_file`.

See https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-lockfileex. Windows releases the locks of a process
that ends. They belong to a handle, which child processes do not inherit, and a byte cannot be locked twice by one.
"""

from __future__ import annotations

import ctypes
import msvcrt
import os
import sys
from collections.abc import Iterator, Mapping
from ctypes import c_uint32, c_void_p
from typing import Final

assert sys.platform == "win32"  # mypy skips what follows on others

_FAIL_IMMEDIATELY: Final = 1
_EXCLUSIVE: Final = 2

_VIOLATION: Final = 33  # another handle has the lock


class LockFile:
    """The open file of a user.

    Raises:
        OSError: It cannot be used.
    """

    def __init__(self, folder: str, create: bool, name: str) -> None:
        del create
        self._descriptor = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CREAT | os.O_NOINHERIT)
        self._locked: set[int] = set()

    def is_current(self) -> bool:
        """Return True: an open file cannot be removed."""
        return True

    def lock(self, byte: int, shared: bool = False) -> bool:
        """Lock a byte, which may be locked by us already. Returns False if another process has it."""
        if byte not in self._locked:
            flags = _FAIL_IMMEDIATELY | (0 if shared else _EXCLUSIVE)
            if not _kernel.LockFileEx(self._handle(), flags, 0, 1, 0, _at(byte)):
                if ctypes.get_last_error() == _VIOLATION:
                    return False
                raise ctypes.WinError(ctypes.get_last_error())
            self._locked.add(byte)
        return True

    def unlock(self, byte: int) -> None:
        if byte in self._locked:
            self._locked.remove(byte)
            _kernel.UnlockFileEx(self._handle(), 0, 1, 0, _at(byte))

    def holder(self, byte: int) -> int | None:
        """Return 0 if another process has locked a byte, because its PID is unknown; None if there is none."""
        if not self.lock(byte):
            return 0
        self.unlock(byte)
        return None

    def close(self) -> None:
        os.close(self._descriptor)

    def _handle(self) -> int:
        return msvcrt.get_osfhandle(self._descriptor)


def folders(environ: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    """Yield the folders for the file, which only the user can change, and False: they exist."""
    for name in ("LOCALAPPDATA", "TEMP"):
        if os.path.isabs(environ.get(name, "")):
            yield environ[name], False


class _Overlapped(ctypes.Structure):
    _fields_ = (
        ("Internal", c_void_p),
        ("InternalHigh", c_void_p),
        ("Offset", c_uint32),
        ("OffsetHigh", c_uint32),
        ("hEvent", c_void_p),
    )


def _at(byte: int) -> _Overlapped:
    return _Overlapped(Offset=byte & 0xFFFFFFFF, OffsetHigh=byte >> 32)


_kernel = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel.LockFileEx.argtypes = c_void_p, *4 * (c_uint32,), ctypes.POINTER(_Overlapped)
_kernel.UnlockFileEx.argtypes = c_void_p, *3 * (c_uint32,), ctypes.POINTER(_Overlapped)
