"""gRPC over our HTTP/2 client: servers of gRPC in C++ and Go, and scripted servers that send what those never do."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources.tpu.test_tpu import busy
from tests.stage import PATIENT
from tests.tools.collector import Collector
from tests.tools.daemon import free_addresses
from tests.tools.tpu import PATIENCE, Code, FakeTpu, deadline, doubles, pb, serving

from opentelemetry.instrumentation.hardware.drivers import DriverError
from opentelemetry.instrumentation.hardware.sources.tpu import http2, wire
from opentelemetry.instrumentation.hardware.sources.tpu import runtime as r
from opentelemetry.instrumentation.hardware.sources.tpu.rpc import DEADLINE, Rpc

DATA, HEADERS, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = 0, 1, 3, 4, 5, 6, 7, 8, 9
END, WHOLE, PADDED, PRIORITY = 1, 4, 8, 32

MESSAGE = pb.MetricResponse(metric=pb.TPUMetric(metrics=doubles({3: 50.0}))).SerializeToString()
NUMBERS = [{"labels": {"device-id": 3}, "value": 50.0, "distribution": None}]
BODY = b"\0" + struct.pack(">I", len(MESSAGE)) + MESSAGE
OK = b"\x88" + b"\x5f\x10application/grpc"  # :status 200 from the static table, content-type as a literal
WELL = b"\0\x0bgrpc-status\x010"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def answer(stream: int, body: bytes = BODY) -> bytes:
    """A complete successful response."""
    return frame(HEADERS, WHOLE, stream, OK) + frame(DATA, 0, stream, body) + frame(HEADERS, WHOLE | END, stream, WELL)


class Client:
    """A client as the server sees it, with the frames that it sent."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.frames: list[tuple[int, int, int, bytes]] = []
        self._file = connection.makefile("rb")
        assert self._file.read(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

    def next(self, kind: int, flags: int = 0) -> tuple[int, bytes]:
        """Stream and payload of the next frame of a kind."""
        while True:
            head = self._file.read(9)
            if len(head) < 9:
                raise ConnectionError
            size = int.from_bytes(head[:3], "big")
            each = head[3], head[4], int.from_bytes(head[5:], "big"), self._file.read(size)
            self.frames.append(each)
            if each[0] == kind and each[1] & flags == flags:
                return each[2], each[3]

    def asked(self) -> int:
        """Wait for a complete request; its stream."""
        return self.next(DATA, END)[0]

    def say(self, data: bytes) -> None:
        self._connection.sendall(data)


@contextmanager
def server(*scripts: Callable[[Client], object], path: str = "") -> Iterator[str]:
    """The address of a server that runs one script for each connection, one after the other."""
    open_: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX if path else socket.AF_INET) as listening:
        listening.bind(path or ("127.0.0.1", 0))
        listening.listen()
        open_.append(listening)

        def serve() -> None:
            for script in scripts:
                with suppress(OSError, ValueError), listening.accept()[0] as connection:
                    open_.append(connection)
                    script(Client(connection))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with deadline(PATIENCE):
                yield f"unix:{path}" if path else f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            for each in open_:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            thread.join()


def says(data: Callable[[int], bytes]) -> Callable[[Client], object]:
    """A script that answers one request."""

    def script(client: Client) -> None:
        client.say(frame(SETTINGS, 0, 0) + data(client.asked()))
        client.asked()  # raises when the client disconnects

    return script


@pytest.fixture
def rpc() -> Iterator[Rpc]:
    with closing(Rpc()) as made:
        yield made


# -- real servers


def test_go_grpc_server_with_huffman_headers_is_understood(rpc: Rpc, tmp_path: Path) -> None:
    """Its headers are Huffman-coded; gRPC in C++ sends literals."""
    with Collector(tmp_path) as collector:
        for _ in range(2):
            with pytest.raises(DriverError) as refused:
                rpc.metric(collector.grpc.removeprefix("http://"), r.DUTY, alone=False)
            assert refused.value.code == 12
            assert refused.value.text == "unknown service tpu.monitoring.runtime.RuntimeMetricService"
        rpc.close()  # the Collector would wait 5 s for open connections at its end


