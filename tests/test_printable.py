"""Text from outside reaches no terminal and no log with characters that a terminal obeys."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.support.children import run
from tests.support.web import Web, page

from opentelemetry.instrumentation.hardware import agent
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.settings.redaction import printable, redacted

MARK = "\x1b]0;mark\x07\x9b31m\u202emark"  # sets the title of a terminal and its color, and reverses the text

OTEL_HARDWARE = [sys.executable, "-m", "opentelemetry.instrumentation.hardware"]
PAGE = "OTEL_PYTHON_HARDWARE_OPENMETRICS"

# Shows what is logged as it is.
PROGRAM = [
    sys.executable,
    "-c",
    "import logging; logging.basicConfig()\n"
    "from opentelemetry.instrumentation.hardware import HardwareInstrumentor\n"
    "from opentelemetry.sdk.metrics import MeterProvider\n"
    "from opentelemetry.sdk.metrics.export import InMemoryMetricReader\n"
    "HardwareInstrumentor().instrument(meter_provider=MeterProvider([InMemoryMetricReader()]))\n"
    "HardwareInstrumentor()._telemetry.session.read_now(10)\n",
]


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


@pytest.mark.parametrize("form", ["table", "csv", "json", "otlp-json"])
def test_names_of_a_page(form: str) -> None:
    with Web(page(f'{{"ev{MARK}il","l{MARK}"="1"}} 1\n')) as web:
        shown([*OTEL_HARDWARE, "snapshot", "--sources", "openmetrics", "--format", form], {PAGE: f"e={web.url}"})


def test_header_of_a_page() -> None:
    with Web(page("x 1\n", Content_Encoding="\x1b]0;mark\x07")) as web:
        shown([*OTEL_HARDWARE, "snapshot", "--sources", "openmetrics"], {PAGE: f"e={web.url}"})


@pytest.mark.parametrize("name", ["OTEL_PYTHON_HARDWARE_SOURCES", f"OTEL_PYTHON_HARDWARE_{MARK}"])
def test_name_or_value_of_a_setting(name: str) -> None:
    shown([*OTEL_HARDWARE, "snapshot"], {name: MARK})
    shown(PROGRAM, {name: MARK})


def test_name_of_a_setting_in_code(caplog: pytest.LogCaptureFixture) -> None:
    Config(**{MARK: 1})
    (message,) = caplog.messages
    assert message.startswith(f"{printable(MARK)} is not a setting")


def test_folder_of_locks(tmp_path: Path) -> None:
    folder = tmp_path / MARK
    folder.mkdir()
    folder.chmod(0o777)
    shown(PROGRAM, {"XDG_RUNTIME_DIR": os.fspath(folder), "RANK": "0", "WORLD_SIZE": "2"})


def test_last_words_of_a_tool(tmp_path: Path) -> None:
    tool = tmp_path / "neuron-monitor"
    tool.write_text(f"#!/bin/sh\nprintf '%s\\n' '{MARK}' >&2\nexit 3\n")
    tool.chmod(0o755)
    env = {"OTEL_PYTHON_HARDWARE_NEURON_MONITOR": os.fspath(tool)}
    shown([*OTEL_HARDWARE, "snapshot", "--sources", "trainium"], env)


def test_standard_error_of_an_agent(caplog: pytest.LogCaptureFixture) -> None:
    class Printed:
        stderr = bytearray(MARK.encode())

    last = agent.Agent({}, dict, lambda: None, lambda: None)._log(Printed)  # type: ignore[arg-type]
    assert last == printable(MARK), "it is the reason why an agent ended"
    assert caplog.messages == [f"Agent: {printable(MARK)}"]
