"""The memory and threads that the limits of this process leave it."""

from __future__ import annotations

from typing import Final

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_MIB: Final = 1 << 20

# The limits, what our seven threads and our modules take, and some for the program. A thread has a stack of 8 MiB, and
# glibc reserves 64 MiB of addresses for what it allocates, at first 128. Columns of /proc/self/statm: size, data.
_NEEDED: Final = (("RLIMIT_AS", 0, 700 * _MIB), ("RLIMIT_DATA", 5, 96 * _MIB))


# Errors of threading: at a limit, and in an isolated subinterpreter.
_NO_THREADS: Final = ("can't start new thread", "daemon threads are disabled")


def is_limit(error: BaseException) -> bool:
    """Whether an error says that this process has no memory left, or may have no more threads."""
    return isinstance(error, MemoryError) or any(text in str(error) for text in _NO_THREADS)


def shortage() -> str | None:
    """Return which limit of memory leaves too little to start our threads, and what it has to leave.

    A process without memory hangs in ``Thread.start()``, crashes in the C library, or has a MemoryError anywhere. The
    figures are those of ``/proc/self/statm``. None if there is enough, no limit, or no such file.
    """
    if resource is None:
        return None
    limits = [(name, column, least, resource.getrlimit(getattr(resource, name))[0]) for name, column, least in _NEEDED]
    if all(limit == resource.RLIM_INFINITY for *_, limit in limits):
        return None
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = file.read().split()
    except OSError:
        return None
    for name, column, least, limit in limits:
        if limit != resource.RLIM_INFINITY and limit - int(pages[column]) * resource.getpagesize() < least:
            return f"{name} leaves less than {least // _MIB} MiB of memory"
    return None
