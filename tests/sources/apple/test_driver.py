"""The tools of a Mac as real children: named by path, missing, failing, hanging."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.sources.macs import MACMONS, fake_macmon, mac
from tests.sources.playing import Ahead
from tests.sources.reading import all_of, often, opened, value
from tests.support.children import PROGRAMS
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.child import Output
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.apple import Apple

GPU = {c.HW_ID: "gpu0", c.HW_NAME: "GPU 0"}
TYPED = {**GPU, c.HW_TYPE: "gpu"}
GENERAL = {**GPU, c.GPU_TASK: "general"}
LONG = 60.0
TOOLS = ("apple_gpu_stats", "macmon", "ioreg")

posix = pytest.mark.skipif(sys.platform == "win32", reason="starts a tool as POSIX has it")


@pytest.fixture
def tool(tmp_path: Path) -> Callable[..., str]:
    """Write a substitute for a tool that works or fails in some way, and return its path."""

    def make(name: str, how: str = "works") -> str:
        path = tmp_path / name
        line = f'{sys.executable} {PROGRAMS / "tools/apple_tool.py"} {name} {how} "$@"'
        version = "" if how == "hangs" else '[ "$1" = --version ] && exec echo macmon 0.8.2'
        path.write_text(f"#!/bin/sh\n{version}\nAPPLE_FOLDER={tmp_path} exec {line}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture(autouse=True)
def timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timeouts for tools that hang; for all others as long as a busy machine needs."""
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.drivers.streaming._FIRST_LINE", LONG)
    run, read = Command.run, StreamingCommand.read

    def is_made(command: Command, how: str) -> bool:
        return f" {how} " in Path(command._path).read_text()

    def run_to_its_end(command: Command, arguments: Sequence[str], seconds: float) -> Output:
        return run(command, arguments, 0.1 if is_made(command, "hangs") else LONG)

    def listen(stream: StreamingCommand, seconds: float = 0.0) -> list[bytes]:
        return read(stream, 0.1 if is_made(stream._command, "silent") else LONG if seconds else 0.0)

    monkeypatch.setattr(Command, "run", run_to_its_end)
    monkeypatch.setattr(StreamingCommand, "read", listen)


