"""The memory that the limits of this process leave it."""

from __future__ import annotations

from math import inf

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]


def memory_left() -> float:
    """Return the bytes that ``RLIMIT_AS`` and ``RLIMIT_DATA`` leave; infinity if there is no limit, or no ``/proc``."""
    if resource is None:
        return inf
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    if limits == 2 * [resource.RLIM_INFINITY]:
        return inf
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = file.read().split()
    except OSError:
        return inf
    used = [int(pages[column]) * resource.getpagesize() for column in (0, 5)]  # size, data with the stack
    return min(limit - size for limit, size in zip(limits, used) if limit != resource.RLIM_INFINITY)
