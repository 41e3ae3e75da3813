"""A server that answers OpenAI's chat completions after a fixed time, with the same text and usage.

A streamed answer comes in pieces that take as long together.
"""

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

_PIECE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "stub"}
_PIECES = [
    *({**_PIECE, "choices": [{"index": 0, "delta": {"content": each}, "finish_reason": None}]} for each in "four"),
    {**_PIECE, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {**_PIECE, "choices": [], "usage": _ANSWER["usage"]},
]


class OpenAiStub(Served):
    """The server while its block lasts. All other paths answer 404."""

    def __init__(self) -> None:
        class Handler(Quiet, BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with suppress(ConnectionError):  # the client has ended
                    if self.path != "/v1/chat/completions":
                        page('{"error": {"message": "unknown"}}', "application/json", 404)(self)
                    elif json.loads(asked).get("stream"):
                        self.stream()
                    else:
                        time.sleep(SECONDS)
                        page(json.dumps(_ANSWER), "application/json")(self)

            def stream(self) -> None:
                self.close_connection = True
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for piece in map(json.dumps, _PIECES):
                    time.sleep(SECONDS / len(_PIECES))
                    self.wfile.write(f"data: {piece}\n\n".encode())
                self.wfile.write(b"data: [DONE]\n\n")

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True  # clients keep their connections
        super().__init__(server)

    @property
    def url(self) -> str:
        """The value of `OPENAI_BASE_URL`."""
        return f"http://127.0.0.1:{self.port}/v1"
