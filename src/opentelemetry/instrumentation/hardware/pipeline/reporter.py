"""Who we are among the processes of a job: whether one of our ancestors already reports the host.

The first process that is instrumented puts a key into the environment that its children inherit. A process that finds
the key of another one that is still alive is a member of its job, and leaves the host's numbers to it.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

JOB: Final = "OTEL_PYTHON_HARDWARE_JOB"
"""``<pid>.<start>`` of the process that reports the host for all its descendants. Set by us, not by users."""


def born(pid: int) -> str | None:
    """When a process started, in a form that tells it from a later one of the same pid; None where it does not run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return None if fields[0] in (b"Z", b"X") else fields[19].decode()
    except FileNotFoundError:
        if os.path.exists("/proc/self/stat"):
            return None
    except OSError:
        return None
    import psutil

    try:
        return str(psutil.Process(pid).create_time())
    except psutil.Error:
        return None


def _number(pid: int) -> int:
    """The number of a process in ``/proc``: in a pid namespace that has the host's, ours is another there."""
    try:
        return int(os.readlink("/proc/self")) if pid == os.getpid() else pid
    except OSError:
        return pid


def key(pid: int) -> str:
    """The key of a job whose reporter is the given process."""
    number = _number(pid)
    return f"{number}.{born(number)}"


def is_member(environ: MutableMapping[str, str], pid: int) -> bool:
    """Whether another process that is still alive reports the host for this one."""
    reporter, _, started = environ.get(JOB, "").partition(".")
    if not reporter.isdecimal() or len(reporter) > 19 or int(reporter) == _number(pid):
        return False
    return born(int(reporter)) == started


def join(environ: MutableMapping[str, str], pid: int) -> bool:
    """Become a member of the job that the environment names, or the reporter of a new one.

    Returns:
        True for a member.
    """
    if is_member(environ, pid):
        return True
    environ[JOB] = key(pid)
    return False


def leave(environ: MutableMapping[str, str], pid: int) -> None:
    """Take our own key out of the environment; somebody else's stays."""
    if environ.get(JOB) == key(pid):
        del environ[JOB]
