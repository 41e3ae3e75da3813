"""A tree with children of another user, where ``/proc`` hides the processes of others (``hidepid=2``).

Prints how many processes are found before they are hidden, and afterwards by either way to read the tree.
"""

from __future__ import annotations

import json
import os
import signal
from errno import ENOENT

from tests.support import namespace

from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine

NOBODY, DUMPABLE = 65534, 4


class Unlisted(Files):
    """A kernel that does not list the children of a thread."""

    def read(self, path: str) -> bytes:
        if path.endswith("/children"):
            raise FileNotFoundError(ENOENT, "no such file", path)
        return super().read(path)


def child(user: int, depth: int = 1) -> int:
    """A child that sleeps, as another user, and is the parent of another one."""
    pid = os.fork()
    if pid == 0:
        if depth > 1:
            child(user, depth - 1)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        namespace.libc.prctl(DUMPABLE, 1)  # as after an exec: else even the same user may not see it
        for output in (1, 2):
            os.close(output)  # the program's output ends with the program
        os.write(tell, b".")
        while True:
            signal.pause()
    return pid


namespace.enter()
ready, tell = os.pipe()
child(0, 2)
child(NOBODY)
for _ in range(3):
    os.read(ready, 1)


def count(files: Files) -> int:
    return len(LinuxMachine(files).tree(os.getpid()))


before = count(Files())
namespace.check(namespace.libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2"), "hidepid")
os.setresgid(NOBODY, NOBODY, NOBODY)
os.setresuid(NOBODY, NOBODY, NOBODY)
namespace.libc.prctl(DUMPABLE, 1)
print(json.dumps({"all": before, "hidden": [count(Files()), count(Unlisted())]}))
