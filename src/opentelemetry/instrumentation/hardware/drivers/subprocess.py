"""Command: a tool of a vendor, run as a child that cannot outlive its deadline, flood us, or be left behind.

A tool may hang (a wedged device puts it to sleep where no signal reaches it), print without end, crash in the middle of
a line, or start children of its own that keep its output open. Whatever it does costs the thread that runs it little
more than the deadline, and memory up to a bound.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.model import Unavailable

if sys.platform != "win32":
    import fcntl

LIMIT: Final = 16 << 20
"""Bytes that a tool may print; one that prints more is broken."""

_SENTENCES = 4096
"""Bytes that are kept of what a tool says beside its output: the newest."""

_GRACE = 1.0
"""Seconds that a killed child may take to end. One that sleeps in its driver never does."""

LOOK: Final = 0.05
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


_KEEPER: Final = (
    "/bin/sh",
    "-c",
    '"$@" </dev/null & exec >/dev/null 2>&1; read -r _; kill -KILL 0',
    "sh",
)
"""Starts a tool beside itself and, once its own input ends, kills all that it started, and itself."""


def interpreter() -> str:
    """A Python for a program of ours: the one that runs us; where that is a server or a frozen program, PATH's."""
    running = sys.executable or ""
    return running if "python" in os.path.basename(running) else "python3"


class Tool(NamedTuple):
    """What a tool is called, and how it is come by.

    Attributes:
        name: what it is called.
        path: where it is; otherwise it is looked for on PATH, then in the folders.
        folders: where its vendor puts it.
        keep: how the names of environment variables begin that are its vendor's own.
        fix: what to do where there is none.
        first: the arguments that come before all others: of an interpreter, the program.
    """

    name: str
    path: str = ""
    folders: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    fix: str = ""
    first: tuple[str, ...] = ()

    def at(self, setting: str | None) -> Tool:
        """The same, where a setting says that it is, if it does."""
        return self._replace(path=named(setting) or self.path)

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


def named(setting: str | None) -> str:
    """The path of a tool or library that a setting names; ``None``, "auto" and "off" name none."""
    return "" if setting in (None, "auto", "off") else str(setting)


class Command:
    """A tool of a vendor, to be run again and again.

    Raises:
        Unavailable: where there is no such tool.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._path = tool.find()
        self._launcher: tuple[str, ...] | None = None
        self._left: Child | None = None

    def run(self, arguments: Sequence[str], seconds: float) -> Output:
        """Run the tool to its end.

        Raises:
            TimeoutError: it did not end in time, and was killed with all that it had started.
            ChildProcessError: it printed more than :data:`LIMIT`; or the one before could not be killed and still
                lives, and there is never a second one.
            OSError: the system cannot start it now.
            Unavailable: the tool is gone, or is no program of this machine.
        """
        child = self.start(arguments)
        return self._whole(child, seconds)

    def start(self, arguments: Sequence[str], for_long: bool = False) -> Child:
        """Start the tool, and leave it to the caller to listen to it, and to :meth:`end` it.

        Args:
            arguments: for the tool.
            for_long: it dies with us, even where the kernel would not see to that.

        Raises:
            ChildProcessError: the one before could not be killed and still lives.
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
        kept = for_long and not self._launcher
        return self._started([*(_KEEPER if kept else self._launcher), self._path, *self._tool.first, *arguments], kept)

    def end(self, child: Child) -> None:
        """Kill a child with all that it started, and reap it; one that cannot be killed is remembered."""
        if not child.end():
            self._left = child

    def _probed(self) -> tuple[str, ...]:
        """What has the kernel kill a child once the thread that started it is gone, as it is when we are killed.

        The kernel must be told between fork and exec, where no Python code may run in a program with threads, so a
        tool that does it in between is used; util-linux has brought it since 2018. Where there is none, a child that
        hangs at the moment when we are killed outlives us; any other ends by itself.
        """
        setpriv = shutil.which("setpriv")
        launcher = (setpriv, "--pdeathsig", "KILL") if setpriv else ()
        with suppress(OSError, Unavailable):
            if launcher and b"util-linux" in self._whole(self._started([*launcher, "--version"]), 2.0).stdout:
                return launcher
        return ()

    def _started(self, line: list[str], kept: bool = False) -> Child:
        try:
            return Child(self._tool.name, line, self._environment(), kept)
        except (FileNotFoundError, PermissionError) as error:
            raise Unavailable(f"{line[0]} cannot be started: {error.strerror}", self._tool.fix) from None

    def _whole(self, child: Child, seconds: float) -> Output:
        try:
            return child.read(time.monotonic() + seconds)
        except TimeoutError:
            raise TimeoutError(f"{self._tool.name} did not end within {seconds:g} s") from None
        finally:
            self.end(child)

    def _environment(self) -> dict[str, str]:
        kept = {
            name: os.environ.get(name, "")  # the program may change it meanwhile
            for name in list(os.environ)
            if name in _KEPT or name.startswith(self._tool.keep)
        }
        return {**kept, "LANG": "C", "LC_ALL": "C"}