@posix
def test_no_tool_is_run_on_other_systems_unless_named(
    tool: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in TOOLS:
        tool(name)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(Drivers, "command", None)
    monkeypatch.setattr(Drivers, "stream", None)
    if sys.platform == "darwin":
        pytest.skip("this is a Mac")
    with pytest.raises(Unavailable, match=r"^this is not a Mac$"), opened("apple"):
        pass
    assert not Apple.prepare(Config())


@posix
def test_each_tool_can_be_named_by_its_path(tool: Callable[..., str]) -> None:
    with opened("apple", apple_gpu_stats=tool("apple_gpu_stats")) as source:
        points = all_of(source)
        assert value(points, c.HW_GPU_UTILIZATION, GENERAL) == 0.3
        assert value(points, c.HW_POWER, TYPED) == 7.5
        assert source.readings()[0].apart == 10.0
    with opened("apple", ioreg=tool("ioreg")) as source:
        points = all_of(source)
        assert value(points, c.HW_GPU_UTILIZATION, GENERAL) == 0.2
        assert value(points, c.HW_GPU_MEMORY_USAGE, GPU) == 300_000_000
        assert any("hw.power of GPU 0" in sentence and "ioreg" in sentence for sentence in source.unsupported)
    with opened("apple", macmon=tool("macmon"), sample_interval="1") as source:
        points = all_of(source)
        assert value(points, c.HW_GPU_UTILIZATION, GENERAL) == 0.5
        assert value(points, c.HW_HOST_POWER, {c.HW_ID: "host", c.HW_NAME: "machine"}) == 11.0
        assert source.readings()[0].apart == 1.0
        wait_for(lambda: often(source), LONG, "another line")


@pytest.mark.parametrize("devices", ["1", "process", "visible", "GPU-8f6a"])
def test_devices_setting_does_not_apply(devices: str, caplog: pytest.LogCaptureFixture) -> None:
    drivers = mac(macmon=fake_macmon("0.6.1", [json.dumps(MACMONS["0.6.1"](1, 0)).encode()]))
    with opened("apple", drivers, sample_interval=10, devices=devices) as source:
        assert value(all_of(source), c.HW_POWER, TYPED) == 5.0
        assert not [sentence for sentence in source.unsupported if "DEVICES" in sentence]
    assert caplog.messages == []


@posix
def test_named_tools_are_tried_in_order_of_preference(tool: Callable[..., str]) -> None:
    named: dict[str, Any] = {name: tool(name) for name in TOOLS}
    with opened("apple", **named) as source:
        assert value(all_of(source), c.HW_POWER, TYPED) == 7.5
    with opened("apple", **{**named, "apple_gpu_stats": "off"}) as source:
        assert value(all_of(source), c.HW_POWER, TYPED) == 2.5


FAULTS = {
    ("apple_gpu_stats", "dies"): "apple_gpu_stats: the tool printed",
    ("apple_gpu_stats", "refuses"): "apple_gpu_stats: the tool printed nothing",
    ("macmon", "hangs"): "macmon timed out after 0.1 s",
    ("macmon", "silent"): "macmon printed nothing",
    ("macmon", "refuses"): "macmon exited: no such sensor",
}


@posix
@pytest.mark.usefixtures("no_child_is_left")
@pytest.mark.parametrize(("name", "how"), FAULTS, ids=map(" ".join, FAULTS))
def test_failing_tool_falls_back_to_ioreg(tool: Callable[..., str], name: str, how: str) -> None:
    settings: dict[str, Any] = {name: tool(name, how), "ioreg": tool("ioreg")}
    with opened("apple", **settings) as source:
        points = all_of(source)
        assert value(points, c.HW_GPU_MEMORY_USAGE, GPU) == 300_000_000
        (sentence,) = [each for each in source.unsupported if "ioreg is used instead" in each]
        assert FAULTS[name, how] in sentence


@posix
@pytest.mark.parametrize("how", ["dies", "garbage"])
def test_failing_ioreg_raises_an_error_that_is_retried(tool: Callable[..., str], how: str) -> None:
    with pytest.raises(OSError, match="ioreg"), opened("apple", ioreg=tool("ioreg", how)):
        pass
    with opened("apple", ioreg=tool("ioreg")) as source:
        assert all_of(source)
        tool("ioreg", how)
        with pytest.raises((OSError, ValueError), match="ioreg"):
            list(source.read())


@posix
@pytest.mark.parametrize("name", ["apple_gpu_stats", "macmon"])
def test_garbage_before_the_document_is_skipped(tool: Callable[..., str], name: str) -> None:
    settings: dict[str, Any] = {name: tool(name, "garbage"), "sample_interval": "1"}
    with opened("apple", **settings) as source:
        assert value(all_of(source), c.HW_POWER, TYPED) in (7.5, 2.5)


def test_macmon_is_given_up_after_21_lines_of_garbage() -> None:
    line = json.dumps(MACMONS["0.6.1"](1, 0)).encode()
    drivers = mac(macmon=fake_macmon("0.6.1", [*[b"garbage"] * 20, line]))
    with opened("apple", drivers, sample_interval=10) as source:
        assert all_of(source)
    drivers = mac(macmon=fake_macmon("0.6.1", [*[b"garbage"] * 21, line]))
    with (
        pytest.raises(OSError, match="macmon: the tool printed 'garbage'"),
        opened("apple", drivers, sample_interval=10),
    ):
        pass


@posix
def test_failure_and_recovery_of_macmon_are_logged_once_each(
    tool: Callable[..., str], caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "opentelemetry.instrumentation.hardware")
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.pipeline.runner.RETRY", (0.1, 0.1))
    settings = {"sources": "apple", "macmon": tool("macmon", "dies"), "sample_interval": "1"}
    drivers = Ahead()
    session = Session(Config.read(settings, {}), drivers=lambda name: drivers)
    session.start()
    try:
        (runner,) = session.runners
        wait_for(lambda: runner.state is State.FAILED, LONG, "macmon's end")
        tool("macmon")
        drivers.seconds += 2  # until then macmon is not started again: the pause is one second
        wait_for(lambda: runner.state is State.UP, LONG, "macmon's return")
    finally:
        session.close()
    assert [record.getMessage() for record in caplog.records] == [
        "Source apple: ChildProcessError: macmon exited; its metrics are missing until it recovers",
        "Source apple has recovered",
    ]
    wait_for(lambda: not [*_running(tmp_path)], LONG, "end of macmon")


def _running(folder: Path) -> Iterator[int]:
    """The running tools of this test; another process may run the same test."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            settings = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if os.fsencode(f"APPLE_FOLDER={folder}") in settings.split(b"\0"):
            yield int(pid)
