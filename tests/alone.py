"""Tests that need the machine to themselves, in a suite that runs in parallel workers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Turns:
    """A lock that the workers of one run share: any number of ordinary tests hold it, or one that runs alone.

    The lock is not fair, so a test that waits to run alone does so until the other workers have no tests left. The
    collection puts such tests last.
    """

    def __init__(self, file: IO[bytes] | None) -> None:
        self._file = file

    @classmethod
    def of_worker(cls, config: pytest.Config) -> Turns:
        """The lock of a worker's run; without workers there is nothing to wait for."""
        run = getattr(config, "workerinput", {}).get("testrunuid")
        if run is None or fcntl is None:
            return cls(None)
        return cls((Path(tempfile.gettempdir()) / f"pytest-turns-{run}").open("wb"))

    def close(self) -> None:
        """Remove the lock; workers that still run have it open."""
        if self._file is not None:
            Path(self._file.name).unlink(missing_ok=True)
            self._file.close()

    @contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Hold the lock for one test."""
        if self._file is None:
            yield
            return
        fcntl.flock(self._file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            # Unlocked by name: a forked child that still lives has the same open file.
            fcntl.flock(self._file, fcntl.LOCK_UN)
