"""Record the answers of drivers to a capture, and replay it.

:class:`Record` and :class:`Replay` are :class:`~.drivers.Drivers`, so sources use them unchanged. A capture is a text
file of JSON lines::

    {"capture": "host", "nature": "recorded", "machine": "Linux 6.18 x86_64", "date": "2026-11-21", "package": "0.1.0"}
    {"tick": 0.0}
    ["files", "read", ["/proc/loadavg"], {"bytes": "0.08 0.22 0.41 1/310 4242\\n"}]
    ["files", "read", ["/proc/pressure/cpu"], {"error": ["FileNotFoundError", 2, "No such file or directory"]}]
    {"tick": 2.0}

``nature`` is "recorded" for the drivers of a real machine, "simulated" for a simulated driver library, and "made by
hand" otherwise.

A tick is a point in time, in seconds since the first tick. Within a tick, each call is made once. An answer is written
only if it differs from the previous one. ``{pid}`` stands for the PID of the process that records or replays.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from errno import ENOENT
from functools import partial
from typing import Any, TextIO, cast

from opentelemetry.instrumentation.hardware.drivers import FILES, Drivers, T
from opentelemetry.instrumentation.hardware.drivers.encoding import decode, decode_error, encode, encode_error
from opentelemetry.instrumentation.hardware.drivers.python_module import PythonModule
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.version import __version__

_UNRECORDED = ("forget", "release", "close")  # methods that return nothing and are not recorded

_PID = "{pid}"


class Record(Drivers):
    """Drivers that write each call and its answer to a capture.

    Args:
        output: The capture. The caller opens and closes it.
        header: Further entries of the first line: ``nature`` if not "recorded", ``settings`` that are not the default.
        mask: Applied to each string before it is written, to remove data that identifies the machine.
        mask_answer: Applied to the arguments and the encoded answer of each call before.
    """

    def __init__(
        self,
        drivers: Drivers,
        output: TextIO,
        capture: str,
        header: Mapping[str, object] | None = None,
        mask: Callable[[str], str] = lambda text: text,
        clock: Callable[[], float] = time.monotonic,
        mask_answer: Callable[[Sequence[object], Any], Any] = lambda arguments, answer: answer,
    ) -> None:
        super().__init__()
        self._mask_answer = mask_answer
        self._drivers = drivers
        self._output = output
        self._mask = mask
        self._clock = clock
        self._pid = os.getpid()
        self._start = clock()
        self._written: dict[str, Any] = {}
        self._tick: dict[str, tuple[Any, Exception | None]] = {}
        machine = f"{platform.system()} {platform.release()} {platform.machine()}"
        first = {"capture": capture, "nature": "recorded", "machine": machine, "date": date.today().isoformat()}
        self._write_line({**first, "package": __version__, **(header or {})})
        self._write_line({"tick": 0.0})

    def next(self) -> None:
        """Begin a tick, in which each call is made again."""
        self._tick.clear()
        self._write_line({"tick": round(self._clock() - self._start, 3)})

    def files(self) -> Files:
        return cast(Files, self._recorded(FILES, self._drivers.files))

    def python_module(self, name: str) -> PythonModule:
        return cast(PythonModule, self._recorded(name, lambda: self._drivers.python_module(name)))

    def command(self, tool: Tool) -> Command:
        return cast(Command, self._recorded(tool.name, lambda: self._drivers.command(tool)))

    def stream(self, tool: Tool) -> StreamingCommand:
        return cast(StreamingCommand, self._recorded(tool.name, lambda: self._drivers.stream(tool)))

    def custom(self, name: str, make: Callable[[], T]) -> T:
        return cast(T, self._recorded(name, lambda: self._drivers.custom(name, make)))

    def close(self) -> None:
        self._drivers.close()

    def call(self, driver: str, method: str, arguments: tuple[object, ...], function: Callable[..., Any]) -> Any:
        """Make a call, write its answer or error, and return or raise it."""
        if method in _UNRECORDED:
            return function(*arguments)
        key = _key(driver, method, arguments, self._pid)
        if key not in self._tick:
            answer, error = None, None
            try:
                answer = function(*arguments)
            except Exception as raised:
                error = raised
            self._tick[key] = answer, error
            encoded = encode_error(error) if error else encode(_replace_pid(answer, arguments, str(self._pid), _PID))
            if key not in self._written or self._written[key] != encoded:
                self._written[key] = encoded
                self._write_line([*json.loads(key), self._mask_answer(arguments, encoded)])
        answer, error = self._tick[key]
        if error is not None:
            raise error
        return answer

    def _recorded(self, name: str, open_driver: Callable[[], object]) -> _Driver:
        try:
            driver = open_driver()
        except Unavailable:
            self.call(name, "", (), open_driver)
            raise
        return _Driver(lambda method, arguments: self.call(name, method, arguments, getattr(driver, method)))

    def _write_line(self, content: object) -> None:
        self._output.write(json.dumps(self._masked(content)) + "\n")

    def _masked(self, content: Any) -> Any:
        if isinstance(content, str):
            return self._mask(content)
        if isinstance(content, list):
            return [self._masked(each) for each in content]
        if isinstance(content, dict):
            return {self._mask(name): self._masked(each) for name, each in content.items()}
        return content


class Replay(Drivers):
    """Drivers that return recorded answers: the one of the current tick, or the newest one before it.

    Attributes:
        header: The entries of the first line.
        ticks: The time of each tick, in seconds since the first one.

    Raises:
        ValueError: A line is invalid.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__()
        self.header: dict[str, Any] = {}
        self.ticks: list[float] = []
        self._pid = os.getpid()
        self._current = 0
        self._answers: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            try:
                self._add(json.loads(line))
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"line {number} of the capture: {error}") from None
        if not self.ticks:
            raise ValueError("the capture has no tick")

    def _add(self, content: Any) -> None:
        if isinstance(content, dict) and not self.header:
            if "capture" not in content:
                raise ValueError('the first line has no "capture"')
            self.header = content
        elif isinstance(content, dict):
            self.ticks.append(float(content["tick"]))
            self._answers.append({})
        elif isinstance(content, list) and len(content) == 4 and self._answers:
            self._answers[-1][json.dumps(content[:3])] = content[3]
        else:
            raise ValueError("expected a tick, or [driver, method, arguments, answer] after a tick")

    @property
    def time(self) -> float:
        """Seconds since the first tick."""
        return self.ticks[self._current]

    def next(self) -> bool:
        """Advance to the next tick. Returns False at the last one, which stays current."""
        if self._current + 1 == len(self.ticks):
            return False
        self._current += 1
        return True

    def answer(self, driver: str, method: str, arguments: tuple[object, ...]) -> Any:
        """Return the recorded answer to a call; None of a method that is not recorded.

        Raises:
            FileNotFoundError: The capture has no answer to this call of the files.
            Unavailable: The capture has no answer to this call of another driver.
            Exception: The recorded error.
        """
        if method in _UNRECORDED:
            return None
        key = _key(driver, method, arguments, self._pid)
        for answers in reversed(self._answers[: self._current + 1]):
            if key in answers:
                error = decode_error(answers[key])
                if error is not None:
                    raise error
                return _replace_pid(decode(answers[key]), arguments, _PID, str(self._pid))
        call = f"{driver}.{method}({', '.join(map(repr, arguments))})"
        if driver == FILES:
            raise FileNotFoundError(ENOENT, f"the capture has no answer to {call}")
        raise Unavailable(f"the capture has no answer to {call}", "record the capture again")

    def _opened(self, name: str, make: Callable[[], T]) -> T:
        """Return a replayed driver, or raise why there was none when the capture was recorded."""
        del make
        for answers in self._answers:
            error = decode_error(answers.get(_key(name, "", (), self._pid)))
            if error is not None:
                raise error
        return cast(T, _Driver(partial(self.answer, name)))


class _Driver:
    """Hands its calls on, with the name of the method and the arguments."""

    def __init__(self, call: Callable[[str, tuple[object, ...]], Any]) -> None:
        self._call = call

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return lambda *arguments: self._call(method, arguments)


def _key(driver: str, method: str, arguments: Iterable[object], pid: int) -> str:
    """Return a call as JSON, with a placeholder for the PID of this process."""
    return json.dumps([driver, method, [_without_pid(each, pid) for each in arguments]])


def _without_pid(argument: object, pid: int) -> object:
    if isinstance(argument, str) and argument.startswith("/proc/"):
        return "/".join(_PID if part == str(pid) else part for part in argument.split("/"))
    return _PID if type(argument) is int and argument == pid else argument


def _replace_pid(answer: Any, arguments: Sequence[object], old: str, new: str) -> Any:
    """Replace the PID of this process in a listing of ``/proc`` or a folder below it."""
    listing = isinstance(answer, list) and bool(arguments) and str(arguments[0]).startswith("/proc")
    return [new if name == old else name for name in answer] if listing else answer
