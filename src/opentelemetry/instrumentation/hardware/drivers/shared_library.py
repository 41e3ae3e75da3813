"""Load a driver's shared library without risk for the program.

While a library is loaded, its constructors run, under a lock of the dynamic loader that every import of an extension
module needs. A library that is a FIFO, lies on a file system that does not respond, or has a constructor that does not
return would freeze the program; one that crashes would end it. So a child loads it first, with a deadline.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Sequence
from functools import cache

from opentelemetry.instrumentation.hardware.drivers.child import PAUSE, POLL
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool, python_executable
from opentelemetry.instrumentation.hardware.model import Unavailable

DEADLINE = 10.0  # seconds in which a child has to load a library

# Loads the library and calls functions of it, each with the argument 0.
_PROGRAM = """
import ctypes, os, sys
output = os.dup(1)
os.dup2(2, 1)  # the library may print
os.write(output, b"started ")
try:
    library = ctypes.CDLL(sys.argv[1])
except OSError as error:
    os.write(output, b"refused " + str(error).encode())
    os._exit(0)
os.write(output, b"loaded ")
for name in sys.argv[2:]:
    if hasattr(library, name):
        getattr(library, name)(0)
os.write(output, b"done")
os._exit(0)  # without the library's destructors
"""


def load(path: str, *functions: str) -> ctypes.CDLL:
    """Load a library, after a child has loaded it and called some of its functions.

    The interpreter lock is released meanwhile. A function that does not return is accepted, because it would only block
    the thread that calls it. Where a child cannot be started, the library is loaded without the trial.

    Args:
        path: The library, or its name for the system's loader to find it.
        functions: Functions that may crash, such as the library's initialization. They are called with the argument 0.

    Raises:
        TimeoutError: The library was not loaded within :data:`DEADLINE`.
        ChildProcessError: The library crashed or ended the process that loaded it.
        OSError: The library cannot be loaded.
    """
    if not sys.platform.startswith("linux"):
        return ctypes.CDLL(path)
    output, code = _try(path, functions)
    words, _, refusal = output.partition("refused ")
    if refusal:
        raise OSError(refusal)
    if code is None and "loaded" not in words:
        raise TimeoutError(f"{path} was not loaded within {DEADLINE:g} s; this process does not load it")
    if code is not None and "started" in words and "done" not in words:
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        raise ChildProcessError(f"{path} ended a process that loaded it ({how}); this process does not load it")
    return ctypes.CDLL(path, handle=_dlopen(path))


def _try(path: str, functions: Sequence[str]) -> tuple[str, int | None]:
    """Return the output of a child, "" if it could not start, and its exit code, None if it was killed as too late."""
    deadline = time.monotonic() + DEADLINE
    try:
        command = _command(path)
        child = command.start([path, *functions])
    except ChildProcessError as error:  # an earlier one hangs
        raise TimeoutError(str(error)) from None
    except (OSError, Unavailable):
        return "", 0
    words = b""
    try:
        while not (ended := child.has_exited()) and time.monotonic() < deadline:
            chunk = child.read_chunk(POLL)
            words += chunk or b""
            if chunk is None:  # it is about to end
                time.sleep(PAUSE)
        while chunk := child.read_chunk(0):
            words += chunk
        return words.decode(errors="replace"), child.code if ended else None
    except ChildProcessError as error:  # the program closed the pipe
        raise TimeoutError(str(error)) from None
    finally:
        command.stop(child)


@cache
def _command(path: str) -> Command:
    """Return the command that tries a library: while a child of it cannot be killed, there is no second one."""
    return Command(Tool(os.path.basename(path), python_executable(), arguments=("-I", "-S", "-c", _PROGRAM)))


def _dlopen(path: str) -> int:
    """Load a library. ``ctypes.CDLL(path)`` would hold the interpreter lock until it is loaded."""
    loader = ctypes.CDLL(None)
    loader.dlopen.restype, loader.dlopen.argtypes = ctypes.c_void_p, (ctypes.c_char_p, ctypes.c_int)
    loader.dlerror.restype = ctypes.c_char_p
    handle: int | None = loader.dlopen(os.fsencode(path), os.RTLD_NOW)
    if not handle:
        raise OSError((loader.dlerror() or b"").decode(errors="replace") or f"{path} cannot be loaded")
    return handle
