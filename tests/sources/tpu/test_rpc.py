"""gRPC calls through h2: to servers of gRPC in C++ and Go, and to scripted servers that break the protocol."""

from __future__ import annotations

import logging
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
from hpack import Decoder
from hypothesis import given
from hypothesis import strategies as st
from tests.children import descriptors
from tests.stage import PATIENT
from tests.tools import need, otelcol
from tests.tools.collector import Collector
from tests.tools.daemon import free_addresses
from tests.tools.tpu import PATIENCE, Code, FakeTpu, busy, deadline, doubles, pb, serving

from opentelemetry.instrumentation.hardware.drivers import DriverError, rpc
from opentelemetry.instrumentation.hardware.sources.tpu import fields
from opentelemetry.instrumentation.hardware.sources.tpu.services import TIMEOUT, Services

DATA, HEADERS, RESET, SETTINGS, PING, GOAWAY, CONTINUATION = 0, 1, 3, 4, 6, 7, 9
END, WHOLE = 1, 4

MESSAGE = pb.MetricResponse(metric=pb.TPUMetric(metrics=doubles({3: 50.0}))).SerializeToString()
NUMBERS = [{"labels": {"device-id": 3}, "value": 50.0, "distribution": None}]
BODY = b"\0" + struct.pack(">I", len(MESSAGE)) + MESSAGE
OK = b"\x88" + b"\x5f\x10application/grpc"  # :status 200 from the static table, content-type as a literal
SUCCESS = b"\0\x0bgrpc-status\x010"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def answer(stream: int, body: bytes = BODY) -> bytes:
    """A complete successful response."""
    return (
        frame(HEADERS, WHOLE, stream, OK) + frame(DATA, 0, stream, body) + frame(HEADERS, WHOLE | END, stream, SUCCESS)
    )


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

    def request(self) -> int:
        """Wait for a complete request; its stream."""
        return self.next(DATA, END)[0]

    def send(self, data: bytes) -> None:
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


def answering(data: Callable[[int], bytes]) -> Callable[[Client], object]:
    """A script that answers one request."""

    def script(client: Client) -> None:
        client.send(frame(SETTINGS, 0, 0) + data(client.request()))
        client.request()  # raises when the client disconnects

    return script


@pytest.fixture
def services() -> Iterator[Services]:
    with closing(Services()) as made:
        yield made


def devices(services: Services, address: str) -> list[dict[str, Any]]:
    """The answer to a call."""
    return services.metric(address, fields.DUTY_CYCLE, skip_node_aggregation=False)


# -- real servers


def test_go_grpc_server_with_huffman_headers_is_understood(services: Services, tmp_path: Path) -> None:
    """Its headers are Huffman-coded; gRPC in C++ sends literals."""
    need(otelcol)
    with Collector(tmp_path) as collector:
        for _ in range(2):
            with pytest.raises(DriverError) as refused:
                services.metric(collector.grpc.removeprefix("http://"), fields.DUTY_CYCLE, skip_node_aggregation=False)
            assert refused.value.code == 12
            assert refused.value.text == "unknown service tpu.monitoring.runtime.RuntimeMetricService"
        services.close()  # the Collector would wait 5 s for open connections at its end


def test_http2_connection_is_reused_and_closed() -> None:
    def connections() -> set[str]:
        return {target for target in descriptors().values() if target.startswith("socket:")}

    with serving(busy()) as tpu:
        services = Services()
        devices(services, tpu.address)
        held = connections()
        for _ in range(20):
            services.metric(tpu.address, fields.MEMORY_USED, skip_node_aggregation=False)
        assert connections() == held
        services.close()
        assert not held <= connections()


@pytest.mark.parametrize("code", [code for code in Code if code not in (Code.OK, Code.DEADLINE_EXCEEDED)])
def test_grpc_status_code_and_message_are_kept(services: Services, code: Code) -> None:
    with serving(FakeTpu({fields.DUTY_CYCLE: code})) as tpu, pytest.raises(DriverError) as refused:
        devices(services, tpu.address)
    assert (refused.value.code, refused.value.text) == (code.value[0], "refused by the test")


def test_server_that_gives_up_at_the_deadline_is_a_timeout(services: Services) -> None:
    with serving(FakeTpu({fields.DUTY_CYCLE: Code.DEADLINE_EXCEEDED})) as tpu, pytest.raises(DriverError) as refused:
        devices(services, tpu.address)
    assert (refused.value.code, refused.value.text) == (4, "timed out after 30 s")


