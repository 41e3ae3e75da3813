"""A mount namespace for one program: its mounts are invisible to the rest of the machine."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

SET_FLAGS, UP = 0x8914, 1  # of a network interface: SIOCSIFFLAGS, IFF_UP
NEW_NAMESPACE, PRIVATE_BELOW, BIND = 0x20000, 1 << 18 | 1 << 14, 1 << 12
libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    """Exit with status 77 and the reason if a system call is not allowed."""
    if result < 0:
        print(f"{what}: {os.strerror(ctypes.get_errno())}")
        sys.exit(77)


def enter() -> None:
    """Enter a new mount namespace."""
    check(libc.unshare(NEW_NAMESPACE), "a mount namespace")
    check(libc.mount(None, b"/", None, PRIVATE_BELOW, None), "private mounts")


def bind(source: str, target: str) -> None:
    """Bind mount a file over another one."""
    check(libc.mount(source.encode(), target.encode(), None, BIND, None), target)


def empty(*folders: str) -> None:
    """Hide the contents of folders with empty file systems."""
    for folder in folders:
        check(libc.mount(b"none", folder.encode(), b"tmpfs", 0, None), folder)


def overlay(folder: str, scratch: str) -> None:
    """Let the program write into a folder as if it were the machine's. The files lie in an empty folder in memory."""
    upper, work = (f"{scratch}/{kind}{folder.replace('/', '-')}" for kind in ("upper", "work"))
    os.mkdir(upper)
    os.mkdir(work)
    options = f"lowerdir={folder},upperdir={upper},workdir={work}".encode()
    check(libc.mount(b"overlay", folder.encode(), b"overlay", 0, options), f"an overlay of {folder}")


def loopback() -> None:
    """Switch on the loopback interface of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh22x", b"lo", UP))
