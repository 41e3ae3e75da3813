"""GitHub Actions and pre-commit run steps of the gate, and no commands of their own; the files they run exist."""

from __future__ import annotations

import importlib
import os
import re
import signal
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.conftest import PORTABLE
from tests.tools import ROOT

GATE = ROOT / ".ci" / "gate.py"

pytestmark = pytest.mark.skipif(not GATE.exists(), reason="the gate is not part of this source archive")


@pytest.fixture(scope="module")
def steps() -> set[str]:
    listed = subprocess.run([sys.executable, GATE, "--list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in listed.splitlines()}


def test_workflows_run_only_steps_of_the_gate(steps: set[str]) -> None:
    commands = []
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            commands += [step["run"] for step in job["steps"] if "run" in step and "name" not in step]
    assert len(commands) == 4
    for command in commands:
        gate = re.fullmatch(r"(?:\.ci/run|python \.ci/gate\.py)((?: \w+)*)", command)
        assert gate is not None, command
        assert set(gate[1].split()) <= steps


def test_pre_commit_hooks_are_steps_of_the_gate(steps: set[str]) -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["id"]: hook["entry"] for hook in repository["hooks"]}
    assert hooks == {name: f".ci/run {name}" for name in hooks}
    assert set(hooks) <= steps


@pytest.mark.skipif(os.name == "nt", reason="a shell script")
@pytest.mark.parametrize("shell", [[], ["sh"], ["bash"]], ids=["itself", "sh", "bash"])
def test_run_starts_the_gate_from_any_folder(shell: list[str], steps: set[str], tmp_path: Path) -> None:
    command = [*shell, str(GATE.with_name("run")), "--list"]
    listed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in listed.splitlines()} == steps


def test_unknown_step_is_refused_with_the_known_ones(steps: set[str]) -> None:
    outcome = subprocess.run([sys.executable, GATE, "tset"], capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "tset" in outcome.stderr
    assert all(name in outcome.stderr for name in steps)


@pytest.fixture
def gate() -> Any:
    """The gate as a module."""
    return importlib.reload(importlib.import_module("gate"))


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("first", "status", "table"),
    [
        (
            lambda gate: gate.run("no-such-command"),
            1,
            r"a +0 s  FAILED: cannot run no-such-command: .*\nb +0 s  passed",
        ),
        (lambda gate: gate.run("false"), 1, r"a +0 s  FAILED: exit status 1: false\nb +0 s  passed"),
        (lambda gate: Path("missing").stat(), 1, r"a +0 s  FAILED: \[Errno 2\].*\nb +0 s  passed"),
        (interrupt, 130, r"a +0 s  interrupted"),
    ],
    ids=["no-command", "exit-status", "os-error", "interrupted"],
)
def test_failed_step_does_not_stop_the_next_and_interrupted_one_does(
    first: Any,
    status: int,
    table: str,
    gate: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["run"])
    gate.STEPS = {"a": lambda: first(gate), "b": lambda: None}
    assert gate.main() == status
    rows = re.sub(r" +\d+ s", " 0 s", capsys.readouterr().out.rpartition("\n\n")[2])
    assert re.fullmatch(rf"{table}\nall +0 s\n", rows), rows


def test_interrupted_command_is_ended(gate: Any) -> None:
    commands: list[subprocess.Popen[bytes]] = []

    def interrupted(process: subprocess.Popen[bytes], _: str) -> None:
        commands.append(process)
        wait = process.wait

        def impatient(seconds: float) -> int:
            process.wait = wait  # type: ignore[method-assign]
            raise subprocess.TimeoutExpired("sleep", seconds)

        process.wait = impatient  # type: ignore[method-assign, assignment]
        raise KeyboardInterrupt

    gate.PATIENCE = 60.0
    gate.forward = interrupted
    with pytest.raises(KeyboardInterrupt):
        gate.run("sleep", "600")
    assert commands[0].returncode == -signal.SIGTERM
    assert commands[0].stdout is not None
    commands[0].stdout.close()


def test_command_is_over_though_a_child_holds_its_output(gate: Any, capfd: pytest.CaptureFixture[str]) -> None:
    gate.QUIET = 0.5
    gate.run("sh", "-c", "sleep 600 & echo $!")
    (child,) = re.findall(r"^\d+$", capfd.readouterr().out, re.MULTILINE)  # there may be lines that say that it runs
    os.kill(int(child), signal.SIGKILL)


def test_wheel_that_is_older_than_the_sources_is_refused(gate: Any, tmp_path: Path) -> None:
    gate.DIST = tmp_path
    built = tmp_path / "some.whl"
    built.touch()
    assert gate.wheel() == str(built)
    os.utime(built, (0, 0))
    with pytest.raises(gate.StepError, match="older than the sources"):
        gate.wheel()


HOME = "opentelemetry/instrumentation/hardware/"


@pytest.mark.parametrize(
    ("names", "description", "problem"),
    [
        ([HOME + "py.typed", HOME + "cli/__init__.py"], "[a](https://a.example) [b](#b)", None),
        ([HOME + "cli/__init__.py"], "", "py.typed"),
        ([HOME + "py.typed", "tests/test_ci.py"], "", "tests/test_ci.py"),
        ([HOME + "py.typed"], "[docs](docs/README.md)", "docs/README.md"),
        ([HOME + "py.typed"], "![picture](docs/images/top.svg)", "top.svg"),
    ],
    ids=["right", "untyped", "foreign", "link", "picture"],
)
def test_wheel_has_only_the_package_and_absolute_links(
    names: list[str], description: str, problem: str | None, gate: Any, tmp_path: Path
) -> None:
    built = tmp_path / "some.whl"
    with zipfile.ZipFile(built, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr("some-1.dist-info/METADATA", description)
    with nullcontext() if problem is None else pytest.raises(gate.StepError, match=problem):
        gate.check_contents(str(built))


def test_portable_files_exist() -> None:
    assert [name for name in PORTABLE if not (ROOT / "tests" / name).is_file()] == []
