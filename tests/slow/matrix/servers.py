"""TCP servers that misbehave, one thread per connection."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Handler = Callable[[socket.socket], None]  # answers one connection; OSError and its end close it


def until_closed(connection: socket.socket) -> None:
    """Read until the other side closes the connection."""
    while connection.recv(65536):
        pass


def request(connection: socket.socket) -> bytes:
    """Read an HTTP request with its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = connection.recv(65536)
        if not chunk:
            raise OSError("closed")
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while lengths and len(body) < lengths[0]:
        body += connection.recv(65536)
    return head


@contextmanager
def server(handle: Handler) -> Iterator[int]:
    """Run a server on a free port of the loopback interface, and yield the port."""

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.settimeout(60)
            with suppress(OSError, ValueError):
                handle(self.request)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

        def handle_error(self, *arguments: object) -> None:
            pass

    with Server(("127.0.0.1", 0), Connection) as made:
        made._threads = socketserver._NoThreads()  # type: ignore[attr-defined]
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield made.server_address[1]
        finally:
            made.shutdown()
            thread.join()


@contextmanager
def refused() -> Iterator[int]:
    """Yield a port on which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@contextmanager
def not_accepted() -> Iterator[int]:
    """Yield a port whose queue of connections is full: the kernel drops further ones."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listener.getsockname())
            fillers.append(filler)
        yield listener.getsockname()[1]
        for filler in fillers:
            filler.close()