def test_calls_log_nothing_in_a_program_that_logs_at_debug(
    services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(busy()) as tpu:
        devices(services, tpu.address)
    assert [record.name for record in caplog.records if not record.name.startswith("grpc")] == []


@pytest.mark.parametrize("place", ["127.0.0.1:0", "[::1]:0"])
def test_localhost_tries_ipv4_and_ipv6(services: Services, place: str) -> None:
    if "::" in place and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    with serving(busy(), place) as tpu:
        assert services.metric(f"localhost:{tpu.port}", fields.DUTY_CYCLE, skip_node_aggregation=False)
        assert services.metric(place.replace(":0", f":{tpu.port}"), fields.DUTY_CYCLE, skip_node_aggregation=False)


def test_host_name_is_resolved(services: Services) -> None:
    with serving(busy(), "127.0.0.1:0") as tpu:
        assert services.metric(f"127.1:{tpu.port}", fields.DUTY_CYCLE, skip_node_aggregation=False)


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
def test_unreachable_address_is_refused_with_a_reason(services: Services, place: str, why: str) -> None:
    with pytest.raises(DriverError, match=why) as refused:
        services.metric(
            free_addresses(1)[0] if place == "free" else place, fields.DUTY_CYCLE, skip_node_aggregation=False
        )
    assert refused.value.code == 14


# -- scripted servers


def test_settings_and_pings_of_the_server_are_acknowledged(services: Services) -> None:
    def script(client: Client) -> None:
        stream = client.request()
        client.send(frame(SETTINGS, 0, 0) + frame(PING, 0, 0, b"abcdefgh"))
        client.next(SETTINGS, 1)
        assert client.next(PING, 1)[1] == b"abcdefgh"
        client.send(answer(stream))

    with server(script) as address:
        assert devices(services, address) == NUMBERS


@pytest.mark.parametrize("local", [True, False])
def test_grpc_request_headers(services: Services, tmp_path: Path, local: bool) -> None:
    seen: dict[str, str] = {}

    def script(client: Client) -> None:
        seen.update((str(name), str(value)) for name, value in Decoder().decode(client.next(HEADERS, WHOLE)[1]))
        client.send(answer(client.request()))

    with server(script, path=str(tmp_path / "tpu.sock") if local else "") as address, deadline(TIMEOUT):
        devices(services, address)
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


def test_closed_connection_is_replaced(services: Services) -> None:
    def closing_after_an_answer(client: Client) -> None:
        client.send(frame(SETTINGS, 0, 0) + answer(client.request()))

    def leaving_during_a_call(client: Client) -> None:
        client.send(answer(client.request()))
        client.request()
        client.send(frame(GOAWAY, 0, 0, struct.pack(">II", 1, 0)))

    def leaving_after_the_answer(client: Client) -> None:
        client.send(answer(client.request()) + frame(GOAWAY, 0, 0, struct.pack(">II", 1, 0)))
        client.next(-1)

    scripts = (closing_after_an_answer, leaving_during_a_call, leaving_after_the_answer, closing_after_an_answer)
    with server(*scripts) as address:
        for _ in range(4):
            assert devices(services, address) == NUMBERS


def test_connection_is_replaced_after_many_calls(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """h2 remembers every closed stream."""
    monkeypatch.setattr(rpc, "_LAST_STREAM", 3)
    streams = []

    def script(client: Client) -> None:
        while True:
            streams.append(client.request())
            client.send(answer(streams[-1]))

    with server(script, script) as address:
        for _ in range(3):
            assert devices(services, address) == NUMBERS
        services.close()
    assert streams == [1, 3, 1]


@pytest.mark.parametrize("number", ["free", "the program's"])
def test_file_descriptor_closed_by_the_program_is_not_reused(services: Services, number: str) -> None:
    """The number may belong to a socket of the program by now: nothing is written to it, and it is not closed."""

    def once(client: Client) -> None:
        client.send(frame(SETTINGS, 0, 0) + answer(client.request()))
        client.next(-1)

    with server(once, once) as address:
        assert devices(services, address) == NUMBERS
        theirs, peer = socket.socketpair()
        channel = services._channels._connections[address]._socket
        assert channel is not None
        ours = channel.fileno()
        if number == "free":
            os.close(ours)
        else:
            os.dup2(theirs.fileno(), ours)
        theirs.close()
        assert devices(services, address) == NUMBERS
        services.close()
        with peer:
            peer.setblocking(False)
            if number == "free":
                assert peer.recv(1) == b"", "the peer of the other socket pair saw the end only"
            else:
                with pytest.raises(BlockingIOError):
                    peer.recv(1)
                os.close(ours)


def test_connection_lost_during_a_call_is_not_retried_again(services: Services) -> None:
    streams = []

    def dying(client: Client) -> None:
        streams.append(client.request())
        client.send(frame(HEADERS, WHOLE, 1, OK))

    with server(dying, dying) as address:
        for _ in range(2):
            with pytest.raises(DriverError) as refused:
                devices(services, address)
            assert refused.value.code == 14
    assert streams == [1, 1]


def trailers(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes((len(name),)) + name + bytes((len(value),)) + value


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (lambda s: frame(RESET, 0, s, b"\0\0\0\7"), 14, "HTTP/2 error 7"),
        (lambda s: frame(RESET, 0, s, b"\0\0\0\x0b"), 8, "HTTP/2 error 11"),
        (lambda s: frame(RESET, 0, s, b"\0\0\0\2"), 13, "HTTP/2 error 2"),
        (lambda s: frame(HEADERS, WHOLE | END, s, b"\x8d"), 12, "HTTP status 404"),
        (lambda s: frame(HEADERS, WHOLE | END, s, b"\x08\x03503"), 14, "HTTP status 503"),
        (lambda s: frame(HEADERS, WHOLE | END, s, b"\x8e"), 2, "HTTP status 500"),
        (
            lambda s: frame(HEADERS, WHOLE | END, s, b"\x88" + trailers(b"grpc-status", b"7")),
            7,
            "gRPC status 7 without a message",
        ),
        (
            lambda s: frame(HEADERS, WHOLE | END, s, b"\x88" + trailers(b"grpc-status", b"x")),
            2,
            "gRPC status 2 without",
        ),
        (
            lambda s: frame(
                HEADERS,
                WHOLE | END,
                s,
                b"\x88" + trailers(b"grpc-status", b"5") + trailers(b"grpc-message", b"no%20%C3%A9%0A%1B[31m \\o/%zz"),
            ),
            5,
            r"^no é \[31m \\o/%zz \(5\)$",
        ),
        (lambda s: frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\x0b"), 14, "closed the connection"),
    ],
)
def test_http2_reset_goaway_and_status_are_refused_with_a_reason(
    services: Services, data: Any, code: int, text: str
) -> None:
    with server(answering(data)) as address, pytest.raises(DriverError, match=text) as refused:
        devices(services, address)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda s: frame(HEADERS, WHOLE, s, b"\0\x01a\x05ab"), "header"),
        (lambda s: frame(HEADERS, 0, s, OK) + frame(CONTINUATION, 0, s) * 200, "continuation frames"),
        (lambda s: frame(DATA, 0, s, b"x" * ((1 << 14) + 1)), "overlong frame"),
        (lambda s: answer(s, b""), "not one message"),
        (lambda s: answer(s, b"\1" + BODY[1:]), "not one message"),
        (lambda s: answer(s, BODY[:-1]), "not one message"),
        (lambda s: answer(s, BODY + BODY), "not one message"),
        (lambda s: frame(HEADERS, WHOLE, s, OK) + frame(PING, 0, 0, b"12345678") * 100_000, "more than 1048576 bytes"),
    ],
    ids=["truncated headers", "drops", "large frame", "empty", "compressed", "short", "two", "pings"],
)
def test_invalid_answer_is_an_internal_error_and_the_next_call_succeeds(
    services: Services, data: Any, text: str
) -> None:
    with server(answering(data), answering(answer)) as address:
        with pytest.raises(DriverError, match=text) as refused:
            devices(services, address)
        assert refused.value.code == 13
        assert devices(services, address) == NUMBERS


