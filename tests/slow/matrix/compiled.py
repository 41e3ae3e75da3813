"""Small libraries in C, compiled once per run of the matrix."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Final

from tests.tools import Missing

_HEADERS: Final = (
    "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <fcntl.h>\n#include <pthread.h>\n#include <semaphore.h>\n"
    "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <sys/stat.h>\n"
    "#include <sys/time.h>\n#include <time.h>\n#include <unistd.h>\n"
)
_LOCK: Final = threading.Lock()


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="matrix-libraries-")


@functools.cache
def _compiled(source: str) -> Path:
    path = Path(_folder().name) / f"library{len(list(Path(_folder().name).iterdir()))}.so"
    line = ["gcc", "-shared", "-fPIC", "-O1", "-w", "-x", "c", "-", "-o", str(path), "-ldl", "-pthread"]
    subprocess.run(line, input=_HEADERS + source, text=True, check=True, timeout=60)
    return path


def library(source: str) -> Path:
    """Return a shared library made from C code.

    Raises:
        Missing: There is no compiler.
    """
    if shutil.which("gcc") is None:
        raise Missing("no gcc command to build a library with: apt-get install gcc libc6-dev")
    with _LOCK:
        return _compiled(source)
