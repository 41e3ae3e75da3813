"""Access to vendors' drivers: system files, Python modules, command-line tools, and drivers that a source implements.

All calls return plain data (bytes, numbers, strings, lists, dicts), so :mod:`.capture` can record and replay them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from opentelemetry.instrumentation.hardware.drivers.python_module import PythonModule
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.system.machine import Machine
    from opentelemetry.instrumentation.hardware.system.tree import SharedWalk

T = TypeVar("T")

FILES: Final = "files"  # the name of the system files in captures


class DriverError(Exception):
    """A driver returned an error.

    Attributes:
        code: The driver's error code; 0 if there is none.
        text: The driver's description of the error.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text


class Drivers:
    """The drivers of one source. Recording and replaying a capture use subclasses. Not thread-safe."""

    def __init__(self) -> None:
        self._commands: dict[Tool, Command] = {}
        self._streams: dict[Tool, StreamingCommand] = {}
        self._custom: dict[str, Callable[[], None]] = {}

    def files(self) -> Files:
        """Return the files and system calls of the operating system.

        Raises:
            Unavailable: The system is not Linux.
        """
        return self._opened(FILES, Files)

    def python_module(self, name: str) -> PythonModule:
        """Return a Python module, which is imported at its first call."""
        return self._opened(name, lambda: PythonModule(name))

    def machine(self, walk: SharedWalk | None = None) -> Machine:
        """Return the local machine: read from the kernel's files on Linux, through psutil elsewhere.

        Args:
            walk: A walk over the process tree that is shared with other sources.
        """
        from opentelemetry.instrumentation.hardware.system.linux import LinuxMachine
        from opentelemetry.instrumentation.hardware.system.psutil_backend import PsutilMachine

        try:
            return LinuxMachine(self.files(), walk)
        except Unavailable:
            return PsutilMachine(self.python_module("psutil").call, self.python_module("time").call)

    def command(self, tool: Tool) -> Command:
        """Return a command-line tool. The same object each time, because it tracks its running child.

        Raises:
            Unavailable: The tool is not installed.
        """
        if tool not in self._commands:
            self._commands[tool] = self._opened(tool.name, lambda: Command(tool))
        return self._commands[tool]

    def stream(self, tool: Tool) -> StreamingCommand:
        """Return a tool that prints a line per period. The same object each time, because it keeps the backoff state.

        Raises:
            Unavailable: The tool is not installed.
        """
        if tool not in self._streams:
            self._streams[tool] = self._opened(tool.name, lambda: StreamingCommand(tool))
        return self._streams[tool]

    def custom(self, name: str, make: Callable[[], T]) -> T:
        """Create a driver that the source implements. Its methods return plain data or raise :class:`DriverError`.

        A ``close`` method may only release descriptors, because it is called in forked children as well.
        """
        driver = self._opened(name, make)
        if hasattr(driver, "close"):
            self._custom[name] = driver.close
        return driver

    def _opened(self, name: str, make: Callable[[], T]) -> T:
        """Return a driver. A replay returns another one, with recorded answers."""
        del name
        return make()

    def close(self) -> None:
        """Release all descriptors and end the streaming tools."""
        for stream in self._streams.values():
            stream.close()
        for close in self._custom.values():
            close()
