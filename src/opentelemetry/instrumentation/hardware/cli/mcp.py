"""``otel-hardware mcp``: a server for agents, which speaks the Model Context Protocol over stdin and stdout.

The protocol is JSON-RPC 2.0 with a message on each line: https://modelcontextprotocol.io/specification. A tool is a
command of ours with ``--format json``.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import fields
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any, Final, NamedTuple

from opentelemetry.instrumentation.hardware.cli import doctor, settings, snapshot, why
from opentelemetry.instrumentation.hardware.cli.messages import Mistake
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.redaction import redacted
from opentelemetry.instrumentation.hardware.version import __version__

HELP = "serve values, bottlenecks and findings to agents (MCP)"

DESCRIPTION = """\
A server of the Model Context Protocol on stdin and stdout, for coding agents and other MCP clients. Its tools only
read: snapshot (values now), why (what holds each GPU back) and doctor (what is found, missing or wrong).

example: the client runs 'otel-hardware mcp' if its list of servers has
  {"mcpServers": {"hardware": {"command": "otel-hardware", "args": ["mcp"]}}}

exit status: 0 when the client closes stdin; 2 for wrong arguments.
"""

# The newest one is offered to a client that asks for another one.
_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

_INVALID_JSON, _INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS = -32700, -32600, -32601, -32602


class _Tool(NamedTuple):
    """A command as a tool. Its flags are the properties of the schema."""

    command: ModuleType
    description: str
    properties: Mapping[str, Mapping[str, Any]]


_SECONDS: Final = {"type": "number", "minimum": 40, "maximum": 600, "default": 45}
_TOOLS: Final[Mapping[str, _Tool]] = {
    "snapshot": _Tool(
        snapshot,
        "Values of this machine now: GPUs, other accelerators, CPU, memory, disks, network, processes. Names and units "
        "are those of the OpenTelemetry semantic conventions. A value that is not known is absent; 'missing' says why.",
        {
            "preset": {"enum": ["minimal", "standard", "all"], "default": "minimal", "description": "how much"},
            "metrics": {
                "type": "string",
                "default": "*",
                "description": "names to return, with * and ?, such as hw.gpu.* or hw.errors",
            },
        },
    ),
    "why": _Tool(
        why,
        "What holds each GPU back: a verdict with the figures behind it, their thresholds, and the next step. Watches "
        "for some seconds before it answers. Experimental.",
        {
            "for": {**_SECONDS, "description": "seconds to watch"},
            "pid": {"type": "integer", "description": "the program; default: the process that uses the GPUs"},
        },
    ),
    "doctor": _Tool(doctor, "Which sources of this machine work, what is missing or wrong, and what to do.", {}),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "otel-hardware mcp [flags]"
    settings.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """Answer requests until stdin is closed."""
    replies = sys.stdout
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    with redirect_stdout(sys.stderr):  # what a library prints must not get among the replies
        for line in sys.stdin:
            reply = _reply(line, arguments) if line.strip() else None
            if reply is not None:
                print(json.dumps({"jsonrpc": "2.0", **reply}), file=replies, flush=True)
    return 0


def _reply(line: str, arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return the reply to a message; None for a notification or a reply of the client."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return _error(None, _INVALID_JSON, "the line is not JSON")
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        if isinstance(message, dict) and ("result" in message or "error" in message):
            return None
        return _error(None, _INVALID_REQUEST, "the message is not a request")
    if "id" not in message:
        return None
    method, parameters = message["method"], message.get("params") or {}
    if not isinstance(parameters, dict):
        return _error(message["id"], _INVALID_PARAMS, "params is not an object")
    if method == "initialize":
        version = parameters.get("protocolVersion")
        result: dict[str, Any] = {
            "protocolVersion": version if version in _VERSIONS else _VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "otel-hardware", "version": __version__},
        }
    elif method == "ping":
        result = {}
    elif method == "tools/list":
        result = {
            "tools": [
                {
                    "name": name,
                    "description": tool.description,
                    "inputSchema": {"type": "object", "properties": tool.properties, "additionalProperties": False},
                    "annotations": {"readOnlyHint": True, "openWorldHint": False},
                }
                for name, tool in _TOOLS.items()
            ]
        }
    elif method == "tools/call":
        name = parameters.get("name")
        if not isinstance(name, str) or name not in _TOOLS:
            return _error(message["id"], _INVALID_PARAMS, f"there is no tool {name!r}, only {', '.join(_TOOLS)}")
        given = parameters.get("arguments") or {}
        if not isinstance(given, dict):
            return _error(message["id"], _INVALID_PARAMS, "arguments is not an object")
        text, is_error = _call(_TOOLS[name], given, arguments)
        result = {"content": [{"type": "text", "text": text}], "isError": is_error}
    else:
        return _error(message["id"], _NO_METHOD, f"{method} is not supported")
    return {"id": message["id"], "result": result}


def _error(identity: Any, code: int, text: str) -> dict[str, Any]:
    return {"id": identity, "error": {"code": code, "message": text}}


def _call(tool: _Tool, given: Mapping[str, Any], arguments: argparse.Namespace) -> tuple[str, bool]:
    """Run a command with our settings and the arguments of a call.

    Returns:
        Its JSON and False, or a sentence about what went wrong and True.
    """
    unknown = [*given.keys() - tool.properties.keys()]
    if unknown:
        return f"unknown argument {', '.join(unknown)}; there are: {', '.join(tool.properties) or 'none'}", True
    values: dict[str, Any] = {name: schema.get("default") for name, schema in tool.properties.items()}
    values |= given
    metrics = str(values.pop("metrics", "*"))
    line = [word for name, value in values.items() if value is not None for word in (f"--{name}", str(value))]
    parser = argparse.ArgumentParser(exit_on_error=False)
    tool.command.add_arguments(parser)
    output = io.StringIO()
    try:
        called = parser.parse_args([*line, "--format", "json"])
        for setting in fields(Config):
            if getattr(called, setting.name) is None:
                setattr(called, setting.name, getattr(arguments, setting.name))
        with redirect_stdout(output):
            tool.command.run(called)
    except (Mistake, argparse.ArgumentError) as error:
        return str(error), True
    except Exception as error:  # the next call may work
        return f"{type(error).__name__}: {redacted(str(error))}", True
    answer = json.loads(output.getvalue())
    if "metrics" in tool.properties:
        answer["metrics"] = [each for each in answer["metrics"] if fnmatchcase(each["name"], metrics)]
    return json.dumps(answer), False
