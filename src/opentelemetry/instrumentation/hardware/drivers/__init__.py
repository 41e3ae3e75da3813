"""The ways to reach a vendor's driver: system files, Python modules, command-line tools and drivers of a source's own.

All answers are plain data (bytes, numbers, strings, lists, dicts), so :mod:`.capture` can record and replay them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from opentelemetry.instrumentation.hardware.drivers.python_module import PythonModule
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.system.files import Files, LocalFiles

T = TypeVar("T")


class DriverError(Exception):
    """A driver returned an error.

    Attributes:
        code: The driver's own error code; 0 if it has none.
        text: What the error means.
    """

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text


class Drivers:
    """The drivers of one source. A capture replaces them with a subclass. Not thread-safe."""

    def __init__(self) -> None:
        self._commands: dict[Tool, Command] = {}
        self._streams: dict[Tool, StreamingCommand] = {}
        self._custom: dict[str, Callable[[], None]] = {}

    def files(self) -> Files:
        """The files and system calls of the operating system.

        Raises:
            Unavailable: The system is not Linux.
        """
        return LocalFiles()

    def python_module(self, name: str) -> PythonModule:
        """A Python module. It is imported at the first call, not here."""
        return PythonModule(name)

    def command(self, tool: Tool) -> Command:
        """A command-line tool. The same object each time, because it knows whether a child of it still runs.

        Raises:
            Unavailable: The tool is not installed.
        """
        if tool not in self._commands:
            self._commands[tool] = Command(tool)
        return self._commands[tool]

    def stream(self, tool: Tool) -> StreamingCommand:
        """A tool that prints a line per period. The same object each time, because it has the state of the backoff.

        Raises:
            Unavailable: The tool is not installed.
        """
        if tool not in self._streams:
            self._streams[tool] = StreamingCommand(tool)
        return self._streams[tool]

    def custom(self, name: str, make: Callable[[], T]) -> T:
        """A driver of the source's own. Its methods return plain data and raise :class:`DriverError`.

        If it has a ``close`` method, that may only release descriptors: it is called in forked children as well.
        """
        driver = make()
        if hasattr(driver, "close"):
            self._custom[name] = driver.close
        return driver

    def close(self) -> None:
        """Release all descriptors and end the streaming tools."""
        for stream in self._streams.values():
            stream.close()
        for close in self._custom.values():
            close()
