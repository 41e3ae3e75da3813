"""Call a function in a fresh interpreter, so that nothing that ran before is measured with it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[3]


def call(function: str, *arguments: Any, seconds: float = 300.0) -> Any:
    """Call ``module:function`` with JSON data in a separate process, and return its result.

    Raises:
        RuntimeError: The function raised, or the process died or took too long; it is killed then.
    """
    dropped = ("OTEL_", "PYTHONDONTWRITEBYTECODE")  # the package is measured as installed: with byte code
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    with subprocess.Popen(
        [sys.executable, "-m", __name__, function, json.dumps(arguments)],
        cwd=_ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            output, errors = child.communicate(timeout=seconds)
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise RuntimeError(f"{function} was not done in {seconds:g} s") from None
    if child.returncode:
        raise RuntimeError(f"{function} failed:\n{errors}")
    return json.loads(output.splitlines()[-1])


def _answer(function: str, arguments: str) -> None:
    module, _, name = function.partition(":")
    print(json.dumps(getattr(importlib.import_module(module), name)(*json.loads(arguments))))


if __name__ == "__main__":
    _answer(*sys.argv[1:])
