"""A configuration of gunicorn that instruments only its workers: nothing of OpenTelemetry is in the master."""

from __future__ import annotations

from typing import Any

from tests.slow.launchers.apps.role import present


def post_fork(server: Any, worker: Any) -> None:
    """Configure OpenTelemetry in a worker."""
    from opentelemetry.instrumentation import auto_instrumentation

    auto_instrumentation.initialize()
    present("worker")
