"""GitHub Actions and pre-commit run steps of the gate, and no commands of their own; the files they run exist."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from tests.conftest import PORTABLE
from tests.tools import ROOT

GATE = ROOT / ".ci" / "run"

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
    assert len(commands) == 3
    for command in commands:
        gate = re.fullmatch(r"(?:python )?\.ci/run((?: \w+)*)", command)
        assert gate is not None, command
        assert set(gate[1].split()) <= steps


def test_pre_commit_hooks_are_steps_of_the_gate(steps: set[str]) -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["id"]: hook["entry"] for hook in repository["hooks"]}
    assert hooks == {name: f"python3 .ci/run {name}" for name in hooks}
    assert set(hooks) <= steps


def test_unknown_step_is_refused_with_the_known_ones(steps: set[str]) -> None:
    outcome = subprocess.run([sys.executable, GATE, "tset"], capture_output=True, text=True, check=False)
    assert outcome.returncode == 2
    assert "tset" in outcome.stderr
    assert all(name in outcome.stderr for name in steps)


def test_portable_files_exist() -> None:
    assert [name for name in PORTABLE if not (ROOT / "tests" / name).is_file()] == []
