"""gRPC calls by the child: to servers in C++ and Go, and what happens to a child that dies, hangs or is cut off."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.support.children import descriptors
from tests.support.sink import Sink
from tests.support.waiting import wait_for
from tests.tools.collector import Collector
from tests.tools.daemon import free_addresses
from tests.tools.tpu import Code, FakeTpu, busy, deadline, doubles, pb, serving

from opentelemetry.instrumentation.hardware.drivers import DriverError, rpc
from opentelemetry.instrumentation.hardware.drivers.child import Child
from opentelemetry.instrumentation.hardware.sources.tpu import fields
from opentelemetry.instrumentation.hardware.sources.tpu.services import Services

NUMBERS = [{"labels": {"device-id": 3}, "value": 50.0, "distribution": None}]


@pytest.fixture
def services() -> Iterator[Services]:
    with closing(Services()) as made:
        yield made


def devices(services: Services, address: str) -> list[dict[str, Any]]:
    """The answer to a call."""
    return services.metric(address, fields.DUTY_CYCLE, skip_node_aggregation=False)


def one_device() -> FakeTpu:
    return FakeTpu({fields.DUTY_CYCLE: doubles({3: 50.0})})


def child_of(services: Services) -> Child:
    child = services._channels._child
    assert child is not None
    return child


def tool(services: Services) -> int:
    """The PID of the child itself, which is in a process group with the shells that wait for it."""
    found = []
    for each in psutil.process_iter(["name"]):
        with suppress(ProcessLookupError):
            if os.getpgid(each.pid) == child_of(services).pid and "python" in each.info["name"]:
                found.append(each.pid)
    (pid,) = found
    return pid


# -- servers


def test_go_grpc_server_answers_that_it_has_no_such_service(services: Services, tmp_path: Path) -> None:
    with Collector(tmp_path) as collector:
        for _ in range(2):
            with pytest.raises(DriverError) as refused:
                devices(services, collector.grpc.removeprefix("http://"))
            assert refused.value.code == 12
            assert refused.value.text == "unknown service tpu.monitoring.runtime.RuntimeMetricService"
        services.close()  # the Collector would wait 5 s for open connections at its end


@pytest.mark.parametrize("code", [code for code in Code if code not in (Code.OK, Code.DEADLINE_EXCEEDED)])
def test_grpc_status_code_and_message_are_kept(services: Services, code: Code) -> None:
    with serving(FakeTpu({fields.DUTY_CYCLE: code})) as tpu, pytest.raises(DriverError) as refused:
        devices(services, tpu.address)
    assert (refused.value.code, refused.value.text) == (code.value[0], "refused by the test")


def test_server_that_gives_up_at_the_deadline_is_a_timeout(services: Services) -> None:
    with serving(FakeTpu({fields.DUTY_CYCLE: Code.DEADLINE_EXCEEDED})) as tpu, pytest.raises(DriverError) as refused:
        devices(services, tpu.address)
    assert (refused.value.code, refused.value.text) == (4, "timed out after 30 s")


def test_call_ends_at_its_deadline(services: Services) -> None:
    with serving(busy()) as tpu, deadline(0.1):
        tpu.answering.clear()
        with pytest.raises(DriverError, match=r"timed out after 0\.1 s") as refused:
            devices(services, tpu.address)
    assert refused.value.code == 4


@pytest.mark.parametrize("place", ["127.0.0.1:0", "[::1]:0"])
def test_localhost_tries_ipv4_and_ipv6(services: Services, place: str) -> None:
    if "::" in place and not os.path.exists("/proc/net/if_inet6"):
        pytest.skip("this machine has no IPv6")
    with serving(busy(), place) as tpu:
        assert devices(services, f"localhost:{tpu.port}")
        assert devices(services, place.replace(":0", f":{tpu.port}"))


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("n" * 64 + ":8431", "Misformatted|Domain name|[a-z]"),
        ("unix:/nowhere/tpu.sock", "No such file or directory"),
        ("free", "Connection refused"),
    ],
)
def test_unreachable_address_is_refused_with_a_short_reason(services: Services, place: str, why: str) -> None:
    with pytest.raises(DriverError, match=why) as refused:
        devices(services, free_addresses(1)[0] if place == "free" else place)
    assert refused.value.code == 14
    assert len(refused.value.text) < 60


def test_runtime_that_starts_later_is_reached_at_the_next_call(services: Services) -> None:
    """grpcio alone would wait for up to two minutes before it connects again."""
    address = free_addresses(1)[0]
    for _ in range(5):
        with pytest.raises(DriverError):
            devices(services, address)
    with serving(one_device(), address):
        assert devices(services, address) == NUMBERS
    with pytest.raises(DriverError):
        devices(services, address)
    with serving(one_device(), address):
        assert devices(services, address) == NUMBERS


def test_proxy_of_the_program_is_not_used(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")
    with serving(one_device()) as tpu:
        assert devices(services, tpu.address) == NUMBERS


def test_answer_near_the_size_limit_is_read_and_a_longer_one_is_refused(services: Services) -> None:
    def padded(size: int) -> FakeTpu:
        metric = pb.TPUMetric(description="y" * size, metrics=doubles({3: 50.0}))
        return FakeTpu({fields.DUTY_CYCLE: pb.MetricResponse(metric=metric).SerializeToString()})

    with serving(padded(rpc.MAX_MESSAGE - 100)) as tpu:
        for _ in range(5):
            assert devices(services, tpu.address) == NUMBERS
    with serving(padded(rpc.MAX_MESSAGE)) as tpu, pytest.raises(DriverError, match="larger than max") as refused:
        devices(services, tpu.address)
    assert refused.value.code == 8


def test_server_of_another_protocol_is_an_error(services: Services) -> None:
    with Sink() as sink, pytest.raises(DriverError) as refused:
        devices(services, sink.environment()["OTEL_EXPORTER_OTLP_ENDPOINT"].removeprefix("http://"))
    assert refused.value.code == 14


# -- the child


def test_child_is_reused_and_ended() -> None:
    with serving(busy()) as tpu:
        services = Services()
        devices(services, tpu.address)
        child, requests = child_of(services), services._channels._requests
        assert requests is not None
        held = {descriptors()[str(number)] for number in (requests.fileno(), *child._pipes)}
        for _ in range(20):
            devices(services, tpu.address)
        assert child_of(services) is child
        services.close()
        assert child.has_exited()
        assert not held & {*descriptors().values()}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_child_that_dies_or_hangs_costs_one_call(
    services: Services, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "_GRACE", 0.1)
    with serving(one_device()) as tpu:
        assert devices(services, tpu.address) == NUMBERS
        os.kill(tool(services), number)
        if number == signal.SIGKILL:
            wait_for(lambda: child_of(services).has_exited(), 30, "end of the child")
        with deadline(0.5), pytest.raises(DriverError, match=r"the gRPC client|pipe|reset") as failed:
            devices(services, tpu.address)
        assert failed.value.code == 13
        assert devices(services, tpu.address) == NUMBERS


def test_dead_child_does_not_end_a_program_that_resets_sigpipe(services: Services) -> None:
    before = signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        with serving(one_device()) as tpu:
            assert devices(services, tpu.address) == NUMBERS
            os.killpg(child_of(services).pid, signal.SIGKILL)
            wait_for(lambda: child_of(services).has_exited(), 30, "end of the child")
            with pytest.raises(DriverError):
                devices(services, tpu.address)
    finally:
        signal.signal(signal.SIGPIPE, before)


@pytest.mark.parametrize("number", ["free", "the program's"])
def test_file_descriptor_closed_by_the_program_is_not_reused(services: Services, number: str) -> None:
    """The number may belong to a socket of the program by now: nothing is written to it, and it is not closed."""
    with serving(one_device()) as tpu:
        assert devices(services, tpu.address) == NUMBERS
        theirs, peer = socket.socketpair()
        assert services._channels._requests is not None
        ours = services._channels._requests.fileno()
        if number == "free":
            os.close(ours)
        else:
            os.dup2(theirs.fileno(), ours)
        theirs.close()
        with pytest.raises(DriverError, match="the program closed the connection"):
            devices(services, tpu.address)
        assert devices(services, tpu.address) == NUMBERS
        services.close()
        with peer:
            peer.setblocking(False)
            if number == "free":
                assert peer.recv(1) == b"", "the peer of the other socket pair saw the end only"
            else:
                with pytest.raises(BlockingIOError):
                    peer.recv(1)
                os.close(ours)


def test_grpcio_is_not_found_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "grpc.py").touch()
    program = f"from {rpc.__name__} import _PACKAGE; print(_PACKAGE.origin)"
    found = subprocess.check_output([sys.executable, "-c", program], text=True, cwd=tmp_path)
    assert Path(found).parent.name == "grpc", "it is the current folder's"


def test_grpcio_is_found_where_the_program_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be in a folder that only PYTHONPATH or the user's site adds, from which the child is isolated."""
    monkeypatch.setattr(rpc, "python_executable", lambda: os.path.realpath(sys.executable))  # not in the environment
    with serving(one_device()) as tpu, closing(Services()) as services:
        assert devices(services, tpu.address) == NUMBERS
