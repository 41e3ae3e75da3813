"""HTTP GET of a page over real sockets: headers, redirects, TLS, the deadline and the size limit."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.waiting import wait_for
from tests.support.web import Answer, Web, page

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.drivers.http import Http
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.endpoints import Endpoint

TEXT = "x 1\n" * 1000


def fetch(url: str, **options: Any) -> bytes:
    body: bytes = Http(Endpoint("a", url, **options)).get()["body"]
    return body


def test_get_returns_body_type_and_duration_and_sends_default_headers() -> None:
    with Web(page(TEXT, "text/plain; version=0.0.4")) as web:
        answer = Http(Endpoint("a", web.url + "?a=b%20c"), "text/plain").get()
    assert answer["body"] == TEXT.encode()
    assert answer["type"] == "text/plain; version=0.0.4"
    assert answer["complete"] is True
    assert 0 < answer["seconds"] < 60
    ((path, headers),) = web.requests
    assert path == "/metrics?a=b%20c"
    assert headers["host"] == f"127.0.0.1:{web.port}"
    assert headers["accept"] == "text/plain"
    assert headers["accept-encoding"] == "gzip"
    assert headers["x-prometheus-scrape-timeout-seconds"] == "5"
    assert headers["user-agent"].startswith("opentelemetry-instrumentation-hardware/")
    assert "authorization" not in headers


@pytest.mark.parametrize("empty", [b"", gzip.compress(b"")], ids=["", "with-empty-members"])
@pytest.mark.parametrize("parts", [[TEXT], [TEXT, "y 2\n" * 100_000, "z 3\n"]], ids=["one", "three"])
def test_all_members_of_a_gzip_body_are_unpacked(parts: list[str], empty: bytes) -> None:
    packed = b"".join(empty + gzip.compress(part.encode()) for part in parts)
    with Web(page(packed, Content_Encoding="gzip")) as web:
        assert fetch(web.url) == "".join(parts).encode()


def test_empty_gzip_members_count_towards_the_limit() -> None:
    packed = gzip.compress(b"") * 1000
    with Web(page(packed, Content_Encoding="gzip")) as web:
        assert fetch(web.url) == b""
        with pytest.raises(DriverError, match="longer than 10000 bytes"):
            fetch(web.url, max_bytes=10_000)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def raw(data: bytes) -> Answer:
    """An answer of these bytes."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(data)

    return answer


def test_body_without_content_length_is_read_to_the_end() -> None:
    with Web(raw(b"HTTP/1.0 200 OK\r\n\r\nx 1\n")) as web:
        read = Http(Endpoint("a", web.url)).get()
        assert (read["type"], read["complete"]) == ("", False)
        assert fetch(web.url) == b"x 1\n"


def test_chunked_body_is_joined() -> None:
    with Web(raw(CHUNKED + b"4\r\nx 1\n\r\n4\r\ny 2\n\r\n0\r\n\r\n")) as web:
        assert fetch(web.url) == b"x 1\ny 2\n"
        assert Http(Endpoint("a", web.url)).get()["complete"] is True  # also without a last line feed


@pytest.mark.parametrize("header", ["Transfer-Encoding: identity", "Content-Length: unknown", "Content-Length: -1"])
def test_body_whose_end_only_the_connection_tells_may_be_cut_off(header: str) -> None:
    with Web(raw(f"HTTP/1.1 200 OK\r\n{header}\r\n\r\nx 1\n".encode())) as web:
        assert Http(Endpoint("a", web.url)).get()["complete"] is False


PACKED = gzip.compress(TEXT.encode(), mtime=0)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        *((page("", status=status), f"HTTP status {status}") for status in (204, 304, 401, 404, 500)),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx 1\n"), "truncated"),
        *((raw(CHUNKED + cut), "IncompleteRead") for cut in (b"4\r\nx 1\n\r\n", b"4\r\nx")),
        (page(zlib.compress(b"x"), Content_Encoding="deflate"), "unsupported Content-Encoding: deflate"),
        *(
            (page(packed, Content_Encoding="gzip"), why)
            for packed, why in (
                *((b"nonsense", "invalid gzip data"), (PACKED[:-9], "truncated"), (b"", "truncated")),
                # the second member is incomplete or invalid
                *((PACKED + PACKED[:-9], "truncated"), (PACKED + b"\x1f\x8b", "truncated")),
                (PACKED + b"y 2\n", "invalid gzip data"),
            )
        ),
    ],
)
def test_response_that_cannot_be_used_is_refused(answer: Answer, why: str) -> None:
    with Web(answer) as web, pytest.raises(DriverError, match=why):
        fetch(web.url)


