"""Signals amid the first moments of ``otel-hardware``, which it spends importing."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress

import pytest
from tests.children import PATIENCE, command, in_pid_namespace, run, started

COMMANDS = ["metrics", "snapshot --window 0.1", "run --console --duration 0.1"]
NO_COLLECTOR = {"OTEL_METRICS_EXPORTER": "none"}
OURS = os.path.join("instrumentation", "hardware")

FIRST = 5
"""The import that is the first in our own code: before it Python imports us, and it is Python that answers."""

MINDED = 50
"""By then the signal ends the process itself."""


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("milliseconds", [10, 30, 60, 100, 150, 200, 300, 500])
def test_whenever_it_comes_no_line_of_ours_is_in_a_traceback(line: str, milliseconds: int) -> None:
    with started(["otel-hardware", *line.split()], NO_COLLECTOR) as child:
        with suppress(subprocess.TimeoutExpired):
            child.wait(milliseconds / 1000)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=PATIENCE)
    assert OURS not in err


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("number", [FIRST, 7, 9, 12, 15, 30, 50, 80])
def test_amid_any_import_it_ends_and_says_nothing(line: str, number: int) -> None:
    answer = run(command("interrupted", int(signal.SIGINT), number, *line.split()), NO_COLLECTOR)
    assert answer.stderr == ""
    ended = (-signal.SIGINT,) if number >= MINDED else (-signal.SIGINT, 130)
    assert answer.returncode in ended, "by the signal: an exception amid an import may be taken for another"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_process_of_a_container_ends_too(number: int) -> None:
    answer = run([*in_pid_namespace("--mount-proc"), *command("interrupted", int(number), 50, "metrics")])
    assert (answer.returncode, answer.stdout, answer.stderr) == (128 + number, "", "")


def test_where_it_is_ignored_it_changes_nothing() -> None:
    line = [
        "sh",
        "-c",
        "trap '' INT; exec \"$@\"",
        "sh",
        *command("interrupted", int(signal.SIGINT), 50, "metrics", "system.uptime"),
    ]
    answer = run(line)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "system.uptime" in answer.stdout
