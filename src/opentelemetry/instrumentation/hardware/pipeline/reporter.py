"""The reporter: the process of a job that reports the host.

The first instrumented process puts a key into the environment of its children. A process that finds the key of
another running process is a member of that job, and does not report the host.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

JOB: Final = "OTEL_PYTHON_HARDWARE_JOB"
"""``<pid>.<start time>`` of the process that reports the host for all its descendants. Set by us, not by users."""


def start_time(pid: int) -> str | None:
    """Return the start time of a process, which identifies it if its PID is reused; None if it does not run."""
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


def _pid_in_proc(pid: int) -> int:
    """Return the PID of a process in ``/proc``. Ours differs from ``getpid()`` if ``/proc`` is of another namespace."""
    try:
        return int(os.readlink("/proc/self")) if pid == os.getpid() else pid
    except OSError:
        return pid


def key(pid: int) -> str:
    """Return the key of the job that a process reports."""
    number = _pid_in_proc(pid)
    return f"{number}.{start_time(number)}"


def is_member(environ: MutableMapping[str, str], pid: int) -> bool:
    """Whether another running process reports the host for this one."""
    reporter, _, started = environ.get(JOB, "").partition(".")
    if not reporter.isdecimal() or len(reporter) > 19 or int(reporter) == _pid_in_proc(pid):
        return False
    return start_time(int(reporter)) == started


def join(environ: MutableMapping[str, str], pid: int) -> bool:
    """Become a member of the job in the environment, or the reporter of a new one.

    Returns:
        Whether this process is a member.
    """
    if is_member(environ, pid):
        return True
    environ[JOB] = key(pid)
    return False


def leave(environ: MutableMapping[str, str], pid: int) -> None:
    """Remove our key from the environment. The key of another process is kept."""
    if environ.get(JOB) == key(pid):
        del environ[JOB]
