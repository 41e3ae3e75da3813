"""One child process: started without pipes that others inherit, read with a deadline, killed with its process group.

A child that runs for long is detached: it is started by a shell that exits at once, so that it is no child of the
program, which may wait for all of its own.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
import weakref
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NamedTuple

if sys.platform != "win32":
    import fcntl

_SHELL: Final = "/bin/sh"

_KEEPER: Final = "read -r _; kill -KILL 0"
"""Kills its process group at the end of its stdin, which is a pipe: when our process ends in any way."""

_DETACHED: Final = """\
{ "$@" <&5 3<&- 5<&- & tool=$!; trap '' TERM
{ read -r _; kill -TERM 0; [ $0 = 0 ] || sleep $0; kill -KILL 0; } <&3 >/dev/null 2>&1 4>&- 5<&- &
wait $tool 2>/dev/null; echo $? >&4; } &"""
"""Starts the tool and its keeper in the background, and writes the exit status of the tool to descriptor 4. The keeper
ends the process group at the end of descriptor 3: with SIGTERM, and after $0 seconds with SIGKILL."""

_PR_GET_CHILD_SUBREAPER: Final = 37
"""Of prctl(2)."""

LIMIT: Final = 4 << 20
"""Maximum bytes of output; a tool that prints more is killed. The longest are 250 KiB for each GPU."""

POLL: Final = 0.05
"""Seconds between two checks whether a silent child has exited."""

_STDERR = 4096
"""Bytes of stderr to keep, from its end."""

_GRACE = 1.0
"""Seconds to wait until a killed child has exited."""

_KEEPER_GRACE = 5.0
"""The same of a keeper, which exits at once, unless the machine is overloaded."""

_PAUSE = 0.005
"""Seconds between two checks whether a child has exited, after the end of its output, and after much of stderr."""


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

    A detached child has a keeper, too, and a shell that waits for it. They are children of process 1. If that is this
    process, if this one adopts orphans, or if process 1 leaves them as zombies, as some programs do that are the first
    of a container, the child cannot be detached, and is one of the program's.

    A child is spawned directly and not by :mod:`subprocess`. Popen waits for the end of a pipe that a process forked by
    the program at the same moment, such as a worker, keeps open for its whole life.

    Args:
        name: The name of the tool, for error messages.
        line: The path and the arguments.
        environment: The environment variables.
        keeper: Whether the process group is killed when this process ends. It is not where ``/bin/sh`` is missing.
        stdin: A descriptor that the tool reads; without it, stdin is empty.
        detached: Seconds between SIGTERM and SIGKILL at its end; 0: SIGKILL at once. None: it is not detached.

    Attributes:
        pid: Its PID; of a detached one, its process group.
        stderr: The last 4 KiB of its stderr.
        code: Its exit code, or the negated signal number, after :meth:`has_exited`; None while it runs.
    """

    def __init__(
        self,
        name: str,
        line: list[str],
        environment: dict[str, str],
        keeper: bool = False,
        stdin: int | None = None,
        detached: float | None = None,
    ) -> None:
        self.stderr = bytearray()
        self._name = name
        self.code: int | None = None
        self._pipes: dict[int, tuple[int, int] | None] = {}
        self._owner = os.getpid()
        self._keeper: int | None = None
        self._group = 0
        self._grace = _GRACE
        self._status: int | None = None  # the pipe with the exit status of a detached child
        self._life: int | None = None  # the pipe to its keeper
        _children().add(self)
        theirs: list[int] = []
        try:
            if detached is None or not _can_detach():
                if keeper:
                    self._keeper = self._start_keeper()
                    self._group = self._keeper or 0
                self._stdout, stderr = self._read_pipe(theirs), self._read_pipe(theirs)
                self.pid = _spawn(line, environment, (stdin, *theirs), self._keeper)
                self._group = self._group or self.pid
            else:
                self._stdout, stderr, self._status = (self._read_pipe(theirs) for _ in range(3))
                reader, self._life = map(above_standard_streams, os.pipe())
                theirs.append(reader)
                self._pipes[self._life] = file_identity(self._life)
                self._grace = detached + _GRACE
                line = [_SHELL, "-c", _DETACHED, f"{detached:g}", *line]
                stdout, their_stderr, status, _ = theirs
                self.pid = _spawn(line, environment, (None, stdout, their_stderr, reader, status, stdin), None)
                _reap(self.pid)
        except BaseException:
            self._kill_group()
            self.close()
            self._reap_keeper()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        self._open = {self._stdout, stderr}

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
            return _spawn([_SHELL, "-c", _KEEPER], {}, (theirs, None, None), 0)
        except (FileNotFoundError, PermissionError):  # there is no shell
            return None
        finally:
            os.close(theirs)

    def _reap_keeper(self) -> None:
        """Reap the keeper, which was killed with its group."""
        deadline = time.monotonic() + _KEEPER_GRACE
        with suppress(ChildProcessError):  # the program reaps all children, or this is a forked child of it
            while self._keeper is not None and os.waitpid(self._keeper, os.WNOHANG)[0] == 0:
                if time.monotonic() > deadline:
                    return
                time.sleep(_PAUSE)
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
                    time.sleep(_PAUSE)
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
        """Ask the tool to end, with SIGTERM. A detached one is killed after its grace."""
        if self._life is not None:
            self._close_pipe(self._life)
        elif self.code is None and self._group:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> bool:
        """Kill the tool with its process group and reap it. Returns False if it does not exit in time.

        A detached one gets SIGTERM first, if it has a grace.
        """
        if self._status is not None:
            self.terminate()
            exited = self._wait(time.monotonic() + self._grace)
            self.close()
            return exited
        if not self.has_exited():
            self._kill_group()
        self.close()
        self._reap_keeper()
        return self._wait(time.monotonic() + self._grace)

    def has_exited(self) -> bool:
        """Whether the tool has exited. If so, it is reaped and the rest of its process group is killed."""
        if self.code is None and self._status is not None:
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
        elif self.code is None:
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
            time.sleep(min(_PAUSE, left))
        return True

    def close(self) -> None:
        """Close our ends of the pipes."""
        for descriptor in [*self._pipes]:
            self._close_pipe(descriptor)

    def _close_pipe(self, descriptor: int) -> None:
        identity = self._pipes.pop(descriptor, None)
        if identity is not None and file_identity(descriptor) == identity:
            os.close(descriptor)