def test_http2_connection_is_reused_and_closed() -> None:
    def connections() -> set[str]:
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
        return {os.readlink(link) for link in links if os.path.exists(link) and "socket:" in os.readlink(link)}

    with serving(busy()) as tpu:
        rpc = Rpc()
        rpc.metric(tpu.address, r.DUTY, alone=False)
        held = connections()
        for _ in range(20):
            rpc.metric(tpu.address, r.USED, alone=False)
        assert connections() == held
        rpc.close()
        assert not held <= connections()


@pytest.mark.parametrize("code", [code for code in Code if code not in (Code.OK, Code.DEADLINE_EXCEEDED)])
def test_grpc_status_code_is_kept(rpc: Rpc, code: Code) -> None:
    with serving(FakeTpu({r.DUTY: code})) as tpu, pytest.raises(DriverError) as refused:
        rpc.metric(tpu.address, r.DUTY, alone=False)
    assert (refused.value.code, refused.value.text) == (code.value[0], "this is not known here")


def test_grpc_deadline_exceeded_is_a_timeout(rpc: Rpc) -> None:
    with serving(FakeTpu({r.DUTY: Code.DEADLINE_EXCEEDED})) as tpu, pytest.raises(TimeoutError, match="within 30 s"):
        rpc.metric(tpu.address, r.DUTY, alone=False)


@pytest.mark.parametrize("place", ["127.0.0.1:0", "[::1]:0"])
def test_localhost_tries_ipv4_and_ipv6(rpc: Rpc, place: str) -> None:
    if "::" in place and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    with serving(busy(), place) as tpu:
        assert rpc.metric(f"localhost:{tpu.port}", r.DUTY, alone=False)
        assert rpc.metric(place.replace(":0", f":{tpu.port}"), r.DUTY, alone=False)


def test_host_name_is_resolved(rpc: Rpc) -> None:
    with serving(busy(), "127.0.0.1:0") as tpu:
        assert rpc.metric(f"127.1:{tpu.port}", r.DUTY, alone=False)


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("n" * 64 + ":8431", "[a-z]"),
        ("localhost:99999", "0-65535"),
        ("unix:/nowhere/tpu.sock", "No such file or directory"),
        ("unix:/" + "x" * 200, "path too long"),
        ("free", "Connection refused"),
    ],
)
def test_unreachable_address_is_refused_with_a_reason(rpc: Rpc, place: str, why: str) -> None:
    with pytest.raises(DriverError, match=why) as refused:
        rpc.metric(free_addresses(1)[0] if place == "free" else place, r.DUTY, alone=False)
    assert refused.value.code == 14


# -- scripted servers


def padded(stream: int) -> bytes:
    return (
        frame(HEADERS, WHOLE | PADDED | PRIORITY, stream, b"\3" + b"\0" * 5 + OK + b"\0" * 3)
        + frame(DATA, PADDED, stream, b"\2" + BODY + b"\0\0")
        + frame(HEADERS, WHOLE | END, stream, WELL)
    )


def in_pieces(stream: int) -> bytes:
    data = b"".join(frame(DATA, 0, stream, BODY[at : at + 1]) for at in range(len(BODY)))
    trailers = frame(HEADERS, END, stream, WELL[:4]) + frame(CONTINUATION, WHOLE, stream, WELL[4:])
    return frame(HEADERS, WHOLE, stream, OK) + data + trailers


def with_much_else(stream: int) -> bytes:
    others = frame(WINDOW, END, stream, b"\0\0\0\1") + frame(2, 0, stream, b"\0" * 5) + frame(200, 0xFF, 0, b"?")
    strange = frame(HEADERS, WHOLE | END, stream + 2, b"\x7f\xff") + frame(DATA, END, stream + 2, b"x")
    return others + strange + frame(RESET, 0, stream + 2, b"\0\0\0\2") + frame(SETTINGS, END, 0) + answer(stream)


@pytest.mark.parametrize("data", [answer, padded, in_pieces, with_much_else])
def test_valid_http2_frame_sequences_are_understood(rpc: Rpc, data: Callable[[int], bytes]) -> None:
    with server(says(data)) as address:
        assert rpc.metric(address, r.DUTY, alone=False) == NUMBERS


