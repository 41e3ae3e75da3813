"""The table of mounts, where nobody else mounts: what the kernel says of it, asked twice after everything that happens.

Usage: mount_table.py FOLDER

Prints, as JSON, both answers by what happened. Status 77, with the reason, where there may be no such place.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import sys

from tests.programs.namespace import check, empty, enter, libc

from opentelemetry.instrumentation.hardware.system.files import LocalFiles

TABLE = "/proc/self/mountinfo"


def number() -> int:
    """The descriptor by which our package has the table open."""
    (found,) = [name for name in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{name}") == real]
    return int(found)


folder = sys.argv[1]
enter()
real, kernel = os.path.realpath(TABLE), LocalFiles()
report: dict[str, list[bool]] = {}


def ask(event: str) -> None:
    report[event] = [kernel.changed(TABLE), kernel.changed(TABLE)]


ask("nothing yet")
empty(folder)
ask("a mount")
kernel.once(TABLE)
ask("the table was read")
check(libc.umount(folder.encode()), folder)
ask("an unmount")
empty(folder, folder)
ask("two mounts")
os.close(number())
ask("its number was closed")
empty(folder)
ask("a mount after that")
one, other = socket.socketpair()
theirs = number()
os.dup2(one.fileno(), theirs)
ask("its number is a socket's")
empty(folder)
ask("a mount after that too")
kernel.forget(TABLE)
ask("it was forgotten")
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))  # poll refuses to look at so many
ask("the call fails")
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
enter()
empty(folder)
ask("a mount in another namespace, which we entered")
kernel.close()
os.write(theirs, b"x")
assert other.recv(1) == b"x", "the socket is not ours to close"
print(json.dumps(report))
