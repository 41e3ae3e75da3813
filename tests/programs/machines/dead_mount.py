"""A FUSE file system whose server does not respond, so that statvfs(3) or read(2) hangs.

Usage: dead_mount.py PATH COMMAND...

Runs the command in a mount namespace in which PATH is such a file system, or a file that can be opened and not read.
The pid of the server, which is this program, is in ``DEAD_MOUNT_SERVER``. SIGUSR1 makes it respond, also to requests
that it has received before. Status 77, with the reason, if such a mount cannot be made.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import stat
import struct
import sys
from contextlib import suppress

from tests.support.namespace import check, enter, libc

DIE_WITH_PARENT = 1
NO_SUID, NO_DEVICES = 2, 4
INIT, STATFS, FORGET, BATCH_FORGET, INTERRUPT = 26, 17, 2, 42, 36
GETATTR, OPEN, READ, FLUSH = 3, 14, 15, 25
UNCACHED = 1


def answer(device: int, unique: int, body: bytes = b"", error: int = 0) -> None:
    with suppress(OSError):  # the caller may have ended
        os.write(device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)


def reply(device: int, operation: int, unique: int, request: bytes) -> None:
    """Reply as a file system of 1000 blocks, or as a file that contains 7."""
    if operation == INIT:
        _, _, ahead, _ = struct.unpack_from("<IIII", request, 40)
        answer(device, unique, struct.pack("<IIIIHHIIHH8I", 7, 31, ahead, 0, 12, 9, 4096, 1, 0, 0, *[0] * 8))
    elif operation == STATFS:
        answer(device, unique, struct.pack("<5Q10I", 1000, 400, 400, 10, 5, 4096, 255, 4096, 0, *[0] * 6))
    elif operation == GETATTR:
        answer(device, unique, struct.pack("<QII6Q10I", 60, 0, 0, 1, *[0] * 8, MODE, 1, *[0] * 5))
    elif operation == OPEN:
        answer(device, unique, struct.pack("<QII", 0, UNCACHED, 0))
    elif operation == READ:
        (offset,) = struct.unpack_from("<Q", request, 48)
        answer(device, unique, b"7\n"[offset:])
    else:
        answer(device, unique, error=errno.ENOSYS)


def serve(device: int, file: bool) -> None:
    """Reply to the requests that come with mounting and opening; hold back all others until the signal."""
    at_once = {INIT, GETATTR, OPEN, FLUSH} if file else {INIT}
    asleep, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    os.write(READY, b"x")
    waiting: list[tuple[int, int, bytes]] = []
    awake = False
    while True:
        ready, _, _ = select.select([device, asleep], [], [])
        if asleep in ready:
            awake = bool(os.read(asleep, 64))
        if device in ready:
            request = os.read(device, 1 << 17)
            _, operation, unique = struct.unpack_from("<IIQ", request)
            if operation in at_once:
                reply(device, operation, unique, request)
            elif operation not in (FORGET, BATCH_FORGET, INTERRUPT):
                waiting.append((operation, unique, request))
        while awake and waiting:
            reply(device, *waiting.pop())


path, command = os.path.abspath(sys.argv[1]), sys.argv[2:]
MODE = os.stat(path).st_mode
enter()
try:
    device = os.open("/dev/fuse", os.O_RDWR)
except OSError as error:
    print(f"/dev/fuse: {error.strerror}")
    sys.exit(77)
options = f"fd={device},rootmode={MODE:o},user_id=0,group_id=0".encode()
check(libc.mount(b"dead", path.encode(), b"fuse", NO_SUID | NO_DEVICES, options), "a FUSE mount")
started, READY = os.pipe()
server = os.fork()
if not server:
    serve(device, stat.S_ISREG(MODE))
os.read(started, 1)
for descriptor in (device, started, READY):
    os.close(descriptor)
os.environ["DEAD_MOUNT_SERVER"] = str(server)
os.execvp(command[0], command)
