"""Fetch a page over HTTP within a deadline and a size limit.

Only methods of ``http.client`` that HTTP instrumentations do not patch are called, so a scrape creates no span.
Proxies are ignored. Redirects are followed only on the same server, so headers and tokens are never sent to another.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
import zlib
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final, cast
from urllib.parse import SplitResult, urljoin, urlsplit

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.settings.endpoints import Endpoint
from opentelemetry.instrumentation.hardware.version import __version__

_CHUNK: Final = 1 << 16
_REDIRECTS: Final = 2

_HEAD: Final = 1 << 16  # maximum bytes that are received before the body

# Bytes that are read at once with the header. The default of Python 3.14 is longer than ``_HEAD``.
_BUFFER: Final = 1 << 13

# Characters of the Content-Type that are kept: more than a media type and its parameters have.
_TYPE: Final = 256

_PIECES: Final = 10_000  # pieces that a page may come in,
_PIECE: Final = 64  # and bytes that each further piece must have on average

_PAUSE: Final = 1e-4  # seconds for which the interpreter lock is released,
_PIECES_PER_PAUSE: Final = 20  # after this number of pieces

_REDIRECT_CODES: Final = (301, 302, 303, 307, 308)


class _FloodError(DriverError):
    """The response takes more CPU time than a page does."""


class Http:
    """Fetches the page of an endpoint. A server that floods is not contacted for one to ten minutes.

    The deadline holds for the whole call, but a lookup of the host name that takes longer is not interrupted.
    """

    def __init__(self, endpoint: Endpoint, accept: str = "*/*") -> None:
        self._endpoint = endpoint
        self._accept = accept
        self._url = urlsplit(endpoint.url)
        self._backoff = Backoff(60.0, 600.0)

    def get(self) -> dict[str, Any]:
        """Fetch the page.

        Returns:
            ``type``: the Content-Type; ``body``: the uncompressed bytes; ``complete``: whether it has the length or the
            last chunk that the server gave; ``seconds``: the duration.

        Raises:
            TimeoutError: The deadline passed.
            DriverError: The response is an error, invalid or too long, or a token or certificate file is invalid.
            OSError: The server cannot be reached.
        """
        start = time.monotonic()
        if self._backoff.is_waiting(start):
            raise DriverError(0, f"{self._backoff.reason}; retry in {self._backoff.retry_at - start:.0f} s")
        deadline = start + self._endpoint.timeout
        url = self._url
        for _ in range(1 + _REDIRECTS):
            try:
                response, body = self._fetch(url, deadline)
            except (HTTPException, UnicodeError) as error:
                raise DriverError(0, f"invalid HTTP response ({type(error).__name__})") from None
            except _FloodError as flood:
                self._backoff.fail(time.monotonic(), flood.text)
                raise
            if body is not None:
                self._backoff.succeed()
                kind = (response.headers["Content-Type"] or "")[:_TYPE]
                complete = response.chunked or response.length is not None
                seconds = round(time.monotonic() - start, 6)
                return {"type": kind, "body": body, "complete": complete, "seconds": seconds}
            url = urlsplit(urljoin(url.geturl(), response.headers["Location"]))
            if _server(url) != _server(self._url):
                raise DriverError(0, "redirect to another server is not followed; set url to that server's address")
        raise DriverError(0, f"more than {_REDIRECTS} redirects")

    def _fetch(self, url: SplitResult, deadline: float) -> tuple[HTTPResponse, bytes | None]:
        """Return response and body; None for the body of a redirect."""
        scheme, host, port = _server(url)
        headers = self._headers(url)
        with closing(_connected(host, port, deadline)) as plain:
            plain.settimeout(_left(deadline))
            with closing(self._encrypted(plain, host) if scheme == "https" else plain) as connected:
                connection = HTTPConnection(host, port)
                limited = _Limited(connected, deadline, _HEAD)
                connection.sock = cast(socket.socket, limited)
                connection.putrequest("GET", (url.path or "/") + (f"?{url.query}" if url.query else ""), True, True)
                for name, value in headers.items():
                    connection.putheader(name, value)
                connection.endheaders()
                with closing(connection.getresponse()) as response:
                    limited.left = None
                    if response.status in _REDIRECT_CODES and response.headers["Location"]:
                        return response, None
                    if response.status != 200:
                        raise DriverError(response.status, f"HTTP status {response.status}")
                    return response, self._body(response)

    def _headers(self, url: SplitResult) -> dict[str, str]:
        endpoint = self._endpoint
        defaults = {
            "Host": url.netloc,
            "User-Agent": f"opentelemetry-instrumentation-hardware/{__version__}",
            "Accept": self._accept,
            "Accept-Encoding": "gzip",
            "X-Prometheus-Scrape-Timeout-Seconds": f"{endpoint.timeout:g}",
            "Connection": "close",
        }
        if endpoint.bearer_token_file:
            defaults["Authorization"] = f"Bearer {_token(endpoint.bearer_token_file)}"
        given = {name.lower() for name in endpoint.headers}
        return {**{name: value for name, value in defaults.items() if name.lower() not in given}, **endpoint.headers}

    def _encrypted(self, plain: socket.socket, host: str) -> socket.socket:
        """Return a TLS connection. The certificate files are read each time, because they may be renewed."""
        endpoint = self._endpoint
        try:
            try:
                context = ssl.create_default_context(cafile=endpoint.ca_file or None)
                if endpoint.cert_file:
                    context.load_cert_chain(endpoint.cert_file, endpoint.key_file or None, "")
            except (FileNotFoundError, PermissionError) as error:  # without the name of the file
                files = ", ".join(filter(None, (endpoint.ca_file, endpoint.cert_file, endpoint.key_file)))
                raise DriverError(0, f"cannot read the certificates ({files}): {error.strerror}") from None
            return context.wrap_socket(plain, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise DriverError(0, f"certificate is not trusted: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise DriverError(0, f"TLS error: {error.reason or 'invalid certificate or key file'}") from None

    def _body(self, response: HTTPResponse) -> bytes:
        """Return the whole page. It is decompressed in chunks, so a decompression bomb stops at the size limit."""
        coding = (response.headers["Content-Encoding"] or "").strip().lower()
        if coding not in ("", "identity", "gzip"):
            raise DriverError(0, f"unsupported Content-Encoding: {coding[:20]}")
        gzip = zlib.decompressobj(31) if coding == "gzip" else None
        body, received, limit = bytearray(), 0, self._endpoint.max_bytes
        pieces = 0
        while chunk := response.read1(_CHUNK):
            received += len(chunk)
            pieces += 1
            if pieces > _PIECES + received // _PIECE:
                raise _FloodError(0, "the page comes in pieces of a few bytes")
            if pieces % _PIECES_PER_PAUSE == 0:
                time.sleep(_PAUSE)
            while chunk:
                if gzip and gzip.eof:  # the data has several members
                    gzip = zlib.decompressobj(31)
                try:
                    body += gzip.decompress(chunk, _CHUNK) if gzip else chunk
                except zlib.error:
                    raise DriverError(0, "invalid gzip data") from None
                chunk = gzip.unconsumed_tail or gzip.unused_data if gzip else b""
                if max(received, len(body)) > limit:
                    raise DriverError(0, f"the page is longer than {limit} bytes; raise max_bytes of the endpoint")
        if response.length or (gzip is not None and not gzip.eof):
            raise DriverError(0, "the page is truncated")
        return bytes(body)


def _server(url: SplitResult) -> tuple[str, str, int]:
    """Scheme, host in lower case and port: a server may leave out the default port in a redirect."""
    return url.scheme, url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def _token(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(_CHUNK).strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not ASCII"
        raise DriverError(0, f"cannot read the token file {path}: {reason}") from None
    if not token or not token.isprintable() or " " in token:
        raise DriverError(0, f"cannot read the token file {path}: file does not contain a single token")
    return token


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


def _connected(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first address of the host that accepts. All addresses share the remaining time.

    ``socket.create_connection`` would give each address the whole timeout.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for number, (family, kind, protocol, _, address) in enumerate(addresses):
        try:
            connection = socket.socket(family, kind, protocol)
            try:
                connection.settimeout(_left(deadline) / (len(addresses) - number))
                connection.connect(address)
            except OSError:
                connection.close()
                raise
            return connection
        except OSError:
            if number + 1 == len(addresses):
                raise
    raise OSError(f"{host} has no address")


class _Limited(io.RawIOBase):
    """A socket for HTTPConnection with one deadline for all calls, so that a trickle of bytes times out as well.

    Attributes:
        left: Bytes that may still be received; None: any number.
    """

    def __init__(self, connection: socket.socket, deadline: float, left: int) -> None:
        self.left: int | None = left
        self._connection = connection
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._connection.settimeout(_left(self._deadline))
        self._connection.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, _BUFFER)

    def close(self) -> None:
        """Do nothing: the connection is closed by its owner."""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._deadline))
        received = self._connection.recv_into(buffer)
        if self.left is not None:
            self.left -= received
            if self.left < 0:
                raise _FloodError(0, f"the header of the response is longer than {_HEAD >> 10} KiB")
            time.sleep(_PAUSE)
        return received
