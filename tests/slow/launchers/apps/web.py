"""A WSGI and an ASGI application. The worker that loads it is a worker of the server."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from tests.slow.launchers.apps.role import present

if not os.environ.get("LAUNCHED_PRELOAD"):
    present("worker")


def wsgi(environ: MutableMapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer with the PID."""
    start_response("200 OK", [])
    return [str(os.getpid()).encode()]


async def asgi(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """Answer with the PID."""
    assert scope["type"] == "http"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(os.getpid()).encode()})
