"""A file system that accepts being mounted and then never says how much space it has.

Usage: dead_mount.py FOLDER COMMAND...

Runs the command in a mount namespace of its own, where FOLDER is such a file system (FUSE, spoken by this program
itself), so that nobody else on the machine meets it. The server's pid is in ``DEAD_MOUNT_SERVER``; SIGUSR1 makes it
answer from then on, what was asked before included. Status 77, with the reason, where such a mount cannot be made.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import struct
import sys
from contextlib import suppress

from namespace import check, enter, libc

DIE_WITH_PARENT = 1
NO_SUID, NO_DEVICES = 2, 4
INIT, STATFS, FORGET, BATCH_FORGET, INTERRUPT = 26, 17, 2, 42, 36


def answer(device: int, unique: int, body: bytes = b"", error: int = 0) -> None:
    with suppress(OSError):  # whoever asked may be gone
        os.write(device, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)


def serve(device: int) -> None:
    """Answer the greeting, keep everything else until the signal comes."""
    asleep, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    os.write(READY, b"x")
    waiting: list[tuple[int, int]] = []
    awake = False
    while True:
        ready, _, _ = select.select([device, asleep], [], [])
        if asleep in ready:
            awake = bool(os.read(asleep, 64))
        if device in ready:
            request = os.read(device, 1 << 17)
            _, operation, unique = struct.unpack_from("<IIQ", request)
            if operation == INIT:
                _, _, ahead, _ = struct.unpack_from("<IIII", request, 40)
                answer(device, unique, struct.pack("<IIIIHHIIHH8I", 7, 31, ahead, 0, 12, 9, 4096, 1, 0, 0, *[0] * 8))
            elif operation not in (FORGET, BATCH_FORGET, INTERRUPT):
                waiting.append((operation, unique))
        while awake and waiting:
            operation, unique = waiting.pop()
            if operation == STATFS:
                space = struct.pack("<5Q10I", 1000, 400, 400, 10, 5, 4096, 255, 4096, 0, *[0] * 6)
                answer(device, unique, space)
            else:
                answer(device, unique, error=errno.ENOSYS)


folder, command = os.path.abspath(sys.argv[1]), sys.argv[2:]
enter()
try:
    device = os.open("/dev/fuse", os.O_RDWR)
except OSError as error:
    print(f"/dev/fuse: {error.strerror}")
    sys.exit(77)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
check(libc.mount(b"dead", folder.encode(), b"fuse", NO_SUID | NO_DEVICES, options), "a FUSE mount")
started, READY = os.pipe()
server = os.fork()
if not server:
    serve(device)
os.read(started, 1)
for descriptor in (device, started, READY):
    os.close(descriptor)
os.environ["DEAD_MOUNT_SERVER"] = str(server)
os.execv(command[0], command)
