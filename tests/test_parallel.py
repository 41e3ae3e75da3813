"""The suite's plugin, in a real run of pytest with real workers."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from tests.support.children import run
from tests.tools import ROOT

SUITE = """
import json, os, time
from pathlib import Path
import pytest

@pytest.fixture(autouse=True)
def times(request):
    began = time.monotonic()
    yield
    Path(f"{request.node.name}.json").write_text(json.dumps([began, time.monotonic()]))

@pytest.mark.alone
@pytest.mark.parametrize("number", range(2))
def test_alone(number):
    assert number == 1 or "FAIL" not in os.environ

@pytest.mark.parametrize("number", range(12))
def test_beside(number):
    Path(os.environ.get("PYTEST_XDIST_WORKER", "none") + ".worker").touch()
    deadline = time.monotonic() + 60
    while len(list(Path().glob("*.worker"))) < int(os.environ["WORKERS"]):
        assert time.monotonic() < deadline, "no other worker runs a test"
        time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("workers", "environment", "options", "expected"),
    [
        pytest.param(2, {}, [], "14 passed", id="workers"),
        pytest.param(2, {"FAIL": "1"}, [], "1 failed, 13 passed", id="workers-failure"),
        pytest.param(2, {"FAIL": "1"}, ["-x"], "1 failed, 12 passed", id="workers-stop-at-failure"),
        pytest.param(0, {}, [], "14 passed", id="no-workers"),
    ],
)
def test_tests_marked_alone_run_after_all_others(
    workers: int, environment: dict[str, str], options: list[str], expected: str, tmp_path: Path
) -> None:
    folder = tmp_path / "below the root"
    folder.mkdir()
    (folder / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n")
    plugins = ["-p", "xdist", "-p", "tests.support.parallel"]
    line = [sys.executable, "-m", "pytest", *plugins, "-n", str(workers), "--dist", "worksteal", *options]
    variables = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "WORKERS": str(workers), **environment}
    outcome = run(line, variables, cwd=folder)
    assert re.search(f" {expected} in", f" {outcome.stdout.splitlines()[-1]}"), outcome.stdout + outcome.stderr
    assert outcome.returncode == ("failed" in expected)
    times = {file.name: json.loads(file.read_text()) for file in folder.glob("*.json")}
    alone = sorted(times.pop(name) for name in sorted(times) if "alone" in name)
    assert all(first[1] <= second[0] for first, second in pairwise(alone))
    assert len(times) == 12
    assert max(end for _, end in times.values()) <= alone[0][0]