@pytest.mark.parametrize("words", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 abc\r\n\r\n"])
def test_server_that_does_not_speak_http_is_refused(words: bytes) -> None:
    with Web(raw(words)) as web, pytest.raises((DriverError, OSError)):
        fetch(web.url)


def test_given_headers_replace_defaults_and_token_file_is_read_for_each_request(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with Web(page(TEXT)) as web:
        http = Http(
            Endpoint("a", web.url, headers={"X-Scope": "a b", "User-Agent": "us"}, bearer_token_file=str(token))
        )
        http.get()
        token.write_text("second")
        http.get()
    (_, first), (_, second) = web.requests
    assert (first["x-scope"], first["user-agent"]) == ("a b", "us")
    assert (first["authorization"], second["authorization"]) == ("Bearer first", "Bearer second")


@pytest.mark.parametrize("content", [None, b"", b"\xff", b"a\nb", b"a b"])
def test_unreadable_token_file_sends_no_request(tmp_path: Path, content: bytes | None) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    with Web(page(TEXT)) as web, pytest.raises(DriverError, match=r"cannot read the token file .*token"):
        fetch(web.url, bearer_token_file=str(token))
    assert web.requests == []


def moved(places: list[str], status: int = 302) -> Answer:
    left = list(places)

    def answer(request: BaseHTTPRequestHandler) -> None:
        (page("", status=status, Location=left.pop(0)) if left else page(TEXT))(request)

    return answer


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_on_the_same_server_is_followed(status: int) -> None:
    with Web(moved(["/other?x=1"], status)) as web:
        assert fetch(web.url) == TEXT.encode()
    assert [path for path, _ in web.requests] == ["/metrics", "/other?x=1"]


def test_redirect_to_another_server_is_refused(tmp_path: Path) -> None:
    with Web(page(TEXT)) as other:
        for place in (other.url, f"//localhost:{other.port}/x", "https://127.0.0.1/x", "file:///etc/passwd"):
            with Web(moved([place])) as web, pytest.raises(DriverError, match="redirect to another server"):
                fetch(web.url, headers={"Authorization": "Basic x"})
        assert other.requests == []


def test_redirect_may_leave_out_the_default_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nginx does. A host name has no case."""
    with Web(moved(["http://metrics.example/other"])) as web:
        here = socket.getaddrinfo("127.0.0.1", web.port, type=socket.SOCK_STREAM)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: here)
        assert fetch("http://Metrics.example:80/metrics") == TEXT.encode()


def test_redirect_loop_is_refused() -> None:
    with Web(moved(["/a", "/b", "/c", "/d"])) as web, pytest.raises(DriverError, match="more than 2 redirects"):
        fetch(web.url)
    assert len(web.requests) == 3


def test_closed_port_raises_connection_refused(refusing: str) -> None:
    with pytest.raises(ConnectionRefusedError):
        fetch(f"{refusing}/")


# -- the deadline


def dripping(web: Web, beginning: bytes, drop: bytes, seconds: float = 10.0) -> Answer:
    """An answer that comes a few bytes at a time, so that no single read takes long; it ends in any case."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(beginning)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not web.closing.wait(0.02):
            request.wfile.write(drop)

    return answer


@pytest.mark.parametrize(
    ("beginning", "drop"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x 1\n"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"),
    ],
    ids=["silent", "head", "body", "length"],
)
def test_overall_deadline_ends_a_response_that_arrives_slowly(beginning: bytes, drop: bytes) -> None:
    """Without the deadline the response ends after 10 s and raises something else or nothing."""
    with Web(page("")) as web:
        web.answer = dripping(web, beginning, drop)
        with pytest.raises(TimeoutError):
            fetch(web.url, timeout=0.2)


def test_redirects_share_the_deadline() -> None:
    """Each response takes more than half of the timeout, and less than the whole."""
    with Web(page("")) as web:
        following = moved(["/a", "/b"])

        def answer(request: BaseHTTPRequestHandler) -> None:
            web.closing.wait(0.6)
            with suppress(OSError):
                following(request)

        web.answer = answer
        with pytest.raises(TimeoutError):
            fetch(web.url, timeout=1.0)


@contextmanager
def silent_addresses(number: int, port: int = 0) -> Iterator[tuple[int, list[str]]]:
    """A port and loopback addresses with full backlogs, so that connecting to them times out."""
    with ExitStack() as stack:
        hosts = [f"127.0.0.{host}" for host in range(2, 2 + number)]
        for host in hosts:
            server = stack.enter_context(socket.socket())
            server.bind((host, port))
            server.listen(0)
            port = server.getsockname()[1]
            for _ in range(3):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                with suppress(BlockingIOError):
                    client.connect((host, port))
        yield port, hosts


def resolve_to(hosts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(host: str, port: int, *arguments: object, **options: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in hosts]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def test_addresses_of_a_host_share_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_addresses(4) as (port, hosts):
        resolve_to(hosts, monkeypatch)
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            fetch(f"http://node:{port}/metrics", timeout=1.0)
        assert time.monotonic() - start < 3.0, "each address took the whole timeout"


def test_second_address_is_used_when_the_first_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with Web(page(TEXT)) as web, silent_addresses(1, web.port) as (_, hosts):
        resolve_to([*hosts, "127.0.0.1"], monkeypatch)
        assert fetch(f"http://node:{web.port}/metrics", timeout=1.0) == TEXT.encode()


def test_second_address_is_used_when_the_first_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with Web(page(TEXT)) as web:
        resolve_to(["127.0.0.77", "127.0.0.1"], monkeypatch)
        assert fetch(f"http://node:{web.port}/metrics") == TEXT.encode()


# -- size


def test_body_longer_than_the_limit_is_refused() -> None:
    with Web(page(TEXT)) as web:
        assert len(fetch(web.url, max_bytes=4000)) == 4000
        with pytest.raises(DriverError, match="longer than 3999 bytes; raise max_bytes"):
            fetch(web.url, max_bytes=3999)


def test_endless_body_is_refused_at_the_limit() -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            request.wfile.write(b"x 1\n" * 10_000)

    with Web(answer) as web, pytest.raises(DriverError, match="longer than 1000000 bytes"):
        fetch(web.url, max_bytes=1_000_000, timeout=60)


def test_gzip_bomb_takes_little_memory() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(50)) + packer.flush()
    assert len(bomb) < 1 << 20
    with Web(page(bomb, Content_Encoding="gzip")) as web:
        http = Http(Endpoint("a", web.url, max_bytes=2_000_000, timeout=60))
        tracemalloc.start()
        with pytest.raises(DriverError, match="longer than 2000000 bytes"):
            http.get()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8_000_000


# -- floods


@pytest.mark.parametrize(
    ("beginning", "flood", "why"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X: " + b"x" * 30_000 + b"\r\n", "header of the response is longer than 64 KiB"),
        (CHUNKED, b"1\r\nx\r\n", "the page comes in pieces of a few bytes"),
    ],
    ids=["headers", "chunks"],
)
def test_server_that_floods_is_left_alone_for_a_while(
    beginning: bytes, flood: bytes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.wfile.write(beginning)
        while True:
            request.wfile.write(flood * 1000)

    clock = SimpleNamespace(now=1000.0, sleep=time.sleep)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.drivers.http.time", clock)
    with Web(answer) as web:
        http = Http(Endpoint("a", web.url, timeout=60))
        for number, pause in enumerate((60, 120, 240), 1):
            with pytest.raises(DriverError, match=f"{why} "):
                http.get()
            assert len(web.requests) == number
            clock.now += pause - 1
            with pytest.raises(DriverError, match=f"{why}; retry in 1 s"):
                http.get()
            clock.now += 1
        web.answer = page(TEXT)
        assert http.get()["body"] == TEXT.encode()
        assert http.get()["body"] == TEXT.encode()


def test_endless_interim_responses_are_refused() -> None:
    """Newer versions of http.client refuse them before our limit."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        while True:
            request.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    with (
        Web(answer) as web,
        pytest.raises(DriverError, match=r"header of the response is longer|invalid HTTP response"),
    ):
        Http(Endpoint("a", web.url, timeout=60)).get()


def test_page_in_a_chunk_per_line_is_read() -> None:
    line = b'some_metric_of_an_exporter{label="value of the label",other="%06d"} 1\n'
    lines = [line % number for number in range(30_000)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in lines)
    with Web(raw(CHUNKED + chunks + b"0\r\n\r\n")) as web:
        assert fetch(web.url, timeout=60) == b"".join(lines)


# -- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server and a client of it."""
    folder = tmp_path_factory.mktemp("certificates")
    tool = shutil.which("openssl")
    if tool is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("openssl is not installed: apt-get install openssl")
    for name, subject in (("ca", "authority"), ("server", "127.0.0.1"), ("client", "client")):
        command = [tool, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2", "-subj", f"/CN={subject}"]
        # From 3.13 on Python wants an authority to say that it is one, and the others that they are none.
        signs = ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"]
        command += signs if name == "ca" else signed
        command += ["-addext", "subjectAltName=IP:127.0.0.1"] if name == "server" else []
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)
    return folder


def serving(folder: Path, *, clients: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "ca.pem")
    return context


def test_tls_certificate_of_known_authority_is_accepted(certificates: Path) -> None:
    with Web(page(TEXT), serving(certificates)) as web:
        assert fetch(web.url, ca_file=str(certificates / "ca.pem")) == TEXT.encode()


def test_tls_certificate_of_unknown_authority_is_refused(certificates: Path) -> None:
    with Web(page(TEXT), serving(certificates)) as web, pytest.raises(DriverError, match="is not trusted"):
        fetch(web.url)
    assert web.requests == []


def test_tls_certificate_for_another_host_is_refused(certificates: Path) -> None:
    with Web(page(TEXT), serving(certificates)) as web, pytest.raises(DriverError, match="is not trusted"):
        fetch(web.url.replace("127.0.0.1", "localhost"), ca_file=str(certificates / "ca.pem"))


def test_redirect_from_https_to_http_of_the_same_host_is_refused(certificates: Path, tmp_path: Path) -> None:
    """The server answers on its port in clear, too: a token would arrive there and could be read on the way."""
    (tmp_path / "token").write_text("s3cret")
    with Web(page(TEXT), serving(certificates)) as web:
        web.answer = moved([web.url.replace("https:", "http:")])
        with pytest.raises(DriverError, match="redirect to another server"):
            fetch(web.url, ca_file=str(certificates / "ca.pem"), bearer_token_file=str(tmp_path / "token"))
    assert [headers["authorization"] for _, headers in web.requests] == ["Bearer s3cret"], "sent once, encrypted"


def test_tls_client_certificate_is_sent(certificates: Path) -> None:
    ca, cert, key = (str(certificates / name) for name in ("ca.pem", "client.pem", "client.key"))
    with Web(page(TEXT), serving(certificates, clients=True)) as web:
        assert fetch(web.url, ca_file=ca, cert_file=cert, key_file=key) == TEXT.encode()
        with pytest.raises((DriverError, OSError)):
            fetch(web.url, ca_file=ca)


def test_missing_or_invalid_tls_certificate_files_are_errors(certificates: Path) -> None:
    with Web(page(TEXT), serving(certificates)) as web:
        with pytest.raises(DriverError, match=r"^cannot read the certificates \(/no/such/file\): No such file"):
            fetch(web.url, ca_file="/no/such/file")
        with pytest.raises(DriverError, match="TLS error"):
            fetch(web.url, ca_file=str(certificates / "server.key"))


# -- secrets


def test_repr_of_an_endpoint_and_of_the_settings_shows_no_secret(tmp_path: Path) -> None:
    file = tmp_path / "endpoints.json"
    url = "https://127.0.0.1:9/metrics?token=s3cret"
    file.write_text(json.dumps({"vllm": {"url": url, "headers": {"Authorization": "Basic s3cret"}}}))
    config = Config.read({"openmetrics": str(file)}, {})
    assert config.openmetrics is not None
    (endpoint,) = config.openmetrics.each
    assert (endpoint.url, endpoint.headers) == (url, {"Authorization": "Basic s3cret"})
    assert "s3cret" not in f"{endpoint!r} {config!r} {config.openmetrics!r} {config.openmetrics} {config}"


# -- what others see of it


def test_no_instrumented_http_library_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def spied_on(*arguments: object, **options: object) -> None:
        raise AssertionError("the instrumentation of urllib makes a span here")

    monkeypatch.setattr("urllib.request.OpenerDirector.open", spied_on)
    for library in ("requests", "urllib3", "httpx", "aiohttp"):
        monkeypatch.setitem(sys.modules, library, None)
    with Web(page(TEXT)) as web:
        assert fetch(web.url) == TEXT.encode()
    assert web.requests


def test_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Web(page(TEXT)) as web:
        assert fetch(web.url) == TEXT.encode()


def test_no_descriptor_stays_open_after_requests() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    if not os.path.exists("/proc/self/fd"):
        pytest.skip("needs /proc")
    with Web(page(TEXT)) as web:
        http = Http(Endpoint("a", web.url))
        http.get()
        before = descriptors()
        for _ in range(20):
            http.get()
        wait_for(lambda: descriptors() <= before, 20, "end of the server's own connections")
