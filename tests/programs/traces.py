"""What of ours is to be found in a process (threads, open files of the kernel), and waiting for it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable


def threads() -> list[str]:
    """The names of our threads that live."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("otel-hardware"))


def descriptors() -> list[str]:
    """The kernel's files that this process has open; nobody but us keeps any of these."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the folder that was just listed
        if path.startswith(("/proc/", "/sys/")) and not path.endswith("/fd"):
            found.append(path)
    return sorted(found)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that a program needs before it goes on; the program ends where it does not come."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"process {os.getpid()}: no {what}")
        threading.Event().wait(0.01)
