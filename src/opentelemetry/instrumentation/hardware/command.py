"""Command: a tool of a vendor, run as a child that cannot outlive its deadline, flood us, or be left behind.

A tool may hang (a wedged device puts it to sleep where no signal reaches it), print without end, crash in the middle of
a line, or start children of its own that keep its output open. Whatever it does costs the thread that runs it little
more than the deadline, and memory up to a bound.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.model import Unavailable

LIMIT: Final = 16 << 20
"""Bytes that a tool may print; one that prints more is broken."""

_SENTENCES = 4096
"""Bytes that are kept of what a tool says beside its output: the newest."""

_GRACE = 1.0
"""Seconds that a killed child may take to end. One that sleeps in its driver never does."""

_LOOK = 0.05
"""Seconds between two looks whether a silent child has ended."""

_KEPT = ("PATH", "HOME", "LD_LIBRARY_PATH")
"""What a tool is told of our environment, beside what its vendor has named. Nothing that would load Python code of
ours into a tool that is written in Python, and nobody's secrets."""


class Output(NamedTuple):
    """What a tool said.

    Attributes:
        code: its exit code; the negated signal where one ended it; 0 where the program around us reaps every child.
        stdout: what it printed.
        stderr: the end of what it said beside that.
    """

    code: int
    stdout: bytes
    stderr: bytes = b""


class Tool(NamedTuple):
    """What a tool is called, and how it is come by.

    Attributes:
        name: what it is called.
        path: where it is; otherwise it is looked for on PATH, then in the folders.
        folders: where its vendor puts it.
        keep: how the names of environment variables begin that are its vendor's own.
        fix: what to do where there is none.
    """

    name: str
    path: str = ""
    folders: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    fix: str = ""

    def find(self) -> str:
        """Where it is.

        Raises:
            Unavailable: it is nowhere.
        """
        places = os.pathsep.join([os.environ.get("PATH", os.defpath), *self.folders])
        found = shutil.which(self.path or self.name, path=places)
        if found is None:
            raise Unavailable(f"{self.path} is no program" if self.path else f"there is no {self.name}", self.fix)
        return os.path.abspath(found)