def test_http2_settings_ping_and_window_are_answered(rpc: Rpc) -> None:
    seen: list[Client] = []

    def script(client: Client) -> None:
        seen.append(client)
        stream = client.asked()
        client.say(frame(SETTINGS, 0, 0) + frame(PING, 0, 0, b"abcdefgh"))
        client.next(SETTINGS, 1)
        assert client.next(PING, 1)[1] == b"abcdefgh"
        client.say(answer(stream))
        for _ in range(3):
            client.say(answer(client.asked()))
        client.next(-1)

    with server(script) as address:
        for _ in range(4):
            assert rpc.metric(address, r.DUTY, alone=False) == NUMBERS
        rpc.close()
    frames = seen[0].frames
    widened = [int.from_bytes(data, "big") for kind, _, stream, data in frames if (kind, stream) == (WINDOW, 0)]
    assert widened == [(1 << 31) - 1 - 0xFFFF, len(BODY), len(BODY), len(BODY)], "the connection window is refilled"
    assert [stream for kind, _, stream, _ in frames if kind == DATA] == [1, 3, 5, 7]


@pytest.mark.parametrize("local", [True, False])
def test_grpc_request_headers(rpc: Rpc, tmp_path: Path, local: bool) -> None:
    seen: dict[str, str] = {}

    def script(client: Client) -> None:
        seen.update(http2.unpacked(client.next(HEADERS, WHOLE)[1]))
        client.say(answer(client.asked()))

    with server(script, path=str(tmp_path / "tpu.sock") if local else "") as address, deadline(DEADLINE):
        rpc.metric(address, r.DUTY, alone=False)
    assert seen.pop("user-agent").startswith("opentelemetry-instrumentation-hardware/")
    assert seen == {
        ":method": "POST",
        ":scheme": "http",
        ":path": "/tpu.monitoring.runtime.RuntimeMetricService/GetRuntimeMetric",
        ":authority": "localhost" if local else address,
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-timeout": "500m",
    }


def test_closed_http2_connection_is_reopened(rpc: Rpc) -> None:
    def once(client: Client) -> None:
        client.say(frame(SETTINGS, 0, 0) + answer(client.asked()))

    def leaving(client: Client) -> None:
        stream = client.asked()
        client.say(frame(GOAWAY, 0, 0, struct.pack(">II", stream, 0)) + answer(stream))
        client.next(-1)

    def gone(client: Client) -> None:
        client.say(answer(client.asked()))
        client.asked()
        client.say(frame(GOAWAY, 0, 0, struct.pack(">II", 1, 0)))

    with server(once, leaving, gone, once) as address:
        for _ in range(4):
            assert rpc.metric(address, r.DUTY, alone=False) == NUMBERS


@pytest.mark.parametrize("number", ["free", "the program's"])
def test_file_descriptor_closed_by_the_program_is_not_reused(rpc: Rpc, number: str) -> None:
    """The number may belong to a socket of the program by now: nothing is written to it, and it is not closed."""

    def once(client: Client) -> None:
        client.say(frame(SETTINGS, 0, 0) + answer(client.asked()))
        client.next(-1)

    with server(once, once) as address:
        assert rpc.metric(address, r.DUTY, alone=False) == NUMBERS
        theirs, peer = socket.socketpair()
        ours = rpc._connections[address]._socket.fileno()
        if number == "free":
            os.close(ours)
        else:
            os.dup2(theirs.fileno(), ours)
        theirs.close()
        assert rpc.metric(address, r.DUTY, alone=False) == NUMBERS
        rpc.close()
        with peer:
            peer.setblocking(False)
            if number == "free":
                assert peer.recv(1) == b"", "the peer of the other socket pair saw the end only"
            else:
                with pytest.raises(BlockingIOError):
                    peer.recv(1)
                os.close(ours)


def test_connection_lost_during_a_call_is_not_retried_again(rpc: Rpc) -> None:
    asked = []

    def dying(client: Client) -> None:
        asked.append(client.asked())
        client.say(frame(HEADERS, WHOLE, 1, OK))

    with server(dying, dying) as address:
        for _ in range(2):
            with pytest.raises(DriverError) as refused:
                rpc.metric(address, r.DUTY, alone=False)
            assert refused.value.code == 14
    assert asked == [1, 1]


