"""A Celery application on the memory transport."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_process_init, worker_ready
from tests.slow.launchers.apps.role import instrument_after_fork, present

app = Celery("tasks", broker="memory://")


@worker_ready.connect  # type: ignore[untyped-decorator] # Celery has no types
def ready(**_: object) -> None:
    """Announce the parent."""
    present("parent")


@worker_process_init.connect  # type: ignore[untyped-decorator]
def child(**_: object) -> None:
    """Instrument a worker."""
    present("worker")
    if os.environ.get("LAUNCHED_HOOK"):
        instrument_after_fork()
