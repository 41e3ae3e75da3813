"""One child process: started without pipes that others inherit, read with a deadline, killed with its process group."""

from __future__ import annotations

import os
import select
import signal
import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.drivers.spawn import above_standard_streams, file_identity, spawn

# Maximum bytes of output; a tool that prints more is killed. The longest are 250 KiB for each GPU.
LIMIT: Final = 4 << 20

# Seconds between two checks whether a silent child has exited.
POLL: Final = 0.05

# Seconds to wait until a killed child has exited.
GRACE: Final = 1.0

SHELL: Final = "/bin/sh"

# Kills its process group at the end of its stdin, which is a pipe: when our process ends in any way.
_KEEPER: Final = "read -r _; kill -KILL 0"

# Seconds to wait until a keeper has exited, which it does at once, unless the machine is overloaded.
_KEEPER_GRACE: Final = 5.0

# Bytes of stderr to keep, from its end.
_STDERR: Final = 4096

# Seconds between two checks whether a child has exited, after the end of its output, and after much of stderr.
PAUSE: Final = 0.005


class Output(NamedTuple):
    """The output of a tool that has exited.

    Attributes:
        code: The exit code, or the negated signal number; 0 if it is unknown because the program reaps all children.
        stdout: The complete output.
        stderr: The last 4 KiB.
    """

    code: int
    stdout: bytes
    stderr: bytes = b""


