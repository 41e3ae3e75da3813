"""Small web servers on the loopback interface: one with answers defined by the test, and what others are made of."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

Answer = Callable[[BaseHTTPRequestHandler], None]

_HANDSHAKE = b"\x16"  # the first byte that a TLS client sends


def page(body: bytes | str, kind: str = "text/plain; version=0.0.4", status: int = 200, **headers: str) -> Answer:
    """Return an answer with a body. Keyword arguments are headers: `Content_Encoding="gzip"`."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        content = body.encode() if isinstance(body, str) else body
        request.send_response(status)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(content)))
        for name, value in headers.items():
            request.send_header(name.replace("_", "-"), value)
        request.end_headers()
        request.wfile.write(content)

    return answer


class Quiet:
    """A base of handlers that log no requests."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002
        pass


class Served:
    """A server on the loopback interface, in a thread of its own while the `with` block lasts."""

    def __init__(self, server: HTTPServer) -> None:
        self._server = server
        self.port = server.server_port
        self._thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Web(Served):
    """The server. `answer` can be replaced at any time; `requests` contains path and headers of all requests.

    Args:
        answer: Returns the answer to a request.
        context: The TLS context with the server's certificate. Unencrypted requests are answered on the same port.
    """

    def __init__(self, answer: Answer, context: ssl.SSLContext | None = None) -> None:
        web = self
        self.answer = answer
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.closing = threading.Event()

        class Handler(Quiet, BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                web.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                with suppress(OSError):  # the client has closed the connection
                    web.answer(self)
                self.close_connection = True

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def get_request(self) -> tuple[socket.socket, Any]:
                connection, address = super().get_request()
                if context is not None and connection.recv(1, socket.MSG_PEEK) == _HANDSHAKE:
                    connection = context.wrap_socket(connection, server_side=True)
                return connection, address

            def handle_error(self, request: object, client_address: object) -> None:
                pass

        super().__init__(Server(("127.0.0.1", 0), Handler))
        scheme = "http" if context is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.port}/metrics"

    def __exit__(self, *exception: object) -> None:
        self.closing.set()
        super().__exit__(*exception)
