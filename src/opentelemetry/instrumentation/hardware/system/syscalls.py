"""System calls of Linux that :mod:`os` may lack.

It has those of the C library that Python was built with: for conda's Python, and for that of uv before July 2026, it is
that of 2012. See https://github.com/python/cpython/issues/153400.
"""

from __future__ import annotations

import ctypes
import os
import sys
from errno import ENOSYS, ESRCH
from typing import Any, Final

MFD_CLOEXEC: Final = 1
MFD_ALLOW_SEALING: Final = 2

F_ADD_SEALS: Final = 1033  # of fcntl(2)
F_SEAL_SEAL: Final = 1
F_SEAL_SHRINK: Final = 2
F_SEAL_GROW: Final = 4

_PIDFD_OPEN: Final = 434  # on all processors


def pidfd_open(pid: int) -> int:
    """Return a descriptor of a process, which is readable when it has ended, since Linux 5.3.

    Raises:
        OSError: There is no such process, or no such system call.
    """
    if pid >= 1 << 31:
        raise OSError(ESRCH, os.strerror(ESRCH))
    return _checked(_libc().syscall(_PIDFD_OPEN, pid, 0))


def memfd_create(name: str, flags: int = MFD_CLOEXEC) -> int:
    """Return the descriptor of a file in memory, since Linux 3.17.

    Raises:
        OSError: The system has no such files.
    """
    create = getattr(_libc(), "memfd_create", None)
    return _checked(-1 if create is None else create(name.encode(), flags))


def _libc() -> Any:
    if not sys.platform.startswith("linux"):
        raise OSError(ENOSYS, os.strerror(ENOSYS))
    ctypes.set_errno(ENOSYS)  # for a C library without the function
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
