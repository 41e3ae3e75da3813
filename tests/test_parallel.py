"""The suite's own plugin, in a real run of pytest with real workers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from tests.children import run
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
    assert number == 0 or "FAIL" not in os.environ

@pytest.mark.parametrize("number", range(12))
def test_beside(number):
    Path(os.environ.get("PYTEST_XDIST_WORKER", "none") + ".worker").touch()
    deadline = time.monotonic() + 60
    while len(list(Path().glob("*.worker"))) < int(os.environ["WORKERS"]):
        assert time.monotonic() < deadline, "no other worker runs a test"
        time.sleep(0.01)
"""


@pytest.mark.parametrize(("workers", "failing"), [(3, False), (3, True), (0, False)])
def test_tests_marked_alone_run_after_all_others(workers: int, failing: bool, tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    alone\n")
    line = [sys.executable, "-m", "pytest", "-p", "tests.parallel", "-n", str(workers), "--dist", "worksteal"]
    environment = {"PYTHONPATH": str(ROOT), "WORKERS": str(min(workers, 2))} | ({"FAIL": "1"} if failing else {})
    outcome = run(line, environment, cwd=tmp_path)
    summary = outcome.stdout.splitlines()[-1]
    assert re.search("1 failed, 13 passed" if failing else "14 passed", summary), outcome.stdout + outcome.stderr
    assert outcome.returncode == failing
    times = {file.name: json.loads(file.read_text()) for file in tmp_path.glob("*.json")}
    first, second = sorted(times.pop(f"test_alone[{number}].json") for number in range(2))
    assert first[1] <= second[0]
    assert len(times) == 12
    assert max(end for _, end in times.values()) <= first[0]
