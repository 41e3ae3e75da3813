"""A mount namespace for one program: its mounts are invisible to the rest of the machine."""

from __future__ import annotations

import ctypes
import os
import sys

NEW_NAMESPACE, PRIVATE_BELOW, BIND = 0x20000, 1 << 18 | 1 << 14, 1 << 12
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """End with status 77, and the reason, where this machine does not allow something."""
    if result < 0:
        print(f"{what}: {os.strerror(ctypes.get_errno())}")
        sys.exit(77)


def enter() -> None:
    """From now on the mounts of this process are its own."""
    check(libc.unshare(NEW_NAMESPACE), "a mount namespace")
    check(libc.mount(None, b"/", None, PRIVATE_BELOW, None), "private mounts")


def bind(source: str, target: str) -> None:
    """Show a file at the path of another one from now on."""
    check(libc.mount(source.encode(), target.encode(), None, BIND, None), target)


def empty(*folders: str) -> None:
    """Nothing is in these folders from now on, until it is written there."""
    for folder in folders:
        check(libc.mount(b"none", folder.encode(), b"tmpfs", 0, None), folder)
