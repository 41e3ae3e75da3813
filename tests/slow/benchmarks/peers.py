"""Other tools that measure the energy of a block of code, in a virtual environment of their own.

``python -m tests.slow.benchmarks.peers`` installs them (500 MB), with pip from the package index that it is set up for.
Nothing else does: without them the benchmark has only our figures.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from pathlib import Path

from tests.tools import BUILT, Missing

REQUIREMENTS = ("zeus==0.16.0", "codecarbon==3.3.2")  # zeus was `zeus-ml` before its version 0.12

_KEY = hashlib.sha256("\0".join([sys.version, sys.executable, *REQUIREMENTS]).encode()).hexdigest()[:16]
_FOLDER = BUILT / f"peers-{_KEY}"
_DONE = _FOLDER / "installed"


def python() -> Path:
    """Return the interpreter that has the tools.

    Raises:
        Missing: They are not installed.
    """
    if not _DONE.exists():
        raise Missing(f"{', '.join(REQUIREMENTS)} are not installed: python -m {__name__}")
    return _FOLDER / "bin" / "python"


def install() -> Path:
    """Install the tools, and return their interpreter.

    Raises:
        Missing: There is no place for them, or pip fails.
    """
    if not _DONE.exists():
        try:
            venv.create(_FOLDER, clear=True, with_pip=True)
            subprocess.run([_FOLDER / "bin" / "python", "-m", "pip", "install", "-q", *REQUIREMENTS], check=True)
            _DONE.touch()
        except (OSError, subprocess.CalledProcessError) as error:
            raise Missing(f"{', '.join(REQUIREMENTS)} cannot be installed in {_FOLDER}: {error}") from error
    return python()


if __name__ == "__main__":
    try:
        print(install())
    except Missing as reason:
        sys.exit(str(reason))