def test_http_1_server_is_named_in_the_error(services: Services) -> None:
    def script(client: Client) -> None:
        client.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        client.next(-1)

    with server(script) as address, pytest.raises(DriverError, match="the server speaks HTTP/1"):
        devices(services, address)


@pytest.mark.parametrize("pause", [None, 0.02], ids=["silence", "one byte at a time"])
def test_call_ends_at_its_deadline(services: Services, pause: float | None) -> None:
    def script(client: Client) -> None:
        client.request()
        while pause:
            client.send(frame(PING, 0, 0, b"12345678"))
            time.sleep(pause)
        client.next(-1)

    with server(script) as address, deadline(0.1):
        begun = time.monotonic()
        with pytest.raises(DriverError, match=r"timed out after 0\.1 s") as refused:
            devices(services, address)
        assert refused.value.code == 4
        assert time.monotonic() - begun < 30, "the deadline is 0.1 s; the bound is for busy machines"


def test_call_without_time_left_fails_at_once(services: Services) -> None:
    with serving(busy()) as tpu, deadline(0.0), pytest.raises(DriverError, match="timed out after 0 s"):
        devices(services, tpu.address)


@PATIENT
@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_response_raises_driver_error_only(data: bytes, framed: bool) -> None:
    def script(client: Client) -> None:
        stream = client.request()
        client.send(frame(HEADERS, WHOLE | END, stream, data) if framed else data)

    with server(script) as address, closing(Services()) as services, pytest.raises(DriverError):
        devices(services, address)


def test_response_near_the_size_limit_is_read(services: Services) -> None:
    text = pb.MetricResponse(metric=pb.TPUMetric(description="y" * (rpc.MAX_MESSAGE - 100), metrics=doubles({3: 50.0})))
    with serving(FakeTpu({fields.DUTY_CYCLE: text.SerializeToString()})) as tpu:
        for _ in range(5):
            assert devices(services, tpu.address) == NUMBERS
