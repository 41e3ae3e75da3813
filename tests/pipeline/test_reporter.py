"""Which process of a job reports the host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware.pipeline import reporter as identity
from opentelemetry.instrumentation.hardware.pipeline.reporter import JOB

ME = os.getpid()


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that runs until its input is closed."""
    process = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)
        assert process.stdin is not None
        process.stdin.close()


def end(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def test_first_process_is_reporter_and_descendants_are_members(child: subprocess.Popen[bytes]) -> None:
    environ: dict[str, str] = {}
    assert not identity.join(environ, child.pid)
    assert environ == {JOB: identity.key(child.pid)}
    inherited = dict(environ)
    assert identity.is_member(inherited, ME)
    assert identity.join(inherited, ME)
    assert inherited == environ, "a member changed the key"


def test_join_is_idempotent(child: subprocess.Popen[bytes]) -> None:
    environ: dict[str, str] = {}
    for _ in range(2):
        assert not identity.join(environ, ME)
        assert environ == {JOB: identity.key(ME)}


def test_job_key_of_ended_reporter_is_replaced(child: subprocess.Popen[bytes]) -> None:
    environ: dict[str, str] = {}
    identity.join(environ, child.pid)
    end(child)
    child.wait(30)
    assert identity.start_time(child.pid) is None
    assert not identity.join(environ, ME)
    assert environ == {JOB: identity.key(ME)}


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the state of a process is read from /proc")
def test_zombie_reporter_has_ended(child: subprocess.Popen[bytes]) -> None:
    environ: dict[str, str] = {}
    identity.join(environ, child.pid)
    end(child)
    wait_for(lambda: identity.start_time(child.pid) is None, 30, "end of the child")
    assert os.path.exists(f"/proc/{child.pid}"), "the child was reaped"
    assert not identity.is_member(environ, ME)


def test_reused_pid_is_not_the_reporter(child: subprocess.Popen[bytes]) -> None:
    start_time = identity.start_time(child.pid)
    assert start_time is not None
    environ = {JOB: f"{child.pid}.{start_time}"}
    assert identity.is_member(environ, ME)
    for other in ("1", "", "None", start_time + "0", f"{start_time}.1"):
        environ = {JOB: f"{child.pid}.{other}"}
        assert not identity.is_member(environ, ME), f"start_time {other} instead of {start_time}"
        assert not identity.join(environ, ME)


@pytest.mark.parametrize(
    "garbage",
    [
        "",
        "x",
        ".",
        "1",
        "-1.5",
        "0.0",
        "²³.1",
        "1e3.4",
        "9" * 19 + ".1",
        "9" * 6000 + ".1",
        " 12.3",
        "\u0661.1",
        "a.b.c",
    ],
    ids=lambda text: repr(text[:12]),
)
def test_invalid_job_key_is_replaced(garbage: str) -> None:
    environ = {JOB: garbage}
    assert not identity.is_member(environ, ME)
    assert not identity.join(environ, ME)
    assert environ == {JOB: identity.key(ME)}


def test_leave_removes_only_own_job_key(child: subprocess.Popen[bytes]) -> None:
    environ = {"OTHER": "x"}
    identity.leave(environ, ME)
    identity.join(environ, ME)
    identity.leave(environ, child.pid)
    assert environ == {"OTHER": "x", JOB: identity.key(ME)}
    identity.leave(environ, ME)
    assert environ == {"OTHER": "x"}


def test_start_time_differs_between_processes(child: subprocess.Popen[bytes]) -> None:
    assert identity.start_time(ME) == identity.start_time(ME)
    assert identity.key(ME) != identity.key(child.pid)
    assert identity.key(ME).startswith(f"{ME}.")
