"""A WSGI application that answers with the PID of its worker. It imports nothing of OpenTelemetry.

UWSGI_HOOK: it has a post-fork hook, by uWSGI's ``decorator`` or by ``attribute``, which it chains.
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


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    start_response("200 OK", [])
    assert application_uri(environ)
    return [f"{os.getpid()} {hooked.count(os.getpid())}".encode()]
