"""Signals to `otel-hardware` while it imports."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import ExitStack, suppress

import pytest
from tests.support.children import PATIENCE, command, in_pid_namespace, run, started

COMMANDS = ["metrics", "snapshot --window 0.05", "run --console --duration 0.05"]
NO_COLLECTOR = {"OTEL_METRICS_EXPORTER": "none"}
OURS = os.path.join("instrumentation", "hardware")

MILLISECONDS = [10, 30, 60, 100, 150, 200, 300, 500]  # any times will do: what is asserted holds always

FIRST = 5  # the import that is the first in our own code: before it, Python itself handles the signal

HANDLED = 50  # by then the signal ends the process itself


@pytest.mark.parametrize("line", COMMANDS)
def test_sigint_at_any_time_leaves_no_line_of_ours_in_a_traceback(line: str) -> None:
    with ExitStack() as stack:
        begun = time.monotonic()
        children = [stack.enter_context(started(["otel-hardware", *line.split()], NO_COLLECTOR)) for _ in MILLISECONDS]
        for child, milliseconds in zip(children, MILLISECONDS):
            with suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, begun + milliseconds / 1000 - time.monotonic()))
            child.send_signal(signal.SIGINT)
        for child in children:
            _, err = child.communicate(timeout=PATIENCE)
            # Python's own import system may be interrupted while it looks up our folder, which it then names.
            assert [line for line in err.splitlines() if line.startswith('  File "') and OURS in line] == [], err


@pytest.mark.parametrize("line", COMMANDS)
@pytest.mark.parametrize("number", [FIRST, 7, 9, 12, 15, 30, 50, 80])
def test_sigint_during_an_import_ends_the_process_silently(line: str, number: int) -> None:
    answer = run(command("processes/interrupted", int(signal.SIGINT), number, *line.split()), NO_COLLECTOR)
    assert answer.stderr == ""
    ended = (-signal.SIGINT,) if number >= HANDLED else (-signal.SIGINT, 130)
    assert answer.returncode in ended, "by the signal: an exception amid an import may be taken for another"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_during_an_import_ends_pid_1(number: int) -> None:
    answer = run([*in_pid_namespace("--mount-proc"), *command("processes/interrupted", int(number), 50, "metrics")])
    assert (answer.returncode, answer.stdout, answer.stderr) == (128 + number, "", "")


def test_ignored_sigint_changes_nothing() -> None:
    line = [
        "sh",
        "-c",
        "trap '' INT; exec \"$@\"",
        "sh",
        *command("processes/interrupted", int(signal.SIGINT), 50, "metrics", "system.uptime"),
    ]
    answer = run(line)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "system.uptime" in answer.stdout
