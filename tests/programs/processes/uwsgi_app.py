"""A WSGI application that exports at each request and answers with the PID of its worker.

It imports nothing of OpenTelemetry before the first request.

UWSGI_HOOK: it has a post-fork hook, by uWSGI's ``decorator`` or by ``attribute``, which it chains.
UWSGI_INTERVAL: milliseconds between the exports of the workers that are forked from now on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.util import application_uri

hooked: list[int] = []


def hook() -> None:
    hooked.append(os.getpid())


match os.environ.get("UWSGI_HOOK"):
    case "decorator":
        import uwsgidecorators

        uwsgidecorators.postfork(hook)
    case "attribute":
        module: Any = sys.modules["uwsgi"]
        earlier = getattr(module, "post_fork_hook", lambda: None)

        def both() -> None:
            earlier()
            hook()

        module.post_fork_hook = both

if interval := os.environ.get("UWSGI_INTERVAL"):
    for reader in sys.modules["opentelemetry.metrics"].get_meter_provider()._measurement_consumer._reader_storages:
        reader._export_interval_millis = float(interval)


def export() -> None:
    """Read the sources and export."""
    from opentelemetry.metrics import get_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider

    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

    session, provider = HardwareInstrumentor()._telemetry.session, get_meter_provider()
    assert session is not None, "the worker is not instrumented"
    assert isinstance(provider, MeterProvider)
    session.read_now(10)
    provider.force_flush()


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    assert application_uri(environ)
    export()
    start_response("200 OK", [])
    return [f"{os.getpid()} {hooked.count(os.getpid())}".encode()]