class Child:
    """One run of a tool, with all that it starts: a session and process group of its own.

    It is spawned in one call, not by :mod:`subprocess`: that waits for the end of a pipe, which a process that the
    program forks at this moment, a worker say, keeps open for as long as it lives.
    """

    def __init__(self, name: str, line: list[str], environment: dict[str, str], kept: bool = False) -> None:
        """Start it; its input is empty, and where it is ``kept``, ends with us."""
        self.stderr = bytearray()
        self._name = name
        self._code: int | None = None
        self._ours = True
        self._ends: dict[int, tuple[int, int] | None] = {}
        theirs: list[int] = []
        try:
            for stream in range(2 + kept):
                reading, writing = map(_moved, os.pipe())
                ours, other = (reading, writing) if stream < 2 else (writing, reading)
                self._ends[ours] = file_identity(ours)
                theirs.append(other)
            source: tuple[object, ...] = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
            if kept:
                source = (os.POSIX_SPAWN_DUP2, theirs[2], 0)
            self.pid = os.posix_spawn(
                line[0],
                line,
                environment,
                file_actions=[
                    *((os.POSIX_SPAWN_CLOSE, each) for each in _inheritable()),
                    source,
                    *((os.POSIX_SPAWN_DUP2, end, stream) for stream, end in enumerate(theirs[:2], 1)),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them, and a child would
            )
        except BaseException:
            self._close()
            raise
        finally:
            for end in theirs:
                os.close(end)
        self._stdout, stderr = list(self._ends)[:2]
        self._open = {self._stdout, stderr}
        self._waiting = select.poll()
        for each in self._open:
            self._waiting.register(each, select.POLLIN)

    def _close(self) -> None:
        while self._ends:
            end, ours = self._ends.popitem()
            if file_identity(end) == ours:
                os.close(end)

    def read(self, deadline: float) -> Output:
        """What it says until it ends.

        Raises:
            TimeoutError: it does not end.
            ChildProcessError: it says too much.
        """
        said = bytearray()
        while (piece := self.hear(min(deadline - time.monotonic(), LOOK))) is not None:
            if time.monotonic() >= deadline:
                raise TimeoutError
            said += piece
            if len(said) > LIMIT:
                raise ChildProcessError(f"{self._name} printed more than {LIMIT >> 20} MiB")
        if not self._wait(deadline):
            raise TimeoutError
        return Output(self._code or 0, bytes(said), bytes(self.stderr))

    def hear(self, seconds: float) -> bytes | None:
        """What it prints now; waits so long for it, at most. None once it has said all that it ever will.

        Raises:
            ChildProcessError: the program has closed our end, and may have a file of its own under its number.
        """
        ended = self._ended()  # before it is looked what there is to read: nothing comes after that
        ready = self._waiting.poll(0 if ended else 1000 * max(0.0, seconds)) if self._open else []
        if not self._open or (ended and not ready):
            return None  # in the latter case a child of its own still holds the streams, and has nothing to say
        said = b""
        for stream, _ in ready:
            if file_identity(stream) != self._ends[stream]:
                raise ChildProcessError(f"the program closed the pipe that {self._name} prints into")
            piece = os.read(stream, 1 << 16)
            if not piece:
                self._waiting.unregister(stream)
                self._open.discard(stream)
            elif stream == self._stdout:
                said = piece
            else:
                self.stderr += piece
                del self.stderr[:-_SENTENCES]
        return said

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
            if not hasattr(os, "waitid"):
                return self._reaped()
            try:
                found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # the program reaps every child or ignores them all; or this is a fork of it
                self._code, self._ours = 0, False
            else:
                if found is not None:
                    self._code = found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        return self._code is not None

    def _reaped(self) -> bool:
        """The same where the system only tells it by reaping: macOS before Python 3.13."""
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            self._code, self._ours = 0, False
            return True
        if pid:
            with suppress(ProcessLookupError, PermissionError):  # at once, as long as the group's number is its own
                os.killpg(self.pid, signal.SIGKILL)
            self._code, self._ours = os.waitstatus_to_exitcode(status), False
        return bool(pid)

    def _wait(self, deadline: float) -> bool:
        """Wait for its end; False where it does not come."""
        pause = 0.0005
        while not self._ended():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            pause = min(2 * pause, LOOK)
            time.sleep(min(pause, left))
        return True


def file_identity(descriptor: int) -> tuple[int, int] | None:
    """Device and inode of an open descriptor, None if it is closed.

    The program may close our descriptors, and the next file that it opens gets the same number.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


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
