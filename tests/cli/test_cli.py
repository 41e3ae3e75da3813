"""The entry point `otel-hardware` with standard streams that are full, closed, or ASCII only."""

from __future__ import annotations

import re

import pytest
from tests.children import run

COMMANDS = ["metrics", "snapshot --sources process --window 0.05", "run --sources process --duration 0.05 --console"]
NO_COLLECTOR = {"OTEL_METRICS_EXPORTER": "none"}


@pytest.mark.parametrize("command", COMMANDS)
def test_full_output_device_is_one_sentence(command: str) -> None:
    ended = run(["sh", "-c", f"otel-hardware {command} > /dev/full"], NO_COLLECTOR)
    assert ended.returncode == 1
    assert ended.stderr == "otel-hardware: the output: no space left on device\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_closed_standard_streams_keep_exit_status_0(command: str) -> None:
    assert run(["sh", "-c", f"otel-hardware {command} <&- >&- 2>&-"], NO_COLLECTOR).returncode == 0


def test_run_with_closed_standard_streams_gives_the_program_none() -> None:
    code = "import os, sys; sys.exit(sum(os.path.exists(f'/proc/self/fd/{number}') for number in range(3)) + 5)"
    line = f'otel-hardware run --console --sources process -- "$0" -c "{code}" <&- >&- 2>&-'
    assert run(["sh", "-c", line, "python"], NO_COLLECTOR).returncode == 5


def test_ascii_output_replaces_other_letters() -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    ended = run(["otel-hardware", "doctor", "--sources", "process"], ascii_only)
    assert "Traceback" not in ended.stderr
    assert re.search(r" \?\s+OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", ended.stdout)