class Command:
    """A tool of a vendor, to be run again and again.

    Raises:
        Unavailable: where there is no such tool.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._path = tool.find()
        self._launcher: tuple[str, ...] | None = None
        self._left: _Child | None = None

    def run(self, arguments: Sequence[str], seconds: float) -> Output:
        """Run the tool to its end.

        Raises:
            TimeoutError: it did not end in time, and was killed with all that it had started.
            ChildProcessError: it printed more than :data:`LIMIT`; or the one before could not be killed and still
                lives, and there is never a second one.
            OSError: the system cannot start it now.
            Unavailable: the tool is gone, or is no program of this machine.
        """
        if self._launcher is None:
            self._launcher = self._probed()
        if self._left is not None and not self._left.gone():
            raise ChildProcessError(
                f"{self._tool.name} hangs, cannot be killed, and none is started while process {self._left.pid} lives"
            )
        self._left = None
        if not os.access(self._path, os.X_OK):
            raise Unavailable(f"{self._path} is no program any more", self._tool.fix)
        return self._captured([*self._launcher, self._path, *arguments], seconds)

    def _probed(self) -> tuple[str, ...]:
        """What has the kernel kill a child once the thread that started it is gone, as it is when we are killed.

        The kernel must be told between fork and exec, where no Python code may run in a program with threads, so a
        tool that does it in between is used; util-linux has brought it since 2018. Where there is none, a child that
        hangs at the moment when we are killed outlives us; any other ends by itself.
        """
        setpriv = shutil.which("setpriv")
        launcher = (setpriv, "--pdeathsig", "KILL") if setpriv else ()
        with suppress(OSError, Unavailable):
            if launcher and b"util-linux" in self._captured([*launcher, "--version"], 2.0).stdout:
                return launcher
        return ()

    def _captured(self, line: list[str], seconds: float) -> Output:
        deadline = time.monotonic() + seconds
        try:
            child = _Child(self._tool.name, line, self._environment())
        except (FileNotFoundError, PermissionError) as error:
            raise Unavailable(f"{line[0]} cannot be started: {error.strerror}", self._tool.fix) from None
        try:
            return child.read(deadline)
        except TimeoutError:
            raise TimeoutError(f"{self._tool.name} did not end within {seconds:g} s") from None
        finally:
            if not child.end():
                self._left = child

    def _environment(self) -> dict[str, str]:
        kept = {
            name: os.environ.get(name, "")  # the program may change it meanwhile
            for name in list(os.environ)
            if name in _KEPT or name.startswith(self._tool.keep)
        }
        return {**kept, "LANG": "C", "LC_ALL": "C"}


class _Child:
    """One run of a tool, with all that it starts: a session and process group of its own.

    It is spawned in one call, not by :mod:`subprocess`: that waits for the end of a pipe, which a process that the
    program forks at this moment, a worker say, keeps open for as long as it lives.
    """

    def __init__(self, name: str, line: list[str], environment: dict[str, str]) -> None:
        self._name = name
        self._code: int | None = None
        self._ours = True
        self._reading: list[int] = []
        writing: list[int] = []
        try:
            for _ in range(2):
                ends = os.pipe()
                self._reading.append(_moved(ends[0]))
                writing.append(_moved(ends[1]))
            self.pid = os.posix_spawn(
                line[0],
                line,
                environment,
                file_actions=[
                    *((os.POSIX_SPAWN_CLOSE, each) for each in _inheritable()),
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    *((os.POSIX_SPAWN_DUP2, end, stream) for stream, end in enumerate(writing, 1)),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them, and a child would
            )
        except BaseException:
            self._close()
            raise
        finally:
            for end in writing:
                os.close(end)

    def _close(self) -> None:
        while self._reading:
            os.close(self._reading.pop())

    def read(self, deadline: float) -> Output:
        """What it says until it ends.

        Raises:
            TimeoutError: it does not end.
            ChildProcessError: it says too much.
        """
        out, err = self._reading
        said = {out: bytearray(), err: bytearray()}
        waiting = select.poll()
        for stream in said:
            waiting.register(stream, select.POLLIN)
        streams = set(said)
        while streams:
            ended = self._ended()  # before it is looked what there is to read: nothing comes after that
            left = deadline - time.monotonic()
            ready = waiting.poll(0 if ended else 1000 * max(0.0, min(left, _LOOK)))
            if ended and not ready:
                break  # a child of its own still holds the streams, and has nothing to say
            if left <= 0:
                raise TimeoutError
            for stream, _ in ready:
                piece = os.read(stream, 1 << 16)
                said[stream] += piece
                if not piece:
                    waiting.unregister(stream)
                    streams.discard(stream)
            del said[err][:-_SENTENCES]
            if len(said[out]) > LIMIT:
                raise ChildProcessError(f"{self._name} printed more than {LIMIT >> 20} MiB")
        if not self._wait(deadline):
            raise TimeoutError
        return Output(self._code or 0, bytes(said[out]), bytes(said[err]))

    def end(self) -> bool:
        """Kill it with all that it started, and reap it; False where it does not die."""
        self._close()
        self._ended()
        if self._ours:  # else its number may be another's by now
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._wait(time.monotonic() + _GRACE)
        return self.gone()

    def gone(self) -> bool:
        """Whether it has ended; it is reaped then."""
        if not self._ended():
            return False
        if self._ours:
            self._ours = False
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        return True

    def _ended(self) -> bool:
        """Whether it has ended; it is not reaped yet, so that its number and its group's stay its own."""
        if self._code is None:
            try:
                found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # the program reaps every child or ignores them all; or this is a fork of it
                self._code, self._ours = 0, False
            else:
                if found is not None:
                    self._code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        return self._code is not None

    def _wait(self, deadline: float) -> bool:
        """Wait for its end; False where it does not come."""
        pause = 0.0005
        while not self._ended():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            pause = min(2 * pause, _LOOK)
            time.sleep(min(pause, left))
        return True


def _moved(descriptor: int) -> int:
    """The descriptor, or another one in its place that no standard stream has: a program may have closed its own."""
    if descriptor > 2:
        return descriptor
    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _inheritable() -> Iterator[int]:
    """What a child would have of our descriptors: those that a library or the program opened for all to have."""
    with suppress(FileNotFoundError):  # where a program has a root folder without devices, they are its own affair
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # the one that listed them
                if int(name) > 2 and os.get_inheritable(int(name)):
                    yield int(name)
