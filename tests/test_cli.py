"""``otel-hardware`` in a shell that gives it an output that takes nothing, or none at all."""

from __future__ import annotations

import pytest
from tests.children import run

COMMANDS = ["metrics", "snapshot --sources process --window 0.1", "run --sources process --duration 0.1 --console"]
NO_COLLECTOR = {"OTEL_METRICS_EXPORTER": "none"}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_output_that_takes_nothing_is_one_sentence(command: str) -> None:
    ended = run(["sh", "-c", f"otel-hardware {command} > /dev/full"], NO_COLLECTOR)
    assert ended.returncode == 1
    assert ended.stderr == "otel-hardware: the output: no space left on device\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_without_standard_streams_it_does_its_work_all_the_same(command: str) -> None:
    assert run(["sh", "-c", f"otel-hardware {command} <&- >&- 2>&-"], NO_COLLECTOR).returncode == 0


def test_a_program_without_standard_streams_keeps_its_exit_code_and_gets_none_of_ours() -> None:
    code = "import os, sys; sys.exit(sum(os.path.exists(f'/proc/self/fd/{number}') for number in range(3)) + 5)"
    line = f'otel-hardware run --console --sources process -- "$0" -c "{code}" <&- >&- 2>&-'
    assert run(["sh", "-c", line, "python"], NO_COLLECTOR).returncode == 5


def test_letters_that_a_terminal_does_not_have_cost_only_themselves() -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    ended = run(["otel-hardware", "doctor", "--sources", "process"], ascii_only)
    assert "Traceback" not in ended.stderr
    assert " ? OTEL_EXPERIMENTAL_RESOURCE_DETECTORS" in ended.stdout
