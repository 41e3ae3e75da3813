"""`otel-hardware mcp`, with the official client of the Model Context Protocol, and with lines that it never sends."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters, stdio_client
from tests.support.children import PATIENCE, environment, run, started

SIMULATED = ("--simulate", "2xH100:storage", "--simulate-speed", "30")


def with_client(use: Callable[[ClientSession], Awaitable[Any]], *flags: str) -> Any:
    """Return what a function gets from a server that the client started."""
    line = ["-m", "opentelemetry.instrumentation.hardware", "mcp", *flags]

    async def connect() -> Any:
        server = StdioServerParameters(command=sys.executable, args=line, env=environment())
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            return await use(session)

    return asyncio.run(connect())


def called(name: str, *flags: str, **arguments: object) -> tuple[Any, bool]:
    """Return the answer of a tool, and whether it is an error."""

    async def use(session: ClientSession) -> Any:
        return await session.call_tool(name, arguments)

    result = with_client(use, *flags)
    (content,) = result.content
    return (content.text if result.is_error else json.loads(content.text)), result.is_error


def answers(*lines: object) -> list[Any]:
    """Return the replies to lines on stdin."""
    line = [sys.executable, "-m", "opentelemetry.instrumentation.hardware", "mcp"]
    text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines)
    with started(line) as server:
        out, err = server.communicate(text, timeout=PATIENCE)
    assert (server.returncode, err) == (0, "")
    return [json.loads(each) for each in out.splitlines()]


def test_line_that_is_no_utf_8_gets_an_error() -> None:
    line = [sys.executable, "-m", "opentelemetry.instrumentation.hardware", "mcp"]
    ping = b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n'
    env = environment({"PYTHONIOENCODING": "utf-8:strict"})  # as with the locale of a user
    ended = subprocess.run(line, input=b"\xff\n" + ping, env=env, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert [each.get("id") for each in map(json.loads, ended.stdout.splitlines())] == [None, 1]


def test_closed_stdin_is_the_end() -> None:
    ended = run(["sh", "-c", "otel-hardware mcp <&-"])
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_descriptor_0_is_not_read_if_python_has_no_stdin() -> None:
    """Some Pythons start with their executable as descriptor 0 if stdin is closed."""
    code = "import sys; sys.stdin = None; from opentelemetry.instrumentation.hardware.cli import main; main(['mcp'])"
    with open(sys.executable) as executable:
        ended = subprocess.run([sys.executable, "-c", code], stdin=executable, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_client_finds_three_tools_that_only_read() -> None:
    found = with_client(lambda session: session.list_tools())
    assert [tool.name for tool in found.tools] == ["snapshot", "why", "doctor"]
    assert all(tool.annotations.read_only_hint for tool in found.tools)


def test_snapshot_returns_the_metrics_that_are_asked_for() -> None:
    found, is_error = called("snapshot", *SIMULATED, metrics="hw.gpu.utilizatio?")
    assert not is_error
    assert {each["name"] for each in found["metrics"]} == {"hw.gpu.utilization"}
    assert len({each["attributes"]["hw.id"] for each in found["metrics"]}) == 2


def test_why_returns_verdicts_with_their_evidence() -> None:
    found, is_error = called("why", *SIMULATED)
    assert not is_error
    assert [each["bottleneck"] for each in found] == ["storage", "storage"]
    assert found[0]["evidence"]


def test_simulated_machine_goes_on_after_why() -> None:
    async def use(session: ClientSession) -> list[float]:
        assert not (await session.call_tool("why", {"for": 40})).is_error
        results: list[Any] = [await session.call_tool("snapshot", {"metrics": "hw.energy"}) for _ in range(2)]
        return [json.loads(each.content[0].text)["metrics"][0]["value"] for each in results]

    first, second = with_client(use, *SIMULATED)
    assert second > first > 0


def test_doctor_returns_findings() -> None:
    found, is_error = called("doctor", *SIMULATED)
    assert not is_error
    assert any(each["subject"] == "nvidia" and each["state"] == "ok" for each in found["findings"])


@pytest.mark.parametrize(
    ("tool", "arguments", "text"),
    [
        ("why", {"for": 5}, "--for: 5 s are too few"),
        ("why", {"pid": 4194305}, "there is no process 4194305"),
        ("why", {"nonsense": 1}, "unknown argument nonsense; there are: for, pid"),
        ("snapshot", {"preset": "most"}, "'most' is not minimal, standard or all"),
    ],
)
def test_wrong_argument_gets_a_sentence(tool: str, arguments: dict[str, object], text: str) -> None:
    found, is_error = called(tool, *SIMULATED, **arguments)
    assert is_error
    assert text in found


def test_lines_that_no_client_sends_get_errors_and_the_server_goes_on() -> None:
    def call(method: object, **parameters: object) -> dict[str, object]:
        return {"jsonrpc": "2.0", "id": method, "method": method, "params": parameters}

    found = answers(
        "not JSON",
        "",
        [],
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call("server/discover"),
        {"jsonrpc": "2.0", "id": "list", "method": "ping", "params": [1]},
        call("tools/call", name="reboot"),
        call("tools/call", name="doctor", arguments=[1]),
        call("initialize", protocolVersion="2024-11-05"),
        call("initialize", protocolVersion="1999-01-01"),
        call("ping"),
    )
    errors = [each["error"]["code"] for each in found if "error" in each]
    assert errors == [-32700, -32600, -32601, -32602, -32602, -32602]
    versions = [each["result"].get("protocolVersion") for each in found if "result" in each]
    assert versions == ["2024-11-05", "2025-11-25", None]