@cache
def _children() -> weakref.WeakSet[Child]:
    """Return all children. Processes that this one forks close their pipes."""
    children: weakref.WeakSet[Child] = weakref.WeakSet()

    def close() -> None:
        for child in [*children]:
            child.close()

    os.register_at_fork(after_in_child=close)
    return children


_REAPED: Final = 60.0
"""Seconds after which process 1 should have reaped an orphan. Some look only now and then."""

_MOST_ZOMBIES: Final = 10
"""Zombies of ours above which process 1 counts as one that reaps no orphans."""


@cache
def _ended() -> dict[int, float]:
    """Return when detached children have ended, in monotonic seconds by their process group."""
    return {}


def _can_detach() -> bool:
    """Whether a child of a child that has exited becomes one of another process, which reaps it."""
    if os.getpid() == 1 or not os.access(_SHELL, os.X_OK):
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


def _reap(pid: int) -> None:
    """Reap the shell that starts a detached child, which exits at once."""
    with suppress(ChildProcessError):  # the program reaps all children
        os.waitpid(pid, 0)


def _spawn(line: list[str], environment: dict[str, str], streams: Sequence[int | None], group: int | None) -> int:
    """Start a process.

    Args:
        line: The path and the arguments.
        environment: The environment variables.
        streams: Its standard streams; None: nothing.
        group: Its process group; 0: a new one; None: a new one in a new session.
    """
    where: dict[str, Any] = {"setsid": True} if group is None else {"setpgroup": group}
    return os.posix_spawn(
        line[0],
        line,
        environment,
        file_actions=[
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
            *(
                (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0)
                if stream is None
                else (os.POSIX_SPAWN_DUP2, stream, number)
                for number, stream in enumerate(streams)
            ),
        ],
        setsigmask=(),
        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them, and a child would inherit that
        **where,
    )


def file_identity(descriptor: int) -> tuple[int, int] | None:
    """Return the device and inode of an open descriptor; None if it is closed.

    The program may close our descriptors, and the next file that it opens gets the same number.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def above_standard_streams(descriptor: int) -> int:
    """Return the descriptor, moved above 5 if needed: a child has others at 0 to 5.

    They are free if the program closed its standard streams.
    """
    if descriptor > 5:
        return descriptor
    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 6)
    os.close(descriptor)
    return moved


def _inheritable() -> Iterator[int]:
    """Yield the descriptors that a child would inherit: those that the program opened without O_CLOEXEC."""
    with suppress(FileNotFoundError):  # without /dev/fd they are inherited
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # the descriptor of this listing
                if int(name) > 2 and os.get_inheritable(int(name)):
                    yield int(name)
