"""A network cable that can be pulled: a TCP proxy on the loopback interface."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress


class Cable:
    """Passes connections to an address on while its block lasts.

    While it is pulled, nothing passes and nobody is told: connections stay open, as they do behind a broken switch.

    Attributes:
        address: Where it listens.
        port: Its port.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"
        self._plugged = threading.Event()
        self._plugged.set()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]

    def pull(self) -> None:
        self._plugged.clear()

    def plug(self) -> None:
        self._plugged.set()

    def __enter__(self) -> Cable:
        self._threads[0].start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        self._plugged.set()
        for thread in self._threads:
            thread.join()
        self._server.close()

    def _accept(self) -> None:
        while not self._ending.is_set():
            if select.select([self._server], [], [], 0.1)[0]:
                thread = threading.Thread(target=self._serve, args=(self._server.accept()[0],))
                self._threads.append(thread)
                thread.start()

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            self._plugged.wait()
            with socket.create_connection(self._target, 10) as far:
                to = {near: far, far: near}
                while not self._ending.is_set():
                    for end in select.select([*to], [], [], 0.1)[0]:
                        data = end.recv(65536)
                        if not data:
                            return
                        self._plugged.wait()
                        to[end].sendall(data)
