"""What of ours is to be found in a process: threads, and the kernel's files that are open."""

from __future__ import annotations

import os
import threading


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
