"""Record and Replay: the answers of a machine's drivers written down, and given again.

Both stand where :class:`~.drivers.Drivers` stands, so nothing else knows of them: a source is read on a machine that is
somewhere else, or that was made up. A capture is a text file of JSON lines::

    {"capture": "host", "nature": "recorded", "machine": "Linux 6.18 x86_64", "date": "2026-11-21", "package": "0.1.0"}
    {"tick": 0.0}
    ["files", "read", ["/proc/loadavg"], {"bytes": "0.08 0.22 0.41 1/310 4242\\n"}]
    ["files", "read", ["/proc/pressure/cpu"], {"error": ["FileNotFoundError", 2, "No such file or directory"]}]
    {"tick": 2.0}

``nature`` says where the answers are from: "recorded" from the drivers of a real machine, "simulated" by a stand-in for
a driver, or "made by hand".

A tick is one moment, in seconds since the first: a call that is repeated within it is answered as the first time, and
an answer that did not change since the tick before is not written again. ``{pid}`` stands for the process that reads,
whoever it is.
"""

from __future__ import annotations

import builtins
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from errno import ENOENT
from typing import Any, TextIO, cast

from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers, T
from opentelemetry.instrumentation.hardware.drivers.python_module import PythonModule
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Output, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files, FilesystemSpace, Usage
from opentelemetry.instrumentation.hardware.version import __version__

_SILENT = ("forget", "release", "close")
"""Calls that have no answer."""

_TUPLES = {each.__name__: each for each in (Usage, FilesystemSpace, Output)}

_SELF = "{pid}"


def _write(value: Any) -> Any:
    """An answer as JSON has it."""
    if isinstance(value, bytes):
        return {"bytes": value.decode(errors="surrogateescape")}
    if type(value).__name__ in _TUPLES:
        return {type(value).__name__: {name: _write(each) for name, each in value._asdict().items()}}
    if isinstance(value, (list, tuple)):
        return [_write(each) for each in value]
    if isinstance(value, dict):
        return {name: _write(each) for name, each in value.items()}
    return value


def _read(said: Any) -> Any:
    """What :func:`_write` wrote."""
    if isinstance(said, list):
        return [_read(each) for each in said]
    if isinstance(said, dict):
        name, inner = next(iter(said.items())) if len(said) == 1 else ("", None)
        if name == "bytes" and isinstance(inner, str):
            return inner.encode(errors="surrogateescape")
        if name in _TUPLES and isinstance(inner, dict):
            return _TUPLES[name](**{field: _read(each) for field, each in inner.items()})
        return {name: _read(each) for name, each in said.items()}
    return said


def _write_error(error: Exception) -> Any:
    if isinstance(error, Unavailable):
        return {"error": ["Unavailable", None, error.reason, error.fix]}
    if isinstance(error, DriverError):
        return {"error": ["DriverError", error.code, error.text]}
    if isinstance(error, OSError):
        return {"error": [type(error).__name__, error.errno, error.strerror or str(error)]}
    return {"error": [type(error).__name__, None, str(error)]}


def _read_error(said: Any) -> Exception | None:
    """The error that an answer is; one of a module's own kinds keeps its name."""
    if not (isinstance(said, dict) and isinstance(said.get("error"), list)):
        return None
    kind, number, text, *fix = said["error"]
    if kind == "Unavailable":
        return Unavailable(text, *fix)
    if kind == "DriverError":
        return DriverError(number, text)
    if number is not None:
        return OSError(number, text)
    known = getattr(builtins, kind, None)
    if not (isinstance(known, type) and issubclass(known, Exception)):
        known = type(kind, (Exception,), {})
    return cast(Exception, known(text))


def _anybody(value: object, pid: int) -> object:
    """An argument without our own pid: ``/proc/{pid}/stat``."""
    if isinstance(value, str) and value.startswith("/proc/"):
        return "/".join(_SELF if part == str(pid) else part for part in value.split("/"))
    return _SELF if type(value) is int and value == pid else value


def _key(driver: str, method: str, arguments: Iterable[object], pid: int) -> str:
    """A call, as text that two of the same have in common."""
    return json.dumps([driver, method, [_anybody(each, pid) for each in arguments]])


def _exchange(answer: Any, arguments: Sequence[object], old: str, new: str) -> Any:
    """The names in a folder of ``/proc``, with one of them put in another's place."""
    folder = isinstance(answer, list) and bool(arguments) and str(arguments[0]).startswith("/proc")
    return [new if name == old else name for name in answer] if folder else answer


