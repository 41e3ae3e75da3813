"""Where ``/proc`` has a process.

A sandbox may give a program numbers of its own and leave it the ``/proc`` of the host: what is there under one of these
numbers is somebody else. We ourselves, and the children that the kernel lists, are found there all the same.
"""

from __future__ import annotations

import os

from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files


def folder(kernel: Files, pid: int) -> str:
    """The folder of a process.

    Raises:
        Unavailable: where ``/proc`` knows it by another number.
    """
    if pid == os.getpid():
        return "/proc/self"
    if not are_ours(kernel):
        raise Unavailable(
            f"process {pid} cannot be told here: this is a pid namespace, and /proc shows the host's numbers",
            "mount a /proc of its own: unshare --mount-proc, bwrap --proc /proc",
        )
    return f"/proc/{pid}"


def are_ours(kernel: Files) -> bool:
    """Whether the numbers in ``/proc`` are the ones that we know processes by."""
    return kernel.exists(f"/proc/self/task/{os.getpid()}")