def trailers(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (lambda s: frame(RESET, 0, s, b"\0\0\0\7"), 14, "HTTP/2 error 7"),
        (lambda s: frame(RESET, 0, s, b"\0\0\0\x0b"), 8, "HTTP/2 error 11"),
        (lambda s: frame(RESET, 0, s, b"\0\0\0\2"), 13, "HTTP/2 error 2"),
        (lambda s: frame(HEADERS, WHOLE | END, s, b"\x8d"), 12, "HTTP 404"),
        (lambda s: frame(HEADERS, WHOLE | END, s, b"\x08\x03503"), 14, "HTTP 503"),
        (lambda s: frame(HEADERS, WHOLE | END, s, b"\x8e"), 2, "HTTP 500"),
        (lambda s: frame(HEADERS, WHOLE | END, s, b"\x88" + trailers(b"grpc-status", b"7")), 7, "it does not say why"),
        (lambda s: frame(HEADERS, WHOLE | END, s, b"\x88" + trailers(b"grpc-status", b"x")), 2, "it does not say why"),
        (
            lambda s: frame(
                HEADERS,
                WHOLE | END,
                s,
                b"\x88" + trailers(b"grpc-status", b"5") + trailers(b"grpc-message", b"no%20%C3%A9 \\o/%zz"),
            ),
            5,
            "no é \\\\o/%zz",
        ),
        (lambda s: frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\x0b"), 14, "ends the connection"),
        (lambda s: frame(GOAWAY, 0, 0), 14, "ends the connection"),
    ],
)
def test_http2_reset_goaway_and_status_are_refused_with_a_reason(rpc: Rpc, data: Any, code: int, text: str) -> None:
    with server(says(data)) as address, pytest.raises(DriverError, match=text) as refused:
        rpc.metric(address, r.DUTY, alone=False)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda s: b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak HTTP/2"),
        (lambda s: frame(DATA, 0, s, b"x" * ((1 << 14) + 1)), "does not speak HTTP/2"),
        (lambda s: frame(PUSH, WHOLE, s, b"\0\0\0\2"), "pushes"),
        (lambda s: frame(HEADERS, 0, s, OK) + frame(DATA, END, s), "breaks off"),
        (lambda s: frame(HEADERS, 0, s, OK) + frame(CONTINUATION, WHOLE, s + 2, b""), "breaks off"),
        (lambda s: frame(HEADERS, 0, s, OK) + frame(CONTINUATION, 0, s, b"x" * (1 << 14)), "no end"),
        (lambda s: frame(DATA, PADDED, s, b"\4abc"), "shorter than its padding"),
        (lambda s: frame(DATA, PADDED, s), "shorter than its padding"),
        (lambda s: frame(HEADERS, WHOLE | PRIORITY, s, b"\0"), "shorter than its padding"),
        (lambda s: frame(HEADERS, WHOLE, s, b"\xbe"), "a table that has no room"),
        (lambda s: frame(HEADERS, WHOLE, s, b"\x80"), "a table that has no room"),
        (lambda s: frame(HEADERS, WHOLE, s, b"\x3f\xe1\x1f"), "a table that has no room"),
        (lambda s: frame(HEADERS, WHOLE, s, b"\0\x01a\x05ab"), "break off"),
        (lambda s: frame(HEADERS, WHOLE, s, b"\0"), "break off"),
        (lambda s: frame(HEADERS, WHOLE, s, b"\xff" + b"\xff" * 20), "no end"),
        (lambda s: answer(s, b""), "not one message"),
        (lambda s: answer(s, b"\1" + BODY[1:]), "not one message"),
        (lambda s: answer(s, BODY[:-1]), "not one message"),
        (lambda s: answer(s, BODY + BODY), "not one message"),
        (lambda s: b"".join(frame(DATA, 0, s, b"x" * (1 << 14)) for _ in range(80)), "bytes"),
    ],
)
def test_http2_protocol_error_is_invalid_and_the_next_call_succeeds(rpc: Rpc, data: Any, text: str) -> None:
    with server(says(data), says(answer)) as address:
        with pytest.raises(ValueError, match=text):
            rpc.metric(address, r.DUTY, alone=False)
        assert rpc.metric(address, r.DUTY, alone=False) == NUMBERS


