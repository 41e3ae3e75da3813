"""What another thread or a signal handler does between two lines."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class Interrupted:
    """Calls a function before one of the lines of a module that this thread runs.

    Args:
        owner: A class or function of the module.
        number: Before which line, from 1 on.
        call: The function.

    Attributes:
        lines: How many lines were run.
    """

    def __init__(self, owner: Any, number: int, call: Callable[[], object]) -> None:
        self.lines = 0
        self._file = inspect.getfile(owner)
        self._number = number
        self._call = call

    def __enter__(self) -> Interrupted:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *exception: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != self._file:
            return None
        self.lines += event == "line"
        if event == "line" and self.lines == self._number:
            self._call()
        return self._trace
