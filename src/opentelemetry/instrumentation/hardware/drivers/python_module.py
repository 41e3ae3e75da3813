"""A Python module as a driver: functions are called by name and return plain data."""

from __future__ import annotations

import importlib
from typing import Any

from opentelemetry.instrumentation.hardware.model import Unavailable


class PythonModule:
    """A Python module, imported at the first call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: Any = None

    def call(self, function: str, *arguments: object) -> Any:
        """Call a function of the module.

        ``call("Process.name", 1)`` is ``module.Process(1).name()``. The object is constructed for each call, because
        the PID may have been reused.

        Raises:
            Unavailable: The module is not installed, or has no such function on this system.
        """
        if self._module is None:
            try:
                self._module = importlib.import_module(self._name)
            except ImportError as error:
                raise Unavailable(
                    f"the Python module {self._name} cannot be imported: {error}", f"pip install {self._name}"
                ) from None
        class_name, _, name = function.rpartition(".")
        owner = self._module
        if class_name:
            owner, arguments = getattr(self._module, class_name)(arguments[0]), arguments[1:]
        callee = getattr(owner, name, None)
        if callee is None:
            raise Unavailable(f"{self._name} has no {function} on this system")
        return plain(callee(*arguments))


def plain(answer: Any) -> Any:
    """Convert named tuples to dicts, other containers to lists and dicts, and a process object to its pid."""
    if hasattr(answer, "_asdict"):
        return {name: plain(value) for name, value in answer._asdict().items()}
    if isinstance(answer, dict):
        return {str(name): plain(value) for name, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [plain(value) for value in answer]
    return answer.pid if hasattr(answer, "pid") else answer
