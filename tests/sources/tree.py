"""A simulated machine: the kernel's files and answers as a dict, and modules with dicts as functions.

``/proc/{pid}`` is the process that reads; ask for it as ``/proc/self`` or by its number.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from errno import EINVAL, ENOENT, ESRCH
from functools import cache
from types import MappingProxyType
from typing import Any, cast

from opentelemetry.instrumentation.hardware.drivers import Drivers, T
from opentelemetry.instrumentation.hardware.drivers.child import Output
from opentelemetry.instrumentation.hardware.drivers.python_module import PythonModule
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files, FilesystemSpace, Usage


def _place(path: str) -> str:
    return _of_process(path, str(os.getpid()))


@cache
def _of_process(path: str, pid: str) -> str:
    parts = ["{pid}" if part == pid else part for part in path.split("/")]
    if parts[1:3] == ["proc", "self"]:
        parts[2] = "{pid}"
    return "/".join(parts)


def _missing(path: str) -> FileNotFoundError:
    return FileNotFoundError(ENOENT, os.strerror(ENOENT), path)


def _order(name: str) -> tuple[bool, str]:
    """By name, with our own process first."""
    return name != "{pid}", name


class Tree(Files):
    """A kernel with a dict of files. A file that is an exception is raised.

    Attributes:
        is_proc_ours: Whether ``/proc`` belongs to the PID namespace of this process.
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes | OSError] | None = None,
        spaces: Mapping[str, FilesystemSpace] | None = None,
        cpus: int = 4,
        up: float = 1000.0,
        usage: Usage | None = None,
        descriptors: Mapping[str, int] | None = None,
    ) -> None:
        self.files = dict(files or {})
        self.spaces = dict(spaces or {})
        self.cpus = cpus
        self.up = up
        self.spent = usage
        self.descriptors = dict(descriptors or {})
        self.asked: list[str] = []
        self.is_proc_ours = True
        self._seen: tuple[tuple[str, ...], set[str]] = ((), set())

    def become(self, other: Tree) -> None:
        """The machine goes on: everything is as it is there."""
        self.__dict__.update(other.__dict__)

    def read(self, path: str) -> bytes:
        self.asked.append(path)
        found = self.files.get(_place(path))
        if found is None:
            raise _missing(path)
        if isinstance(found, OSError):
            raise found
        return found.encode() if isinstance(found, str) else found

    def link(self, path: str) -> str:
        return self.read(path).decode()

    def names(self, path: str) -> Sequence[str]:
        folder = _place(path).rstrip("/") + "/"
        found = {name[len(folder) :].split("/", 1)[0] for name in self.files if name.startswith(folder)}
        if not found:
            raise _missing(path)
        return [str(os.getpid()) if name == "{pid}" else name for name in sorted(found, key=_order)]

    def count(self, path: str) -> int:
        if _place(path) not in self.descriptors:
            raise _missing(path)
        return self.descriptors[_place(path)]

    def exists(self, path: str) -> bool:
        place = _place(path)
        if place == "/proc/{pid}/task/{pid}":
            return self.is_proc_ours
        return place in self.files or place in self._folders()

    def _folders(self) -> set[str]:
        """Every folder that has a file."""
        paths = tuple(self.files)
        if paths != self._seen[0]:
            self._seen = paths, {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
        return self._seen[1]

    def space(self, path: str) -> FilesystemSpace:
        if path not in self.spaces:
            raise _missing(path)
        return self.spaces[path]

    def usage(self) -> Usage:
        assert self.spent is not None, "the test gives no usage of this process"
        return self.spent

    def has_children(self) -> bool:
        return True

    def affinity(self, pid: int) -> int:
        if not self.exists(f"/proc/{pid}"):
            raise ProcessLookupError(ESRCH, os.strerror(ESRCH))
        return self.cpus

    def online(self) -> int:
        return self.cpus

    def physical_memory(self) -> int:
        for line in self.read("/proc/meminfo").splitlines():
            if line.startswith(b"MemTotal:"):
                return int(line.split()[1]) << 10
        raise OSError(EINVAL, os.strerror(EINVAL))

    def uptime(self) -> float:
        return self.up


class Answers:
    """A Python module: the result of each function, for any arguments. An exception is raised."""

    def __init__(self, name: str, functions: Mapping[str, Any] | None) -> None:
        self.name = name
        self.functions = functions

    def call(self, function: str, *arguments: object) -> Any:
        if self.functions is None or function not in self.functions:
            raise Unavailable(f"{self.name} has no {function} on this system")
        answer = self.functions[function]
        if callable(answer):
            answer = answer(*arguments)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Speaking:
    """A tool: what it prints by its arguments, and the lines of a tick, or how it ends.

    Args:
        expects: The arguments with which it is to run on; None for any.

    Attributes:
        opened: How it was begun, each time.
    """

    def __init__(
        self,
        lines: Sequence[bytes] | Exception = (),
        begins: Exception | None = None,
        prints: Mapping[str, bytes | Exception] = MappingProxyType({}),
        expects: list[str] | None = None,
    ) -> None:
        self.lines = lines
        self.begins = begins
        self.prints = prints
        self.expects = expects
        self.opened: list[tuple[Any, ...]] = []

    def run(self, arguments: list[str], seconds: float) -> Output:
        printed = self.prints.get(" ".join(arguments))
        if isinstance(printed, Exception):
            raise printed
        return Output(64, b"", b"usage: ...\n") if printed is None else Output(0, printed)

    def open(self, arguments: list[str], period: float, document: str = "") -> None:
        assert self.expects is None or arguments == self.expects
        self.opened.append((arguments, period, document))
        if self.begins:
            raise self.begins

    def read(self, seconds: float = 0.0) -> list[bytes]:
        if isinstance(self.lines, Exception):
            raise self.lines
        return [*self.lines]

    def close(self) -> None:
        pass


class _Current:
    """A tool or library of a machine as it is at the current tick."""

    def __init__(self, installed: Mapping[str, Any], name: str) -> None:
        self._installed = installed
        self._name = name

    def __getattr__(self, method: str) -> Any:
        return getattr(self._installed[self._name], method)


class Fabricated(Drivers):
    """Drivers of a simulated machine. Without a tree, it does not run Linux.

    Attributes:
        tools: The tools that are installed.
        libraries: What takes the place of drivers that a source implements.
    """

    def __init__(
        self,
        tree: Tree | None,
        modules: Mapping[str, Mapping[str, Any]] | None = None,
        tools: Mapping[str, Speaking] | None = None,
        libraries: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.linux = tree
        self.modules = {name: dict(functions) for name, functions in (modules or {}).items()}
        self.tools = dict(tools or {})
        self.libraries = dict(libraries or {})

    @property
    def tree(self) -> Tree:
        """The files of a machine that runs Linux."""
        assert self.linux is not None
        return self.linux

    def files(self) -> Files:
        if self.linux is None:
            raise Unavailable("this system is not Linux")
        return self.linux

    def python_module(self, name: str) -> PythonModule:
        return cast(PythonModule, Answers(name, self.modules.get(name)))

    def command(self, tool: Tool) -> Command:
        return cast(Command, self._installed(tool))

    def stream(self, tool: Tool) -> StreamingCommand:
        return cast(StreamingCommand, self._installed(tool))

    def _installed(self, tool: Tool) -> _Current:
        if tool.name not in self.tools:
            raise Unavailable(f"{tool.name} is not installed", tool.fix)
        return _Current(self.tools, tool.name)

    def custom(self, name: str, make: Callable[[], T]) -> T:
        return cast(T, _Current(self.libraries, name)) if name in self.libraries else super().custom(name, make)

    def become(self, other: Fabricated) -> None:
        """The machine goes on: everything is as it is there."""
        if self.linux is not None and other.linux is not None:
            self.linux.become(other.linux)
        for name, functions in other.modules.items():
            self.modules[name].update(functions)
        self.tools.update(other.tools)
        self.libraries.update(other.libraries)
