"""Run a vendor's command-line tool with a deadline, bounded output and a scrubbed environment.

A tool may hang, print endlessly, crash in the middle of a line, or leave children that keep its output open. A process
in uninterruptible sleep in a driver cannot be killed. In each of these cases, the caller waits little longer than the
deadline.
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
"""Maximum bytes of output; a tool that prints more is killed."""

POLL: Final = 0.05
"""Seconds between two checks whether a silent child has exited."""

_STDERR = 4096
"""Bytes of stderr to keep, from its end."""

_GRACE = 1.0
"""Seconds to wait until a killed child has exited."""

_PAUSE = 0.005
"""Seconds between two checks whether a child has exited, after the end of its output."""

_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH")
"""Environment variables passed to every tool. PYTHONPATH, LD_PRELOAD and credentials are not passed on."""

_KEEPER: Final = (
    "/bin/sh",
    "-c",
    '"$@" </dev/null & exec >/dev/null 2>&1; read -r _; kill -KILL 0',
    "sh",
)
"""Runs a tool in the background and kills its whole process group as soon as stdin is closed."""


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


class Tool(NamedTuple):
    """A command-line tool and where to find it.

    Attributes:
        name: The name of the executable.
        path: Its path. If empty, it is looked up on PATH and then in the folders.
        folders: Where the vendor installs it.
        environment: Prefixes of further environment variables to pass on.
        fix: What to do if it is not installed.
        arguments: Arguments before all others, such as an interpreter's program.
    """

    name: str
    path: str = ""
    folders: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    fix: str = ""
    arguments: tuple[str, ...] = ()

    def with_setting(self, setting: str | None) -> Tool:
        """Return the tool at the path in a setting; unchanged if the setting contains no path."""
        return self._replace(path=setting_path(setting) or self.path)

    def find(self) -> str:
        """Return the absolute path.

        Raises:
            Unavailable: The tool is not installed.
        """
        folders = os.pathsep.join([os.environ.get("PATH", os.defpath), *self.folders])
        path = shutil.which(self.path or self.name, path=folders)
        if path is None:
            reason = f"{self.path} is not executable" if self.path else f"{self.name} is not installed"
            raise Unavailable(reason, self.fix)
        return os.path.abspath(path)


def setting_path(setting: str | None) -> str:
    """Return the path in the setting of a tool or library; empty for None, "auto" and "off"."""
    return "" if setting in (None, "auto", "off") else str(setting)


def python_executable() -> str:
    """Return the path of this interpreter, or ``python3`` if it is embedded in a server or a frozen program."""
    running = sys.executable or ""
    return running if "python" in os.path.basename(running) else "python3"


class Command:
    """A tool that is run repeatedly, one child at a time.

    Raises:
        Unavailable: The tool is not installed.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._path = tool.find()
        self._launcher: tuple[str, ...] | None = None
        self._unkillable: Child | None = None

    def run(self, arguments: Sequence[str], seconds: float) -> Output:
        """Run the tool until it exits.

        Raises:
            TimeoutError: The deadline passed. The tool was killed, with all processes that it started.
            ChildProcessError: It printed more than :data:`LIMIT`, or an earlier child cannot be killed.
            OSError: The system cannot start a process now.
            Unavailable: The tool has been removed or is not executable.
        """
        return self._run(self.start(arguments), seconds)

    def start(self, arguments: Sequence[str], end_with_us: bool = False) -> Child:
        """Start the tool. The caller reads its output and passes it to :meth:`stop`.

        Args:
            arguments: The arguments of the tool.
            end_with_us: Kill the tool when this process dies, even if setpriv is not installed.

        Raises:
            ChildProcessError: An earlier child cannot be killed.
            OSError: The system cannot start a process now.
            Unavailable: The tool has been removed or is not executable.
        """
        if self._launcher is None:
            self._launcher = self._find_launcher()
        if self._unkillable is not None and not self._unkillable.has_exited():
            raise ChildProcessError(
                f"{self._tool.name} hangs and cannot be killed; it is not started again while process "
                f"{self._unkillable.pid} exists"
            )
        self._unkillable = None
        if not os.access(self._path, os.X_OK):
            raise Unavailable(f"{self._path} is not executable", self._tool.fix)
        keeper = end_with_us and not self._launcher
        line = [*(_KEEPER if keeper else self._launcher), self._path, *self._tool.arguments, *arguments]
        return self._spawn(line, keeper)

    def stop(self, child: Child) -> None:
        """Kill a child with all processes that it started, and reap it."""
        if not child.kill():
            self._unkillable = child

    def _find_launcher(self) -> tuple[str, ...]:
        """Return the command prefix that makes the kernel kill a tool when the thread that started it ends.

        PR_SET_PDEATHSIG has to be set between fork and exec, where a multithreaded program cannot run Python code, so
        util-linux's setpriv sets it. Without setpriv a tool that hangs while this process is killed outlives it.
        """
        setpriv = shutil.which("setpriv")
        launcher = (setpriv, "--pdeathsig", "KILL") if setpriv else ()
        with suppress(OSError, Unavailable):
            if launcher and b"util-linux" in self._run(self._spawn([*launcher, "--version"]), 2.0).stdout:
                return launcher
        return ()

    def _spawn(self, line: list[str], keeper: bool = False) -> Child:
        names = [name for name in os.environ if name in _ENVIRONMENT or name.startswith(self._tool.environment)]
        environment = {name: os.environ.get(name, "") for name in names}
        try:
            return Child(self._tool.name, line, {**environment, "LANG": "C", "LC_ALL": "C"}, keeper)
        except (FileNotFoundError, PermissionError) as error:
            raise Unavailable(f"{line[0]} cannot be started: {error.strerror}", self._tool.fix) from None

    def _run(self, child: Child, seconds: float) -> Output:
        try:
            return child.read_all(time.monotonic() + seconds)
        except TimeoutError:
            raise TimeoutError(f"{self._tool.name} timed out after {seconds:g} s") from None
        finally:
            self.stop(child)


