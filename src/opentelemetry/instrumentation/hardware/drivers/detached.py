"""A child that runs for long, and is no child of the program, which may wait for all of its own.

It is started by a shell that exits at once, so that process 1 adopts it. That shell leaves two more in the process
group: a keeper, which ends the group at the end of a pipe of which only this process has the other end, and one that
waits for the tool.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from typing import Final

from opentelemetry.instrumentation.hardware.drivers.child import GRACE, SHELL, Child
from opentelemetry.instrumentation.hardware.drivers.spawn import above_standard_streams, file_identity, spawn

# Starts the tool and its keeper in the background, and writes the exit status of the tool to descriptor 4. The keeper
# ends the process group at the end of descriptor 3: with SIGTERM, and after $0 seconds with SIGKILL.
_SCRIPT: Final = """\
{ "$@" <&5 3<&- 5<&- & tool=$!; trap '' TERM
{ read -r _; kill -TERM 0; [ $0 = 0 ] || sleep $0; kill -KILL 0; } <&3 >/dev/null 2>&1 4>&- 5<&- &
wait $tool 2>/dev/null; echo $? >&4; } &"""

# Of prctl(2).
_PR_GET_CHILD_SUBREAPER: Final = 37

# Seconds after which process 1 should have reaped an orphan. Some look only now and then.
_REAPED: Final = 60.0

# Zombies of ours above which process 1 counts as one that reaps no orphans.
_MOST_ZOMBIES: Final = 10


def start_detached(
    name: str, line: list[str], environment: dict[str, str], stdin: int | None, grace: float, keeper: bool = True
) -> Child:
    """Start a tool that is no child of this process, where that is possible; else one that is.

    It is not possible if this process is process 1 or adopts orphans, without a shell, or if process 1 leaves orphans
    as zombies, as some programs do that are the first of a container.

    Args:
        name: The name of the tool, for error messages.
        line: The path and the arguments.
        environment: The environment variables.
        stdin: A descriptor that the tool reads; without it, stdin is empty.
        grace: Seconds between SIGTERM and SIGKILL at its end; 0: SIGKILL at once.
        keeper: Whether the process group of one that is not detached is killed when this process ends.
    """
    if not _can_detach():
        return Child(name, line, environment, stdin, keeper)
    return _Detached(name, line, environment, stdin, grace)


class _Detached(Child):
    """A child with a shell that waits for it and a keeper, which are children of process 1.

    Its `pid` is its process group.
    """

    def __init__(
        self, name: str, line: list[str], environment: dict[str, str], stdin: int | None, grace: float
    ) -> None:
        self._seconds = grace
        super().__init__(name, line, environment, stdin)

    def _start(self, line: list[str], environment: dict[str, str], stdin: int | None, theirs: list[int]) -> int:
        stdout, stderr = theirs
        self._status = self._read_pipe(theirs)  # has the exit status of the tool
        reader, self._life = map(above_standard_streams, os.pipe())  # leads to its keeper
        theirs.append(reader)
        self._pipes[self._life] = file_identity(self._life)
        shell = [SHELL, "-c", _SCRIPT, f"{self._seconds:g}", *line]
        pid = spawn(shell, environment, (None, stdout, stderr, reader, theirs[2], stdin), None)
        with suppress(ChildProcessError):  # the program reaps all children
            os.waitpid(pid, 0)  # the shell exits at once
        return pid

    def terminate(self) -> None:
        """Ask the tool to end, with SIGTERM. It is killed after its grace."""
        self._close_pipe(self._life)

    def kill(self) -> bool:
        """Kill the tool with its process group, after its grace. Returns False if it does not exit in time."""
        self.terminate()
        exited = self._wait(time.monotonic() + self._seconds + GRACE)
        self.close()
        return exited

    def has_exited(self) -> bool:
        """Whether the tool has exited. If so, the rest of its process group is killed."""
        if self.code is None:
            expected = self._pipes.get(self._status)
            is_closed = expected is None or file_identity(self._status) != expected  # by the program
            if is_closed or os.getpid() != self._owner:  # in a forked child, it is the parent's
                self.code = 0
            elif self._ready(0.0, {self._status}):
                text = os.read(self._status, 16)
                status = int(text) if text.strip().isdigit() else 128 + signal.SIGKILL  # the shell was killed as well
                self.code = status if status <= 128 else 128 - status
                _ended()[self.pid] = time.monotonic()
                self.terminate()
        return self.code is not None


@cache
def _ended() -> dict[int, float]:
    """Return when detached children have ended, in monotonic seconds by their process group."""
    return {}


def _can_detach() -> bool:
    """Whether a child of a child that has exited becomes one of another process, which reaps it."""
    if os.getpid() == 1 or not os.access(SHELL, os.X_OK):
        return False
    before = time.monotonic() - _REAPED
    if _zombies({group for group, ended in _ended().items() if ended < before}) > _MOST_ZOMBIES:
        return False
    adopts = ctypes.c_int()
    with suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopts), 0, 0, 0)
    return not adopts.value


def _zombies(groups: Collection[int]) -> int:
    """Return the number of processes of these groups that have exited and were not reaped."""
    import psutil

    count = 0
    for process in psutil.process_iter() if groups else ():
        with suppress(psutil.Error, OSError):
            count += os.getpgid(process.pid) in groups and process.status() == psutil.STATUS_ZOMBIE
    return count
