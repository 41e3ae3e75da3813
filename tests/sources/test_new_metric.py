"""A metric from a file that is read already is two edits: a row of the catalog and a line of the source."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from tests.support.children import run

import opentelemetry.instrumentation.hardware as package

NAME = "system.memory.linux.compactions"

ROW = f"""
SYSTEM_MEMORY_COMPACTIONS = counter(
    "{NAME}", "{{event}}", (),
    "Times that the kernel moved pages to get a large block of memory.",
    source="/proc/vmstat: compact_stall",
    standard=False,
)
"""
LINE = '    ("compact_stall", c.SYSTEM_MEMORY_COMPACTIONS, ()),\n'
BEFORE = '    ("oom_kill", c.SYSTEM_MEMORY_OOM_KILLS, ()),\n'


@pytest.mark.skipif(not Path("/proc/vmstat").exists(), reason="the file is Linux's")
def test_new_metric_is_two_edits(tmp_path: Path) -> None:
    counts = dict(line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    if "compact_stall" not in counts:
        pytest.skip("this kernel does not count compactions")
    copy = tmp_path.joinpath(*package.__name__.split("."))
    shutil.copytree(Path(package.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    catalog, source = copy / "catalog" / "host.py", copy / "sources" / "host.py"
    catalog.write_text(catalog.read_text() + ROW)
    assert BEFORE in source.read_text(), "the example of docs/dev/development.md"
    source.write_text(source.read_text().replace(BEFORE, BEFORE + LINE))
    line = [sys.executable, "-m", package.__name__, "snapshot", "--sources=host", "--preset=all", "--format=json"]
    outcome = run(line, {"PYTHONPATH": str(tmp_path)})
    found = [each for each in json.loads(outcome.stdout)["metrics"] if each["name"] == NAME]
    assert [(each["kind"], each["unit"]) for each in found] == [("counter", "{event}")], outcome.stderr
    assert found[0]["value"] >= int(counts["compact_stall"])
