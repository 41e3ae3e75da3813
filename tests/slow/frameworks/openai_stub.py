"""A server that answers OpenAI's chat completions after a fixed time, with the same text and usage."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.web import Quiet, Served, page

SECONDS = 0.6  # how long an answer takes

_ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "stub",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "four"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 20, "completion_tokens": 40, "total_tokens": 60},
}


class OpenAiStub(Served):
    """The server while its block lasts. All other paths answer 404."""

    def __init__(self) -> None:
        class Handler(Quiet, BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                is_known = self.path == "/v1/chat/completions"
                if is_known:
                    time.sleep(SECONDS)
                answer = json.dumps(_ANSWER if is_known else {"error": {"message": "unknown"}}).encode()
                with suppress(ConnectionError):  # the client has ended
                    page(answer, "application/json", 200 if is_known else 404)(self)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True  # clients keep their connections
        super().__init__(server)

    @property
    def url(self) -> str:
        """The value of `OPENAI_BASE_URL`."""
        return f"http://127.0.0.1:{self.port}/v1"