class Child:
    """One run of a tool, in its own session and process group, with empty stdin.

    It is spawned directly and not by :mod:`subprocess`. Popen waits for the end of a pipe that a process forked by the
    program at the same moment, such as a worker, keeps open for its whole life.

    Args:
        name: The name of the tool, for error messages.
        line: The path and the arguments.
        environment: The environment variables.
        keeper: Whether stdin is a pipe that ends when this process dies, for :data:`_KEEPER`.

    Attributes:
        pid: Its PID, and the number of its session and process group.
        stderr: The last 4 KiB of its stderr.
        code: Its exit code, or the negated signal number, after :meth:`has_exited`; None while it runs.
    """

    def __init__(self, name: str, line: list[str], environment: dict[str, str], keeper: bool = False) -> None:
        self.stderr = bytearray()
        self._name = name
        self.code: int | None = None
        self._pipes: dict[int, tuple[int, int] | None] = {}
        child_ends: list[int] = []
        try:
            for stream in range(2 + keeper):
                reader, writer = map(_above_standard_streams, os.pipe())
                ours, theirs = (reader, writer) if stream < 2 else (writer, reader)
                self._pipes[ours] = file_identity(ours)
                child_ends.append(theirs)
            stdin: tuple[object, ...] = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
            if keeper:
                stdin = (os.POSIX_SPAWN_DUP2, child_ends[2], 0)
            self.pid = os.posix_spawn(
                line[0],
                line,
                environment,
                file_actions=[
                    *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
                    stdin,
                    (os.POSIX_SPAWN_DUP2, child_ends[0], 1),
                    (os.POSIX_SPAWN_DUP2, child_ends[1], 2),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them, and a child would inherit that
            )
        except BaseException:
            self.close()
            raise
        finally:
            for descriptor in child_ends:
                os.close(descriptor)
        self._stdout, stderr = list(self._pipes)[:2]
        self._open = {self._stdout, stderr}
        self._poll = select.poll()
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)

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
        ready = self._poll.poll(0 if exited else 1000 * max(0.0, seconds)) if self._open else []
        if not self._open or (exited and not ready):
            return None  # with open pipes: a grandchild still holds them
        output = b""
        for descriptor, _ in ready:
            if file_identity(descriptor) != self._pipes[descriptor]:
                raise ChildProcessError(f"the program closed the pipe to {self._name}")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                self._poll.unregister(descriptor)
                self._open.discard(descriptor)
            elif descriptor == self._stdout:
                output = chunk
            else:
                self.stderr += chunk
                del self.stderr[:-_STDERR]
        return output

    def kill(self) -> bool:
        """Kill the tool with its process group and reap it. Returns False if it does not exit in time."""
        self.close()
        if not self.has_exited():
            self._kill_group()
        return self._wait(time.monotonic() + _GRACE)

    def has_exited(self) -> bool:
        """Whether the tool has exited. If so, it is reaped and the rest of its process group is killed."""
        if self.code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:  # the program reaps or ignores all children, or this is a forked child of it
                self.code = 0
            else:
                if pid:
                    self._kill_group()  # at once: the number can be reused when no process of the group is left
                    self.code = os.waitstatus_to_exitcode(status)
        return self.code is not None

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

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
        while self._pipes:
            descriptor, identity = self._pipes.popitem()
            if file_identity(descriptor) == identity:
                os.close(descriptor)


def file_identity(descriptor: int) -> tuple[int, int] | None:
    """Return the device and inode of an open descriptor; None if it is closed.

    The program may close our descriptors, and the next file that it opens gets the same number.
    """
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _above_standard_streams(descriptor: int) -> int:
    """Return the descriptor, moved above 2 if needed: 0 to 2 are free if the program closed its standard streams."""
    if descriptor > 2:
        return descriptor
    moved: int = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


def _inheritable() -> Iterator[int]:
    """Yield the descriptors that a child would inherit: those that the program opened without O_CLOEXEC."""
    with suppress(FileNotFoundError):  # without /dev/fd they are inherited
        for name in os.listdir("/dev/fd"):
            with suppress(OSError):  # the descriptor of this listing
                if int(name) > 2 and os.get_inheritable(int(name)):
                    yield int(name)