class Record(Drivers):
    """Drivers that write down what they are asked and what they answer.

    Args:
        drivers: those that answer.
        output: where the capture goes; the caller opens and closes it.
        capture: the source that asks.
        header: more for the first line: ``nature`` where it is not "recorded", ``settings`` that are not the default.
        mask: applied to every text before it is written, to leave out what says whose machine it is.
        clock: seconds.
    """

    def __init__(
        self,
        drivers: Drivers,
        output: TextIO,
        capture: str,
        header: Mapping[str, object] | None = None,
        mask: Callable[[str], str] = lambda text: text,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._drivers = drivers
        self._output = output
        self._mask = mask
        self._clock = clock
        self._pid = os.getpid()
        self._start = clock()
        self._written: dict[str, Any] = {}
        self._now: dict[str, tuple[Any, Exception | None]] = {}
        machine = f"{platform.system()} {platform.release()} {platform.machine()}"
        first = {"capture": capture, "nature": "recorded", "machine": machine, "date": date.today().isoformat()}
        self._line({**first, "package": __version__, **(header or {})})
        self._line({"tick": 0.0})

    def next(self) -> None:
        """A new tick begins: everything is asked anew."""
        self._now.clear()
        self._line({"tick": round(self._clock() - self._start, 3)})

    def files(self) -> Files:
        return cast(Files, self._opened("files", self._drivers.files))

    def python_module(self, name: str) -> PythonModule:
        return cast(PythonModule, self._opened(name, lambda: self._drivers.python_module(name)))

    def command(self, tool: Tool) -> Command:
        return cast(Command, self._opened(tool.name, lambda: self._drivers.command(tool)))

    def stream(self, tool: Tool) -> StreamingCommand:
        return cast(StreamingCommand, self._opened(tool.name, lambda: self._drivers.stream(tool)))

    def custom(self, name: str, make: Callable[[], T]) -> T:
        return cast(T, self._opened(name, lambda: self._drivers.custom(name, make)))

    def close(self) -> None:
        self._drivers.close()

    def _opened(self, name: str, reach: Callable[[], object]) -> _Heard:
        try:
            return _Heard(self, name, reach())
        except Unavailable:
            self.hear(name, "", (), reach)
            raise

    def hear(self, driver: str, method: str, arguments: tuple[object, ...], call: Callable[..., Any]) -> Any:
        """Make a call, and write down what came of it."""
        key = _key(driver, method, arguments, self._pid)
        if key not in self._now:
            answer, error = None, None
            try:
                answer = call(*arguments)
            except Exception as raised:
                error = raised
            self._now[key] = answer, error
            said = _write_error(error) if error else _write(_exchange(answer, arguments, str(self._pid), _SELF))
            if key not in self._written or self._written[key] != said:
                self._written[key] = said
                self._line([*json.loads(key), said])
        answer, error = self._now[key]
        if error is not None:
            raise error
        return answer

    def _line(self, content: object) -> None:
        self._output.write(json.dumps(self._masked(content)) + "\n")

    def _masked(self, content: Any) -> Any:
        if isinstance(content, str):
            return self._mask(content)
        if isinstance(content, list):
            return [self._masked(each) for each in content]
        if isinstance(content, dict):
            return {self._mask(name): self._masked(each) for name, each in content.items()}
        return content


class _Heard:
    """One driver, every call of which is written down."""

    def __init__(self, record: Record, name: str, driver: object) -> None:
        self._record = record
        self._name = name
        self._driver = driver

    def __getattr__(self, method: str) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(self._driver, method)
        if method in _SILENT:
            return call
        return lambda *arguments: self._record.hear(self._name, method, arguments, call)


class Replay(Drivers):
    """Drivers that say what a capture says: the answer of the tick, or the newest one before it.

    Args:
        lines: the capture.

    Attributes:
        header: the first line.
        ticks: seconds of each tick since the first.

    Raises:
        ValueError: where a line is not what a capture has.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__()
        self.header: dict[str, Any] = {}
        self.ticks: list[float] = []
        self._pid = os.getpid()
        self._at = 0
        self._said: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            try:
                self._take(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"line {number} of the capture: {error}") from None
        if not self.ticks:
            raise ValueError("the capture has no tick")

    def _take(self, content: Any) -> None:
        if isinstance(content, dict) and not self.header:
            if "capture" not in content:
                raise ValueError('it has to begin with {"capture": <source>, ...}')
            self.header = content
        elif isinstance(content, dict):
            self.ticks.append(float(content["tick"]))
            self._said.append({})
        elif isinstance(content, list) and len(content) == 4 and self._said:
            self._said[-1][json.dumps(content[:3])] = content[3]
        else:
            raise ValueError("it is neither a tick nor [driver, method, arguments, answer] after one")

    @property
    def time(self) -> float:
        """Seconds since the first tick."""
        return self.ticks[self._at]

    def next(self) -> bool:
        """Go to the next tick; False at the last one, which then goes on."""
        if self._at + 1 == len(self.ticks):
            return False
        self._at += 1
        return True

    def files(self) -> Files:
        self._open("files")
        return cast(Files, _Saying(self, "files"))

    def python_module(self, name: str) -> PythonModule:
        self._open(name)
        return cast(PythonModule, _Saying(self, name))

    def command(self, tool: Tool) -> Command:
        self._open(tool.name)
        return cast(Command, _Saying(self, tool.name))

    def stream(self, tool: Tool) -> StreamingCommand:
        self._open(tool.name)
        return cast(StreamingCommand, _Saying(self, tool.name))

    def custom(self, name: str, make: Callable[[], T]) -> T:
        self._open(name)
        return cast(T, _Saying(self, name))

    def close(self) -> None:
        """Nothing is open."""

    def _open(self, driver: str) -> None:
        """Raise what reaching the driver raised."""
        for said in self._said:
            error = _read_error(said.get(_key(driver, "", (), self._pid)))
            if error is not None:
                raise error

    def say(self, driver: str, method: str, arguments: tuple[object, ...]) -> Any:
        """The answer to a call.

        Raises:
            FileNotFoundError: where the kernel was never asked it.
            Unavailable: where another driver was never asked it.
            Exception: what the driver raised.
        """
        key = _key(driver, method, arguments, self._pid)
        for said in reversed(self._said[: self._at + 1]):
            if key in said:
                error = _read_error(said[key])
                if error is not None:
                    raise error
                return _exchange(_read(said[key]), arguments, _SELF, str(self._pid))
        call = f"{driver}.{method}({', '.join(map(repr, arguments))})"
        if driver == "files":
            raise FileNotFoundError(ENOENT, f"the capture has no answer to {call}")
        raise Unavailable(f"the capture has no answer to {call}", "record it again")


class _Saying:
    """One driver of a capture."""

    def __init__(self, replay: Replay, name: str) -> None:
        self._replay = replay
        self._name = name

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method in _SILENT:
            return lambda *arguments: None
        return lambda *arguments: self._replay.say(self._name, method, arguments)
