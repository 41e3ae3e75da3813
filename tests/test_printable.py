"""Text from outside reaches no terminal and no log with characters that a terminal obeys."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.children import run
from tests.support.web import Web, page

from opentelemetry.instrumentation.hardware import agent
from opentelemetry.instrumentation.hardware.redaction import printable, redacted

MARK = "\x1b]0;mark\x07\x9b31m\u202emark"  # sets the title of a terminal and its color, and reverses the text

OTEL_HARDWARE = [sys.executable, "-m", "opentelemetry.instrumentation.hardware"]
PAGE = "OTEL_PYTHON_HARDWARE_OPENMETRICS"


def shown(line: list[str], env: dict[str, str]) -> str:
    """What a command prints. It has to contain the mark, but nothing of it that a terminal obeys."""
    outcome = run(line, env)
    text = outcome.stdout + outcome.stderr
    assert "mark" in text, text
    assert [each for each in text if not each.isprintable() and each not in "\n\r"] == []
    return text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, ümläut, 漢字, 😀", "plain, ümläut, 漢字, 😀"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b31m", "\\x9b31m"),
        ("one\ntwo\r\t", "one\\ntwo\\r\\t"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\udc80", "\\udc80"),
    ],
)
def test_what_is_not_printable_is_escaped(text: str, expected: str) -> None:
    assert printable(text) == redacted(text) == expected


@pytest.mark.parametrize("command", ["snapshot", "doctor"])
def test_label_of_a_page(command: str) -> None:
    body = f'evil{{l="{MARK}",m="a\\nb"}} 1\nevil{{l="mark"}} 2\n'
    with Web(page(body)) as web:
        env = {PAGE: f"e={web.url}"}
        arguments = [command, "--sources", "openmetrics"]
        outcome = run([*OTEL_HARDWARE, *arguments], env)
    text = outcome.stdout + outcome.stderr
    assert [each for each in text if not each.isprintable() and each != "\n"] == []
    assert command == "doctor" or "mark" in text


def test_header_of_a_page() -> None:
    with Web(page("x 1\n", Content_Encoding="\x1b]0;mark\x07")) as web:
        shown([*OTEL_HARDWARE, "snapshot", "--sources", "openmetrics"], {PAGE: f"e={web.url}"})


def test_name_of_a_setting() -> None:
    shown([*OTEL_HARDWARE, "snapshot"], {"OTEL_PYTHON_HARDWARE_SOURCES": MARK})


def test_last_words_of_a_tool(tmp_path: Path) -> None:
    tool = tmp_path / "neuron-monitor"
    tool.write_text(f"#!/bin/sh\nprintf '%s\\n' '{MARK}' >&2\nexit 3\n")
    tool.chmod(0o755)
    env = {"OTEL_PYTHON_HARDWARE_NEURON_MONITOR": os.fspath(tool)}
    shown([*OTEL_HARDWARE, "snapshot", "--sources", "trainium"], env)


def test_standard_error_of_an_agent(caplog: pytest.LogCaptureFixture) -> None:
    class Printed:
        stderr = bytearray(MARK.encode())

    agent.Agent({}, dict, lambda: None, lambda: None)._log(Printed)  # type: ignore[arg-type]
    assert caplog.messages == [f"Agent: {printable(MARK)}"]
