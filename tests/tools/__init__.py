"""The programs that tests run against: real ones, built or taken from Debian, and drivers for what is not there.

Every program is asked for by a function that returns its path or raises `Missing` with the reason. A test wraps the
question in `need`, which skips it on a laptop and fails it where the environment variable CI is set.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    "rocm-smi": "rocm-smi",
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


def nvitop() -> None:
    """See that PyPI's nvitop is installed; only programs of their own import it."""
    if importlib.util.find_spec("nvitop") is None:
        raise Missing("nvitop is not installed: pip install nvitop")


@dataclass(frozen=True)
class Recipe:
    """How a program is made of the sources in a folder beside this file; the path of what is made ends the command."""

    folder: str
    product: str
    command: tuple[str, ...]
    compiler: str
    environment: tuple[tuple[str, str], ...] = ()


def otelcol() -> Path:
    """The OpenTelemetry Collector of the sources in `otelcol/`, built on first use."""
    return _made(
        Recipe(
            folder="otelcol",
            product="otelcol",
            command=("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags=grpcnotrace", "-o"),
            compiler="https://go.dev/doc/install",
            environment=(("CGO_ENABLED", "0"), ("GOWORK", "off")),
        )
    )


def fake_nvml(without: tuple[str, ...] = ()) -> Path:
    """The library of `fakenvml/`, built on first use; of an old driver, `without` some of the functions."""
    # A function is taken away by another name, which nobody looks for.
    absent = [f"-D{function}=absent_{function}" for function in sorted(without)]
    return _made(
        Recipe(
            folder="fakenvml",
            product="libnvidia-ml.so.1",
            command=(
                *("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread"),
                *("-Wl,-soname,libnvidia-ml.so.1", *absent, "fakenvml.c", "-lm", "-o"),
            ),
            compiler="apt-get install gcc libc6-dev",
        )
    )


def program(name: str) -> Path:
    """A program of a Debian package named in `PACKAGES`."""
    package = PACKAGES[name]
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not installed: apt-get install {package}")
    return Path(found)


def _made(recipe: Recipe) -> Path:
    """The product of exactly the present sources, kept under `.tools/` and made once however many ask at a time."""
    outcome = _make(recipe)
    if isinstance(outcome, Missing):
        raise outcome
    return outcome


@functools.cache
def _make(recipe: Recipe) -> Path | Missing:
    # A failure is returned, not raised, so that it is remembered too and not every test waits for it anew.
    kept = BUILT / f"{recipe.folder}-{_fingerprint(recipe)}"
    product = kept / recipe.product
    if product.exists():
        return product
    if shutil.which(recipe.command[0]) is None:
        return Missing(
            f"{recipe.folder} is built from sources, and there is no {recipe.command[0]} command: {recipe.compiler}"
        )
    BUILT.mkdir(exist_ok=True)
    with _lock(BUILT / f"{recipe.folder}.lock"):
        if product.exists():
            return product
        with tempfile.TemporaryDirectory(dir=BUILT, prefix=f"{recipe.folder}-") as scratch:
            fresh = Path(scratch) / "fresh"
            fresh.mkdir()
            try:
                subprocess.run(
                    [*recipe.command, str(fresh / recipe.product)],
                    cwd=SOURCES / recipe.folder,
                    env=os.environ | dict(recipe.environment),
                    check=True,
                    timeout=BUILD_SECONDS,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
            except subprocess.CalledProcessError as failure:
                return Missing(f"building {recipe.folder} failed:\n{failure.stdout[-2000:].strip()}")
            except subprocess.TimeoutExpired:
                return Missing(f"building {recipe.folder} took more than {BUILD_SECONDS} s")
            # Renamed as a whole: another run sees either no product or a finished one.
            fresh.rename(kept)
    return product


def _fingerprint(recipe: Recipe) -> str:
    digest = hashlib.sha256("\0".join(recipe.command).encode())
    for part in sorted((SOURCES / recipe.folder).iterdir()):
        digest.update(part.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Waits for other processes that hold the same lock, and frees it even when this one is killed."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