class Child:
    """One run of a tool, in its own process group.

    With a keeper, the group's first process is a shell that kills the group at the end of a pipe. Only this process has
    the other end. So nothing that the tool started is left, even if this process is killed. A process that this one
    forks inherits the pipe and closes it. If it is forked without Python's hooks, the group may live as long as it
    does. A process of the tool that leaves the group is not killed.

    Args:
        name: The name of the tool, for error messages.
        line: The path and the arguments.
        environment: The environment variables.
        stdin: A descriptor that the tool reads; without it, stdin is empty.
        keeper: Whether the process group is killed when this process ends. It is not where ``/bin/sh`` is missing.

    Attributes:
        pid: Its PID.
        stderr: The last 4 KiB of its stderr.
        code: Its exit code, or the negated signal number, after :meth:`has_exited`; None while it runs.
    """

    def __init__(
        self,
        name: str,
        line: list[str],
        environment: dict[str, str],
        stdin: int | None = None,
        keeper: bool = False,
    ) -> None:
        self.stderr = bytearray()
        self.code: int | None = None
        self._name = name
        self._pipes: dict[int, tuple[int, int] | None] = {}  # our ends, with the file that each was when it was made
        self._owner = os.getpid()
        self._keeper: int | None = None
        self._group = 0
        _children().add(self)
        theirs: list[int] = []
        try:
            if keeper:
                self._keeper = self._start_keeper()
            self._stdout, stderr = self._read_pipe(theirs), self._read_pipe(theirs)
            self.pid = self._start(line, environment, stdin, theirs)
        except BaseException:
            self._kill_group()
            self.close()
            self._reap_keeper()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._open = {self._stdout, stderr}

    def _start(self, line: list[str], environment: dict[str, str], stdin: int | None, theirs: list[int]) -> int:
        """Start the tool and return its PID. The descriptors for its output are in `theirs`."""
        pid = spawn(line, environment, (stdin, *theirs), self._keeper)
        self._group = self._keeper or pid
        return pid

    def _read_pipe(self, theirs: list[int]) -> int:
        """Make a pipe, and return its end that we read."""
        ours, writer = map(above_standard_streams, os.pipe())
        theirs.append(writer)
        self._pipes[ours] = file_identity(ours)
        return ours

    def _start_keeper(self) -> int | None:
        theirs, ours = map(above_standard_streams, os.pipe())
        self._pipes[ours] = file_identity(ours)
        try:
            self._group = spawn([SHELL, "-c", _KEEPER], {}, (theirs, None, None), 0)
        except (FileNotFoundError, PermissionError):  # there is no shell
            return None
        finally:
            os.close(theirs)
        return self._group

    def _reap_keeper(self) -> None:
        """Reap the keeper, which was killed with its group."""
        deadline = time.monotonic() + _KEEPER_GRACE
        with suppress(ChildProcessError):  # the program reaps all children, or this is a forked child of it
            while self._keeper is not None and os.waitpid(self._keeper, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    return
                time.sleep(PAUSE)
        self._keeper = None

    def read_all(self, deadline: float) -> Output:
        """Read until the tool exits.

        Raises:
            TimeoutError: The deadline passed.
            ChildProcessError: The tool printed more than :data:`LIMIT`.
        """
        stdout = bytearray()
        while (chunk := self.read_chunk(min(deadline - time.monotonic(), POLL))) is not None:
            if time.monotonic() >= deadline:
                raise TimeoutError
            stdout += chunk
            if len(stdout) > LIMIT:
                raise ChildProcessError(f"{self._name} printed more than {LIMIT >> 20} MiB")
        if not self._wait(deadline):
            raise TimeoutError
        return Output(self.code or 0, bytes(stdout), bytes(self.stderr))

    def read_chunk(self, seconds: float) -> bytes | None:
        """Wait up to some seconds for output and return it. None after the end of all output.

        Raises:
            ChildProcessError: The program has closed our end of the pipe; another file may have its number now.
        """
        exited = self.has_exited()  # before polling: afterwards no more output can come
        ready = self._ready(0.0 if exited else max(0.0, seconds), self._open) if self._open else []
        if not self._open or (exited and not ready):
            return None  # with open pipes: a grandchild still holds them
        output = b""
        for descriptor in ready:
            expected = self._pipes.get(descriptor)
            if expected is None or file_identity(descriptor) != expected:
                raise ChildProcessError(f"the program closed the pipe to {self._name}")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                self._open.discard(descriptor)
            elif descriptor == self._stdout:
                output = chunk
            else:
                self.stderr += chunk
                del self.stderr[:-_STDERR]
                if len(chunk) > _STDERR:  # a tool that floods has to wait
                    time.sleep(PAUSE)
        return output

    @staticmethod
    def _ready(seconds: float, descriptors: Iterable[int]) -> list[int]:
        """Wait up to some seconds for output and return the descriptors that have some or are at their end."""
        if not hasattr(select, "poll"):  # eventlet removes it; its select() accepts all descriptors
            return select.select([*descriptors], (), (), seconds)[0]
        poll = select.poll()
        for descriptor in descriptors:
            poll.register(descriptor, select.POLLIN)
        return [descriptor for descriptor, _ in poll.poll(1000 * seconds)]

    def terminate(self) -> None:
        """Ask the tool to end, with SIGTERM."""
        if self.code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> bool:
        """Kill the tool with its process group and reap it. Returns False if it does not exit in time."""
        if not self.has_exited():
            self._kill_group()
        self.close()
        self._reap_keeper()
        return self._wait(time.monotonic() + GRACE)

    def has_exited(self) -> bool:
        """Whether the tool has exited. If so, it is reaped and the rest of its process group is killed."""
        if self.code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the program reaps or ignores all children, or this is a forked child of it
                self.code = 0
            else:
                if pid:
                    self._kill_group()  # at once: its number can be reused when no process of the group is left
                    self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if self._group:
                os.killpg(self._group, signal.SIGKILL)

    def _wait(self, deadline: float) -> bool:
        """Wait until the tool has exited. Returns False if the deadline passes."""
        while not self.has_exited():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(PAUSE, left))
        return True

    def close(self) -> None:
        """Close our ends of the pipes."""
        for descriptor in [*self._pipes]:
            self._close_pipe(descriptor)

    def _close_pipe(self, descriptor: int) -> None:
        identity = self._pipes.pop(descriptor, None)
        if identity is not None and file_identity(descriptor) == identity:
            os.close(descriptor)


def last_line(stderr: bytes | bytearray) -> str:
    """Return the last line that a tool printed, which has the reason of a failure."""
    return stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]


@cache
def _children() -> weakref.WeakSet[Child]:
    """Return all children. Processes that this one forks close their pipes."""
    children: weakref.WeakSet[Child] = weakref.WeakSet()

    def close() -> None:
        for child in [*children]:
            child.close()

    os.register_at_fork(after_in_child=close)
    return children
