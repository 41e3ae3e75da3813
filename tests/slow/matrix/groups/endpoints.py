"""Scraped endpoints that hang, flood, lie or answer garbage."""

from __future__ import annotations

import gzip
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.slow.matrix import servers
from tests.slow.matrix.case import AGENT, ESCAPES, Case, Run, Surroundings
from tests.slow.matrix.servers import Handler, request, until_closed

_TYPE: Final = b"Content-Type: text/plain; version=0.0.4\r\n"


def _answer(body: bytes, *headers: bytes, status: bytes = b"200 OK", length: bytes | None = None) -> Handler:
    size = str(len(body)).encode() if length is None else length
    head = b"HTTP/1.1 " + status + b"\r\n" + _TYPE + b"".join(each + b"\r\n" for each in headers)
    text = head + (b"Content-Length: " + size + b"\r\n" if size else b"") + b"Connection: close\r\n\r\n" + body

    def handle(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(text)

    return handle


def _endless(first: bytes, more: bytes, pause: float = 0.0) -> Handler:
    def handle(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(first)
        while True:
            connection.sendall(more)
            if pause:
                time.sleep(pause)

    return handle


def _silent_after(text: bytes) -> Handler:
    def handle(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(text)
        until_closed(connection)

    return handle


def _answer_part(text: bytes) -> Handler:
    def handle(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(text)

    return handle


def _reset(connection: socket.socket) -> None:
    request(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


_OK: Final = b"HTTP/1.1 200 OK\r\n" + _TYPE
_PAGE: Final = b"# TYPE page_value gauge\npage_value 1\n"
_CHUNKED: Final = _OK + b"Transfer-Encoding: chunked\r\n\r\n"

_ODD: Final = ESCAPES.encode()
_ESCAPES: Final[Mapping[str, Handler]] = {
    "escapes-in-label": _answer(b'page_value{a="' + _ODD + b'",b="' + _ODD + b'\\n"} 1\npage_value{a="b"} 2\n'),
    "escapes-in-name": _answer(_ODD + b"{ 1\n# TYPE " + _ODD + b' gauge\n{"' + _ODD + b'"} z\n'),
    "escapes-in-help": _answer(b"# HELP page_value " + _ODD + b"\n# UNIT page_value " + _ODD + b"\n" + _PAGE),
    "escapes-in-reason": _answer(b"", status=b"500 " + _ODD),
    "escapes-in-location": _answer(b"", b"Location: http://x/" + _ODD, status=b"302 Found"),
    "escapes-in-type": _answer(b"<html>", b"Content-Type: text/html" + _ODD),
    "escapes-in-encoding": _answer(_PAGE, b"Content-Encoding: " + _ODD),
    "escapes-in-status": _answer(_PAGE, status=_ODD),
}
_HANDLERS: Final[Mapping[str, Handler]] = {
    "works": _answer(_PAGE),
    "hangs-at-accept": until_closed,
    "hangs-after-status": _silent_after(b"HTTP/1.1 200 OK\r\n"),
    "hangs-in-body": _silent_after(_OK + b"Content-Length: 1000\r\n\r\npage_value 1\n"),
    "closes-at-once": lambda connection: connection.close(),
    "closes-in-headers": _answer_part(_OK),
    "closes-in-body": _answer(_PAGE, length=b"5000"),
    "resets": _reset,
    "drips-headers": _endless(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.2),
    "drips-body": _endless(_OK + b"\r\n", b"#", 0.2),
    "endless-body": _endless(_OK + b"\r\n", b"page_value 1\n" * 5000),
    "endless-line": _endless(_OK + b"\r\n", b"x" * 65536),
    "endless-headers": _endless(_OK, b"X-Header: value\r\n" * 1000),
    "endless-continue": _endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "endless-chunks": _endless(_CHUNKED, b"1\r\n#\r\n" * 5000),
    "tiny-chunks-drip": _endless(_CHUNKED, b"1\r\n#\r\n", 0.05),
    "chunk-huge": _silent_after(_CHUNKED + b"ffffffffffffffff\r\n"),
    "chunk-negative": _silent_after(_CHUNKED + b"-5\r\nabc\r\n"),
    "chunk-extension": _endless(_CHUNKED + b"1;", b"x" * 65536),
    "length-negative": _answer(_PAGE, length=b"-1"),
    "length-no-number": _answer(_PAGE, length=b"many"),
    "length-short": _answer(_PAGE, length=b"5"),
    "length-huge": _answer(_PAGE, length=b"9" * 40),
    "two-lengths": _answer(_PAGE, b"Content-Length: 3"),
    "redirect": _answer(b"", b"Location: http://127.0.0.1:9/metrics", status=b"302 Found"),
    "redirect-to-itself": _answer(b"", b"Location: /metrics", status=b"301 Moved"),
    "redirect-to-file": _answer(b"", b"Location: file:///etc/passwd", status=b"302 Found"),
    **{
        f"status-{code}": _answer(b"x", status=f"{code} X".encode())
        for code in (204, 304, 400, 401, 403, 404, 429, 500, 503)
    },
    "status-no-number": _answer(_PAGE, status=b"abc OK"),
    "status-999": _answer(_PAGE, status=b"999 Odd"),
    "http-0.9": lambda connection: connection.sendall(_PAGE),
    "http2": lambda connection: connection.sendall(b"\0\0\0\4\0\0\0\0\0" * 100),
    "tls": lambda connection: connection.sendall(b"\x15\x03\x03\0\x02\x02\x28"),
    "html": _answer(b"<html><body>Sign in</body></html>"),
    "empty": _answer(b""),
    "binary": _answer(os.urandom(50_000)),
    "zeros": _answer(bytes(50_000)),
    "bad-utf8": _answer(b'page_value{a="\xff\xfe"} 1\n' + _PAGE),
    "escapes": _answer(b'page_value{a="\x1b[2J\\n\0"} 1\n'),
    **_ESCAPES,
    "not-finite": _answer(b"# TYPE a gauge\na NaN\nb +Inf\nc -Inf\nd 1e999\ne 1e-999\n"),
    "huge-integers": _answer(b"# TYPE a counter\na_total " + b"9" * 4000 + b"\n"),
    "falling-counter": _answer(b"# TYPE a counter\na_total -5\n"),
    "clashing-names": _answer(b"# TYPE a gauge\na 1\n# TYPE a counter\na 2\na_total 3\nA 4\n"),
    "same-series": _answer(b"# TYPE a gauge\n" + b'a{x="1"} 1\n' * 500),
    "our-names": _answer(b"# TYPE system_cpu_time counter\nsystem_cpu_time_total 1\nsystem.cpu.time 2\n"),
    "many-series": _answer(b"# TYPE a gauge\n" + b"".join(b'a{x="%d"} 1\n' % n for n in range(20_000))),
    "many-names": _answer(b"".join(b"# TYPE a%d gauge\na%d 1\n" % (n, n) for n in range(20_000))),
    "many-labels": _answer(b"a{" + b",".join(b'l%d="x"' % n for n in range(5000)) + b"} 1\n"),
    "long-label": _answer(b'a{x="' + b"y" * 1_000_000 + b'"} 1\n'),
    "long-line": _answer(b"a" * 4_000_000 + b" 1\n"),
    "unclosed-label": _answer(b'a{x="' + b"\\" * 10_001 + b"\n"),
    "wrong-types": _answer(b"# TYPE a histogram\na 1\n# TYPE b info\nb x\n# TYPE c nonsense\nc 1\n# TYPE\n# HELP\n"),
    "wrong-timestamps": _answer(b"a 1 99999999999999999999\nb 1 -5\nc 1 x\n"),
    "gzip-not-asked": _answer(gzip.compress(_PAGE), b"Content-Encoding: gzip"),
    "gzip-truncated": _answer(gzip.compress(_PAGE * 100)[:40], b"Content-Encoding: gzip"),
    "gzip-bomb": _answer(gzip.compress(bytes(100_000_000), 9), b"Content-Encoding: gzip"),
    "gzip-members": _answer(gzip.compress(_PAGE) * 50, b"Content-Encoding: gzip"),
    "gzip-wrong": _answer(_PAGE, b"Content-Encoding: gzip"),
    "encoding-unknown": _answer(_PAGE, b"Content-Encoding: br"),
    "type-unknown": _answer(_PAGE, b"Content-Type: application/x-nonsense; charset=utf-99"),
    "many-headers": _answer(_PAGE, *(b"X-%d: x" % n for n in range(5000))),
    "long-header": _answer(_PAGE, b"X: " + b"x" * 200_000),
    "odd-headers": _answer(_PAGE, b": x", b"no colon", b"\0\xff: 1"),
}


def _served(handle: Handler) -> Surroundings:
    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        def noted(connection: socket.socket) -> None:
            (folder / "made" / "called").touch()
            handle(connection)

        with servers.server(noted) as port:
            yield _endpoint(f"http://127.0.0.1:{port}/metrics")

    return around


def _endpoint(url: str) -> dict[str, str]:
    return {"OTEL_PYTHON_HARDWARE_OPENMETRICS": f"page={url}"}


def _port(make: Callable[[], object], scheme: str = "http") -> Surroundings:
    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        with make() as port:  # type: ignore[attr-defined]
            (folder / "made" / "called").touch()
            yield _endpoint(f"{scheme}://127.0.0.1:{port}/metrics")

    return around


def _place(url: str, make: Callable[[Path], object] = lambda path: None) -> Surroundings:
    @contextmanager
    def around(folder: Path) -> Iterator[Mapping[str, str]]:
        path = folder / "made" / "endpoints.json"
        make(path)
        (folder / "made" / "called").touch()
        yield {"OTEL_PYTHON_HARDWARE_OPENMETRICS": url.replace("{path}", str(path))}

    return around


def after_scrape(run: Run) -> None:
    """Let the program end when the endpoint was scraped, and the host was reported."""
    run.until(run.has_started)
    if run.is_on:
        run.until((run.folder / "made" / "called").exists)
        run.until(lambda: run.has_reported("openmetrics.up"), 15)
    else:
        run.until(run.has_reported)
    run.go()


def _was_scraped(folder: Path) -> str:
    return "" if (folder / "made" / "called").exists() else "the endpoint was never scraped"


_FAST: Final = {"hangs-at-accept", "endless-body", "gzip-bomb", "not-finite"}

_PLACES: Final[Mapping[str, tuple[str, Callable[[Path], object]]]] = {
    "no-host": ("page=http://", lambda path: None),
    "port-0": ("page=http://127.0.0.1:0/metrics", lambda path: None),
    "port-too-high": ("page=http://127.0.0.1:99999/metrics", lambda path: None),
    "unknown-host": ("page=http://host.invalid:9/metrics", lambda path: None),
    "unknown-scheme": ("page=gopher://127.0.0.1/metrics", lambda path: None),
    "file-scheme": ("page=file:///etc/passwd", lambda path: None),
    "file-missing": ("{path}", lambda path: None),
    "file-directory": ("{path}", lambda path: path.mkdir()),
    "file-empty": ("{path}", lambda path: path.touch()),
    "file-binary": ("{path}", lambda path: path.write_bytes(os.urandom(10_000))),
    "file-deep": ("{path}", lambda path: path.write_text("[" * 100_000)),
    "file-wrong": ("{path}", lambda path: path.write_text('{"endpoints": 5, "x": [null]}')),
    "file-fifo": ("{path}", os.mkfifo),
}


def cases() -> list[Case]:
    found = []
    for name, handle in _HANDLERS.items():
        found.append(
            Case(name, around=_served(handle), act=after_scrape, lines=2, check=_was_scraped, fast=name in _FAST)
        )
    found += [
        Case(f"{name}-agent", settings=AGENT, around=_served(handle), act=after_scrape, lines=2)
        for name, handle in _ESCAPES.items()
    ]
    found += [
        Case("refused", around=_port(servers.refused), act=after_scrape, lines=2),
        Case("dropped", around=_port(servers.not_accepted), act=after_scrape, lines=2),
        Case("tls-refused", around=_port(servers.refused, "https"), act=after_scrape, lines=2),
    ]
    tls = _served(_answer(_PAGE))

    @contextmanager
    def plain_for_tls(folder: Path) -> Iterator[Mapping[str, str]]:
        with tls(folder) as variables:
            yield {name: value.replace("http:", "https:") for name, value in variables.items()}

    found.append(Case("http-for-https", around=plain_for_tls, act=after_scrape, lines=2))
    found += [
        Case(f"place-{name}", around=_place(url, make), act=after_scrape, lines=2)
        for name, (url, make) in _PLACES.items()
    ]
    return found