@pytest.mark.parametrize(
    "flood",
    [lambda s: b"", lambda s: frame(PING, 0, 0, b"12345678") * 50, lambda s: frame(CONTINUATION, 0, s)],
    ids=["silence", "pings", "drops"],
)
def test_grpc_call_ends_at_its_deadline(rpc: Rpc, flood: Any) -> None:
    def script(client: Client) -> None:
        stream = client.asked()
        client.say(frame(HEADERS, 0, stream, OK) if b"\x09" in flood(stream)[3:4] else b"")
        while flood(stream):
            client.say(flood(stream))
        client.next(-1)

    with server(script) as address, deadline(0.1):
        begun = time.monotonic()
        with pytest.raises((TimeoutError, ValueError)):
            rpc.metric(address, r.DUTY, alone=False)
        assert time.monotonic() - begun < 30, "the deadline is 0.1 s; the bound is for busy machines"


@PATIENT
@given(st.binary(max_size=200), st.booleans())
def test_invalid_http2_response_raises_refusal_or_value_error_only(data: bytes, framed: bool) -> None:
    def script(client: Client) -> None:
        stream = client.asked()
        client.say(frame(HEADERS, WHOLE | END, stream, data) if framed else data)

    with server(script) as address, closing(Rpc()) as rpc, pytest.raises((DriverError, ValueError)):
        rpc.metric(address, r.DUTY, alone=False)


# -- HPACK


@pytest.mark.parametrize(
    ("packed", "text"),
    [
        ("f1e3c2e5f23a6ba0ab90f4ff", "www.example.com"),
        ("6402", "302"),
        ("aec3771a4b", "private"),
        ("d07abe941054d444a8200595040b8166e082a62d1bff", "Mon, 21 Oct 2013 20:13:21 GMT"),
        ("9d29ad171863c78f0b97c8e9ae82ae43d3", "https://www.example.com"),
        (
            "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
            "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ),
        (
            "53f8fe7febff2afc7fafebfbf9ff7f4b2ec002265a6dc75e7ee7dfffc83feffcffd4376f5fc187163c997367d1a756bd9b776fe1c7"
            "97e73fdffdffff0ffe7ff917ffd1c6490b2cd39ba75a29a8f5f6b109b7bf8f3ebdfffeff9ffefff7",
            "".join(map(chr, range(32, 127))),
        ),
        ("1ffffffeff", "a"),
    ],
    ids=["C.4.1", "C.6.1", "C.6.1 private", "C.6.1 date", "C.6.1 location", "C.6.3", "all that is printed", "others"],
)
def test_hpack_huffman_examples_of_rfc_7541(packed: str, text: str) -> None:
    """The examples of RFC 7541, and every printable ASCII character."""
    raw = bytes.fromhex(packed)
    assert list(http2.unpacked(b"\0\x01n" + bytes((0x80 | len(raw),)) + raw)) == [("n", text)]


@PATIENT
@given(st.binary(max_size=300))
def test_invalid_hpack_block_raises_value_error_only(block: bytes) -> None:
    try:
        found = list(http2.unpacked(block))
    except ValueError:
        return
    assert all(found)


@pytest.mark.parametrize("length", [1, 126, 127, 128, 254, 255, 400, 16000])
def test_long_metric_names_and_headers_are_encoded(rpc: Rpc, length: int) -> None:
    with serving(busy()) as tpu:
        name = "n" * length
        with pytest.raises(DriverError) as refused:
            rpc.metric(tpu.address, name, alone=True)
        assert refused.value.code == 5
        assert tpu.asked == [(name, True)]
    headers = list(http2.unpacked(b"".join(http2._packed(*each) for each in (("a", "x" * length), ("b", "")))))
    assert headers == [("a", "x" * length), ("b", "")]


def test_response_near_the_size_limit_is_read(rpc: Rpc) -> None:
    text = pb.MetricResponse(metric=pb.TPUMetric(description="y" * (wire.LIMIT - 100), metrics=doubles({3: 50.0})))
    with serving(FakeTpu({r.DUTY: text.SerializeToString()})) as tpu:
        for _ in range(5):
            assert rpc.metric(tpu.address, r.DUTY, alone=False) == NUMBERS
