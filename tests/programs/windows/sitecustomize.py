"""Hides the files of Linux from a Windows program, which Wine shows it at paths that begin with a slash."""

import builtins
import io
import os
from collections.abc import Callable
from functools import wraps
from typing import Any


def _hiding(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        if isinstance(path, str) and path.startswith("/"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *arguments, **named)

    return call


for _name in ("access", "listdir", "lstat", "open", "readlink", "scandir", "stat"):
    setattr(os, _name, _hiding(getattr(os, _name)))
builtins.open = io.open = _hiding(io.open)
