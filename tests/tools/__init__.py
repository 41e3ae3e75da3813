"""The programs that tests run against: real ones, built from pinned sources or taken from Debian.

Every program is asked for by a function that returns its path or raises `Missing` with the reason. A test wraps the
question in `need`, which skips it on a laptop and fails it where the environment variable CI is set.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent
BUILT = ROOT / ".tools"

# A cold build on two cores takes about two minutes, and a slow network can add several to that.
BUILD_SECONDS = 1800

# The Debian package that brings each program.
PACKAGES = {
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "prometheus-node-exporter": "prometheus-node-exporter",
}


class Missing(Exception):  # noqa: N818 - a state of the machine, not an error
    """A program cannot be had on this machine; the text says why, and what would help."""


def need(get: Callable[[], T]) -> T:
    """What `get` returns; where that is missing, the running test is skipped, or fails if CI is set."""
    import pytest

    try:
        return get()
    except Missing as missing:
        if os.environ.get("CI"):
            raise pytest.fail.Exception(str(missing), pytrace=False) from None
        raise pytest.skip.Exception(str(missing)) from None


def otelcol() -> Path:
    """The OpenTelemetry Collector of the sources in `otelcol/`, built on first use."""
    return _compiled("otelcol")


def program(name: str) -> Path:
    """A program of a Debian package named in `PACKAGES`."""
    package = PACKAGES[name]
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed: apt-get install {package}")
    return Path(found)


def _compiled(name: str) -> Path:
    """The binary for exactly the present sources, kept under `.tools/` and built once however many ask at a time."""
    outcome = _compile(name)
    if isinstance(outcome, Missing):
        raise outcome
    return outcome


@functools.cache
def _compile(name: str) -> Path | Missing:
    # A failure is returned, not raised, so that it is remembered too and not every test waits for it anew.
    source = SOURCES / name
    kept = BUILT / f"{name}-{_fingerprint(source)}"
    binary = kept / name
    if binary.exists():
        return binary
    go = shutil.which("go")
    if go is None:
        return Missing(f"{name} is built from Go sources, and there is no go command: https://go.dev/doc/install")
    BUILT.mkdir(exist_ok=True)
    with _lock(BUILT / f"{name}.lock"):
        if binary.exists():
            return binary
        with tempfile.TemporaryDirectory(dir=BUILT, prefix=f"{name}-") as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags=grpcnotrace"]
            command += ["-o", str(fresh / name), "."]
            environment = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"}
            try:
                subprocess.run(
                    command,
                    cwd=source,
                    env=environment,
                    check=True,
                    timeout=BUILD_SECONDS,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
            except subprocess.CalledProcessError as failure:
                return Missing(f"building {name} failed:\n{failure.stdout[-2000:].strip()}")
            except subprocess.TimeoutExpired:
                return Missing(f"building {name} took more than {BUILD_SECONDS} s")
            # Renamed as a whole: another run sees either no binary or a finished one.
            fresh.rename(kept)
    return binary


def _fingerprint(source: Path) -> str:
    digest = hashlib.sha256()
    for part in ("go.mod", "go.sum", "main.go"):
        digest.update((source / part).read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Waits for other processes that hold the same lock, and frees it even when this one is killed."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
