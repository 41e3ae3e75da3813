"""Virtual environments of the frameworks, kept in the user's cache, and this package beside them."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import requires
from pathlib import Path

from tests.support.children import ROOT
from tests.tools import BUILT, Missing, lock

FOLDER = BUILT / "frameworks"
OURS = "opentelemetry-instrumentation-hardware"

INSTALL_SECONDS = 1800  # seconds after which an installation counts as hung


def python_of(minimum: tuple[int, int]) -> Path:
    """Return this Python, or where it is too old, an installed one of exactly the minimum version.

    Raises:
        Missing: There is none.
    """
    if sys.version_info >= minimum:
        return Path(sys.executable)
    name = f"{minimum[0]}.{minimum[1]}"
    pyenv = Path.home().glob(f".pyenv/versions/{name}.*/bin/python")
    for path in filter(None, [shutil.which(f"python{name}"), *map(str, sorted(pyenv))]):
        # pyenv also has commands for versions that are not installed.
        line = [path, "-c", "import sys; print(sys.version_info[:2])"]
        if subprocess.run(line, check=False, capture_output=True, text=True).stdout.strip() == str(minimum):
            return Path(path)
    raise Missing(f"it needs Python {name} or newer, and no {name} was found")


def environment(packages: Sequence[str], minimum: tuple[int, int], progress: Callable[[str], None]) -> Path:
    """Return a virtual environment with these packages and what this package depends on, but not this package.

    It is made once for the same packages and Python. To get newer versions, delete its folder.

    Raises:
        Missing: There is no Python for it, or the installation failed.
    """
    python = python_of(minimum)
    wanted = [*packages, *(each for each in requires(OURS) or () if "extra ==" not in each)]
    folder = FOLDER / hashlib.sha256("\0".join([str(python.resolve()), *wanted]).encode()).hexdigest()[:16]
    is_complete = folder / "complete"
    FOLDER.mkdir(parents=True, exist_ok=True)
    with lock(folder.with_suffix(".lock"), progress):
        if not is_complete.exists():
            progress(f"installing {' '.join(packages)}")
            shutil.rmtree(folder, ignore_errors=True)  # of an installation that was interrupted
            if uv := _uv():
                _run([uv, "venv", "--quiet", "--python", str(python), str(folder)])
            else:
                _run([str(python), "-m", "venv", str(folder)])
            _run([*_install(folder / "bin" / "python"), *wanted])
            is_complete.touch()
    return folder


def install_ours(folder: Path) -> None:
    """Install this package alone, as it is in the working tree, to a folder for PYTHONPATH."""
    _run([*_install(Path(sys.executable)), "--no-deps", "--target", str(folder), str(ROOT)])


def version_of(environment: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return _run([str(environment / "bin" / "python"), "-c", code]).strip()


def _uv() -> str | None:
    return shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))


def _install(python: Path) -> list[str]:
    if uv := _uv():
        return [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python)]
    return [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def _run(line: list[str]) -> str:
    what = " ".join(line[:3])
    try:
        return subprocess.run(line, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS).stdout
    except subprocess.TimeoutExpired:
        raise Missing(f"{what} took more than {INSTALL_SECONDS} s") from None
    except subprocess.CalledProcessError as error:
        raise Missing(f"{what} failed: {error.stderr.strip()[-2000:]}") from None
