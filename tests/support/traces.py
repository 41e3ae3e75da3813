"""List our threads and open files in a process, and wait for conditions."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable


def threads() -> list[str]:
    """Return the names of our running threads."""
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("otel-hardware"))


def descriptors() -> list[str]:
    """Return the kernel's files that this process has open. No other code keeps such files open."""
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
    """Wait for a condition. If it does not hold in time, the program exits with a message."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"process {os.getpid()}: no {what}")
        threading.Event().wait(0.01)
