"""The ways to reach a driver: the kernel's files and calls, Python modules, and commands.

Every answer is plain data (bytes, numbers, lists, dicts), so that :mod:`replay` can write it down and say it again.
One thread uses them: that of a source, or of the sources that never wait, which then share what they look up.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files, LocalFiles


class PythonModule:
    """A Python module, resolved on first use; its named tuples come back as dicts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of the module.

        ``call("Process.name", 1)`` is ``module.Process(1).name()``; the object is made anew each time: the process
        of a pid may be another one by now.

        Raises:
            Unavailable: where the module is not installed, or has no such function on this system.
        """
        if self._module is None:
            try:
                self._module = importlib.import_module(self._name)
            except ImportError as error:
                raise Unavailable(
                    f"the Python module {self._name} cannot be imported: {error}", f"pip install {self._name}"
                ) from None
        kind, _, method = function.rpartition(".")
        owner = self._module
        if kind:
            owner, arguments = getattr(self._module, kind)(arguments[0]), arguments[1:]
        found = getattr(owner, method, None)
        if found is None:
            raise Unavailable(f"{self._name} has no {function} on this system")
        return plain(found(*arguments))


def plain(answer: Any) -> Any:
    """An answer as plain data: named tuples as dicts, other containers as lists and dicts, a process as its pid."""
    if hasattr(answer, "_asdict"):
        return {name: plain(value) for name, value in answer._asdict().items()}
    if isinstance(answer, dict):
        return {str(name): plain(value) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [plain(value) for value in answer]
    return answer.pid if hasattr(answer, "pid") else answer


class DriverError(Exception):
    """What a library answers instead of a number: its own code, and what that means."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{text} ({code})")
        self.code = code
        self.text = text


T = TypeVar("T")


class Drivers:
    """What a source reaches its drivers through; a recorded machine stands in by having the same methods."""

    def __init__(self) -> None:
        self._kernel: LocalFiles | None = None
        self._commands: dict[Tool, Command] = {}
        self._streams: dict[Tool, StreamingCommand] = {}
        self._own: dict[str, Callable[[], None]] = {}
        self._shared: dict[str, Any] = {}

    def files(self) -> Files:
        """The operating system's own files and calls.

        Raises:
            Unavailable: where it is not Linux.
        """
        if self._kernel is None:
            self._kernel = LocalFiles()
        return self._kernel

    def module(self, name: str) -> PythonModule:
        """A Python module by its name; it is imported at the first call, not here."""
        return PythonModule(name)

    def command(self, tool: Tool) -> Command:
        """A tool of a vendor; the same one each time: it knows whether it has left a child behind.

        Raises:
            Unavailable: where there is no such tool.
        """
        if tool not in self._commands:
            self._commands[tool] = Command(tool)
        return self._commands[tool]

    def stream(self, tool: Tool) -> StreamingCommand:
        """A tool of a vendor that goes on saying lines; the same one each time: it knows when it broke off.

        Raises:
            Unavailable: where there is no such tool.
        """
        if tool not in self._streams:
            self._streams[tool] = StreamingCommand(tool)
        return self._streams[tool]

    def custom(self, name: str, make: Callable[[], T]) -> T:
        """A driver that a source brings along: an object whose answers are plain data and whose errors are Refusals.

        One that keeps descriptors has a ``close``, which only closes them: it is called in forked children, too.
        """
        made = make()
        if hasattr(made, "close"):
            self._own[name] = made.close
        return made

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """What those who have these drivers share: made once, and anew after they were closed."""
        if name not in self._shared:
            self._shared[name] = make()
        found: T = self._shared[name]
        return found

    def close(self) -> None:
        """Close what the kernel and a source's own drivers keep open, and end the tools that go on."""
        for stream in self._streams.values():
            stream.close()
        for close in self._own.values():
            close()
        if self._kernel is not None:
            self._kernel.close()
        self._shared.clear()
