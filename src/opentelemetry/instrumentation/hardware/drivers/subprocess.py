"""Run a vendor's command-line tool with a deadline, bounded output and a scrubbed environment.

A tool may hang, print endlessly, crash in the middle of a line, or leave children that keep its output open. A process
in uninterruptible sleep in a driver cannot be killed. In each of these cases, the caller waits little longer than the
deadline.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.drivers.child import Child, Output
from opentelemetry.instrumentation.hardware.drivers.detached import start_detached
from opentelemetry.instrumentation.hardware.drivers.spawn import lacks
from opentelemetry.instrumentation.hardware.model import Unavailable

# Environment variables passed to every tool. PYTHONPATH, LD_PRELOAD and credentials are not passed on.
_ENVIRONMENT = ("HOME",)


class Tool(NamedTuple):
    """A command-line tool and where to find it.

    Attributes:
        name: The name of the executable.
        path: Its path. If empty, it is looked up on PATH and then in the folders.
        folders: Where the vendor installs it.
        environment: Names of further environment variables to pass on.
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
        """Return the absolute path. A name is never looked up in the current folder, even if PATH contains it.

        Raises:
            Unavailable: The tool is not installed, or this is Windows.
        """
        if sys.platform == "win32":
            raise Unavailable(f"{self.name} is not run on Windows")
        folders = _absolute(os.pathsep.join([os.environ.get("PATH", os.defpath), *self.folders]))
        path = shutil.which(self.path or self.name, path=folders)
        if path is None:
            reason = f"{self.path} is not executable" if self.path else f"{self.name} is not installed"
            raise Unavailable(reason, self.fix)
        return os.path.abspath(path)


def setting_path(setting: str | None) -> str:
    """Return the path in the setting of a tool or library; empty for None, "auto" and "off"."""
    return "" if setting in (None, "auto", "off") else str(setting)


def _absolute(folders: str) -> str:
    """Return a list of folders without relative ones. An empty one is the current folder."""
    return os.pathsep.join(folder for folder in folders.split(os.pathsep) if os.path.isabs(folder))


def python_executable() -> str:
    """Return the path of this interpreter, or ``python3`` if it is embedded in a server or a frozen program."""
    running = "" if getattr(sys, "frozen", False) else sys.executable or ""
    return running if "python" in os.path.basename(running) else "python3"


def search_path() -> list[str]:
    """Return the absolute folders of ``sys.path``: what is in the current folder is not installed.

    Programs also add a ``Path`` or None. Python ignores both.
    """
    return [each for each in sys.path if isinstance(each, str) and os.path.isabs(each)]


class Command:
    """A tool that is run repeatedly, one child at a time.

    Raises:
        Unavailable: The tool is not installed.
    """

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        self._path = tool.find()
        self._unkillable: Child | None = None

    def run(self, arguments: Sequence[str], seconds: float) -> Output:
        """Run the tool until it exits.

        Raises:
            TimeoutError: The deadline passed. The tool was killed, with all processes that it started.
            ChildProcessError: It printed more than :data:`LIMIT`, or an earlier child cannot be killed.
            OSError: The system cannot start a process now.
            Unavailable: The tool has been removed or is not executable.
        """
        child = self.start(arguments)
        try:
            return child.read_all(time.monotonic() + seconds)
        except TimeoutError:
            raise TimeoutError(f"{self._tool.name} timed out after {seconds:g} s") from None
        finally:
            self.stop(child)

    def start(self, arguments: Sequence[str], stdin: int | None = None, detached: float | None = None) -> Child:
        """Start the tool. The caller reads its output and passes it to :meth:`stop`.

        Args:
            arguments: The arguments of the tool.
            stdin: A descriptor that the tool reads; without it, stdin is empty.
            detached: If given, it is started by :func:`.start_detached`, with this grace.

        Raises:
            ChildProcessError: An earlier child cannot be killed.
            OSError: The system cannot start a process now.
            Unavailable: The tool has been removed or is not executable.
        """
        if self._unkillable is not None and not self._unkillable.has_exited():
            raise ChildProcessError(
                f"{self._tool.name} hangs and cannot be killed; it is not started again while process "
                f"{self._unkillable.pid} exists"
            )
        self._unkillable = None
        if not os.access(self._path, os.X_OK):
            raise Unavailable(f"{self._path} is not executable", self._tool.fix)
        line = [self._path, *self._tool.arguments, *arguments]
        try:
            if detached is None:
                return Child(self._tool.name, line, self._environment(), stdin, keeper=True)
            return start_detached(self._tool.name, line, self._environment(), stdin, detached)
        except FileNotFoundError:
            fix = "install that, or use an image that has it; Alpine has no glibc"
            raise Unavailable(f"{line[0]} cannot be started: {lacks(line[0])}", fix) from None
        except PermissionError as error:
            raise Unavailable(f"{line[0]} cannot be started: {error.strerror}", self._tool.fix) from None

    def stop(self, child: Child) -> None:
        """Kill a child with all processes that it started, and reap it."""
        if not child.kill():
            self._unkillable = child

    def _environment(self) -> dict[str, str]:
        environment = {name: os.environ.get(name) for name in (*_ENVIRONMENT, *self._tool.environment)}
        # A program made with PyInstaller finds its own libraries first, and keeps what the variable was before.
        libraries = "LD_LIBRARY_PATH_ORIG" if hasattr(sys, "_MEIPASS") else "LD_LIBRARY_PATH"
        for name, folders in (("PATH", "PATH"), ("LD_LIBRARY_PATH", libraries)):
            environment[name] = _absolute(os.environ.get(folders, "")) or None
        passed = {name: value for name, value in environment.items() if value is not None}
        return {**passed, "LANG": "C", "LC_ALL": "C"}
