"""The entry point `otel-hardware`: standard streams that are full, closed, or ASCII only; help; misspelt arguments."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from tests.support.children import run
from tests.support.commands import otel_hardware

from opentelemetry.instrumentation.hardware.cli.command_line import commands
from opentelemetry.instrumentation.hardware.cli.settings import without_process
from opentelemetry.instrumentation.hardware.settings import Config

COMMANDS = [
    "metrics",
    "snapshot --sources process --window 0.05",
    "run --sources process --duration 0.05 --console",
    "record host --interval 0.01",
]
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


def test_ascii_output_has_an_arrow_of_ascii() -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    ended = run(["otel-hardware", "doctor", "--sources", "process"], ascii_only)
    assert "Traceback" not in ended.stderr
    assert re.search(r" ->\s+OTEL_EXPERIMENTAL_RESOURCE_DETECTORS", ended.stdout)


@pytest.mark.parametrize("command", commands())
def test_help_of_each_command_has_examples_and_fits_40_lines_and_100_columns(command: str) -> None:
    answer = otel_hardware(command, "--help", env={"COLUMNS": "80"})
    assert answer.status == 0
    lines = answer.out.splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 100
    assert f"otel-hardware {command}" in answer.out.partition("\n\n")[2]
    assert "example" in answer.out
    assert "exit status" in answer.out


@pytest.mark.parametrize("command", ["top", "run", "snapshot", "doctor", "why", "free"])
def test_help_shows_how_to_simulate_gpus(command: str) -> None:
    settings = otel_hardware(command, "--help").out.partition("options:")[2]
    assert re.search(r"^  --simulate SIMULATE +GPUs to simulate, such as 8xH100", settings, re.MULTILINE)


@pytest.mark.parametrize("command", [name for name, module in commands().items() if hasattr(module, "DETAILS")])
def test_details_of_a_command_are_in_its_long_help_only(command: str) -> None:
    details = "".join(commands()[command].DETAILS.split())
    assert details in "".join(otel_hardware(command, "--help-all").out.split())
    assert details not in "".join(otel_hardware(command, "--help").out.split())


@pytest.mark.parametrize("command", ["run", "snapshot", "doctor", "record"])
def test_help_settings_describes_all_settings(command: str) -> None:
    shown = "".join(otel_hardware(command, "--help-settings").out.split())
    for setting in fields(Config):
        text = f"{setting.metadata['help']} Takes {setting.metadata['form']}; default: {setting.metadata['default']}."
        is_left_out = command == "record" and "--" + setting.name.replace("_", "-") not in shown
        assert is_left_out or "".join(text.split()) in shown, setting.name


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["snapshto"], "snapshot"),
        (["metrics", "--format", "tabel"], "table"),
        (["snapshot", "--fromat", "json"], "--format"),
        (["run", "--intervall", "5", "--", "true"], "--interval"),
        (["frobnicate"], ""),
        (["doctor", "--xyzzy"], ""),
    ],
)
def test_misspelt_argument_gets_a_suggestion(arguments: list[str], word: str) -> None:
    answer = otel_hardware(*arguments)
    assert (answer.status, answer.out) == (2, "")
    assert any(argument in answer.err for argument in arguments)
    suggested = re.findall(r"did you mean ([\w-]+)\?|maybe you meant '([\w-]+)'\?", answer.err)  # of Python 3.15
    assert ["".join(each) for each in suggested] == [word] * bool(word)


def test_command_that_leaves_itself_out_still_names_the_flags() -> None:
    config = without_process(Config.read({"devices": "9"}, {}, flags=True))
    assert (config.sources, config.name_of("devices")) == (["-process"], "--devices")
    named = Config.read({"sources": "process"}, {}, flags=True)
    assert without_process(named) is named, "the user wants to see it"
