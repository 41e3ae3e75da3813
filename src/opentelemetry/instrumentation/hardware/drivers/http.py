"""Http: a page that is fetched again and again, and can neither hold us up nor flood us.

The standard library's ``http.client`` is used as it is, below what tracing instruments: a scrape is no span of the
program's. No proxy is asked, and a redirection is followed on the same server only, so that headers and tokens go
nowhere else.
"""

from __future__ import annotations

import io
import os
import socket
import ssl
import time
import zlib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final, cast
from urllib.parse import SplitResult, urljoin, urlsplit

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.version import __version__

_CHUNK: Final = 1 << 16
_HOPS: Final = 3
_MOVED: Final = (301, 302, 303, 307, 308)


@dataclass(frozen=True)
class Address:
    """Where a page is, what is sent along, and how much of it may come.

    Attributes:
        url: http or https.
        accept: the formats that are understood.
        headers: more to send along.
        token_file: the file of a bearer token, read anew each time.
        ca_file: authorities instead of the system's.
        cert_file: our own certificate.
        key_file: its key, where that is not in the same file.
        seconds: that it may take, all in all; looking up the host's name comes on top.
        most: bytes of the page, unpacked.
    """

    url: str = field(repr=False)  # its query or user may be secret
    accept: str = "*/*"
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    seconds: float = 5.0
    most: int = 10 << 20


class Http:
    """A page at an address."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._url = urlsplit(address.url)
        self._context: ssl.SSLContext | None = None
        self._files: list[float] = []

    def get(self) -> dict[str, Any]:
        """Fetch it.

        Returns:
            ``type``: what the server calls it; ``body``: its bytes, unpacked; ``seconds``: what it took.

        Raises:
            TimeoutError: it was not there in time.
            DriverError: the server has another answer, or the page is longer than it may be.
            OSError: the server cannot be reached.
        """
        begun = time.monotonic()
        line = _Line(begun + self._address.seconds)
        url = self._url
        for _ in range(_HOPS):
            try:
                kind, body, moved = self._fetch(url, line)
            except (HTTPException, UnicodeError) as error:
                raise DriverError(0, f"it does not speak HTTP ({type(error).__name__})") from None
            if moved is None:
                return {"type": kind, "body": body, "seconds": round(time.monotonic() - begun, 6)}
            url = urlsplit(urljoin(url.geturl(), moved))
            if (url.scheme, url.netloc) != (self._url.scheme, self._url.netloc):
                raise DriverError(0, "it redirects to another server, which is not followed: name that one")
        raise DriverError(0, "it redirects again and again")

    def _fetch(self, url: SplitResult, line: _Line) -> tuple[str, bytes, str | None]:
        """The page, or where it has moved to."""
        host, secure = url.hostname or "", url.scheme == "https"
        port = url.port or (443 if secure else 80)
        with closing(socket.create_connection((host, port), line.left())) as plain:
            plain.settimeout(line.left())
            line.socket = self._secured(plain, host) if secure else plain
            with closing(line.socket):
                connection = HTTPConnection(host, port)
                connection.sock = line
                connection.putrequest("GET", (url.path or "/") + (f"?{url.query}" if url.query else ""), True, True)
                for name, value in self._headers(url).items():
                    connection.putheader(name, value)
                connection.endheaders()
                with closing(connection.getresponse()) as response:
                    if response.status in _MOVED and response.headers["Location"]:
                        return "", b"", response.headers["Location"]
                    if response.status != 200:
                        raise DriverError(response.status, f"it answers HTTP {response.status}")
                    return response.headers["Content-Type"] or "", self._body(response), None

    def _headers(self, url: SplitResult) -> dict[str, str]:
        address = self._address
        found = {
            "Host": url.netloc,
            "User-Agent": f"opentelemetry-instrumentation-hardware/{__version__}",
            "Accept": address.accept,
            "Accept-Encoding": "gzip",
            "X-Prometheus-Scrape-Timeout-Seconds": f"{address.seconds:g}",
            "Connection": "close",
        }
        if address.token_file:
            found["Authorization"] = f"Bearer {self._token()}"
        given = {name.lower() for name in address.headers}
        return {**{name: value for name, value in found.items() if name.lower() not in given}, **address.headers}

    def _token(self) -> str:
        path = self._address.token_file
        try:
            with open(path, encoding="ascii") as file:
                token = file.read(_CHUNK).strip()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no token"
            raise DriverError(0, f"the token in {path} cannot be read: {why}") from None
        if not token or not token.isprintable() or " " in token:
            raise DriverError(0, f"the token in {path} cannot be read: it is no token")
        return token

    def _secured(self, plain: socket.socket, host: str) -> socket.socket:
        """The same connection, encrypted; certificates that were renewed are read anew."""
        address = self._address
        try:
            files = [os.stat(path).st_mtime for path in (address.ca_file, address.cert_file, address.key_file) if path]
            if self._context is None or files != self._files:
                context = ssl.create_default_context(cafile=address.ca_file or None)
                if address.cert_file:
                    context.load_cert_chain(address.cert_file, address.key_file or None, "")
                self._context, self._files = context, files
            return self._context.wrap_socket(plain, server_hostname=host)
        except TimeoutError:
            raise
        except ssl.SSLCertVerificationError as error:
            raise DriverError(0, f"its certificate is not trusted: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise DriverError(0, f"TLS fails: {error.reason or 'a certificate or key cannot be used'}") from None

    def _body(self, response: HTTPResponse) -> bytes:
        """The whole page, unpacked piece by piece, so that a small packet cannot become a large one."""
        coding = (response.headers["Content-Encoding"] or "").strip().lower()
        if coding not in ("", "identity", "gzip"):
            raise DriverError(0, f"it packs the page in a way that was not asked for ({coding[:20]})")
        packed = zlib.decompressobj(31) if coding == "gzip" else None
        most = self._address.most
        body = bytearray()
        while piece := response.read1(_CHUNK):
            while piece:
                try:
                    body += packed.decompress(piece, _CHUNK) if packed else piece
                except zlib.error:
                    raise DriverError(0, "its page is packed wrongly") from None
                piece = packed.unconsumed_tail if packed else b""
                if len(body) > most:
                    raise DriverError(0, f"its page is longer than {most} bytes")
        if packed is not None and not packed.eof:
            raise DriverError(0, "its page ends in the middle")
        if response.length:
            raise DriverError(0, "its page ends in the middle")
        return bytes(body)


class _Line(io.RawIOBase):
    """A connection with one deadline for all that goes over it, however slowly it drips."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self.socket = cast(socket.socket, None)

    def left(self) -> float:
        """Seconds until the deadline.

        Raises:
            TimeoutError: it has passed.
        """
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("it did not answer in time")
        return left

    def sendall(self, data: bytes) -> None:
        """Send."""
        self.socket.settimeout(self.left())
        self.socket.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """What a response is read from."""
        return io.BufferedReader(_Line.of(self))

    @classmethod
    def of(cls, line: _Line) -> _Line:
        """Another end of the same connection: closing it closes nothing else."""
        found = cls(line._deadline)
        found.socket = line.socket
        return found

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Receive what has come."""
        self.socket.settimeout(self.left())
        return self.socket.recv_into(buffer)
