"""A configuration of gunicorn with the hooks that instrument its workers."""

from __future__ import annotations

from typing import Any

from tests.slow.launchers.apps.role import instrument_after_fork, present


def when_ready(server: Any) -> None:
    """Announce the master."""
    present("parent")


def post_fork(server: Any, worker: Any) -> None:
    """Instrument a worker."""
    present("worker")
    instrument_after_fork()
