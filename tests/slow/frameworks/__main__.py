"""Run real frameworks: `python -m tests.slow.frameworks [--only NAME]... [--list] [--write] [--verbose]`.

Each framework is installed from the package index into a virtual environment of its own, once. Its program runs without
this package and with it, and the spans that arrive are compared. The exit status is 1 if a case fails.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from tests.slow.frameworks import venvs
from tests.slow.frameworks.cases import CASES, Case
from tests.slow.frameworks.openai_stub import OpenAiStub
from tests.slow.frameworks.report import HEAD, Row, line, page
from tests.slow.frameworks.runner import run
from tests.slow.frameworks.verdict import judge
from tests.support.children import ROOT
from tests.tools import Missing

_say = partial(print, flush=True)


def row_of(case: Case, ours: Path, openai: str, folder: Path) -> Row:
    """Install the framework of a case, run its program twice, and compare."""
    runs = []
    try:
        environment = venvs.environment(case.packages, case.python, _say)
        for name, package in (("without", None), ("with", ours)):
            own = folder / case.name / name
            own.mkdir(parents=True)
            runs.append(run(case, environment, package, openai, own))
    except Missing as missing:
        return Row(case, missing=str(missing))
    return Row(case, venvs.version_of(environment, case.packages[0]), tuple(runs), judge(*runs))


def main() -> int:
    """Run the selected cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow.frameworks", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="a case, or a pattern such as 'phoenix-*'")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--write", action="store_true", help="write docs/frameworks.md")
    parser.add_argument("--verbose", action="store_true", help="print the standard error of cases that fail")
    arguments = parser.parse_args()
    if arguments.write and arguments.only:
        parser.error("--write needs all cases")
    chosen = [case for case in CASES if any(fnmatch.fnmatch(case.name, each) for each in arguments.only or ["*"])]
    if arguments.list:
        print("\n".join(case.name for case in chosen))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder, OpenAiStub() as openai:
        ours = Path(folder) / "ours"
        try:
            venvs.install_ours(ours)
        except Missing as missing:
            parser.error(str(missing))
        _say(HEAD)
        for case in chosen:
            began = time.monotonic()
            rows.append(row_of(case, ours, openai.url, Path(folder)))
            _say(line(rows[-1], time.monotonic() - began))
            if arguments.verbose and rows[-1].fails:
                for each in rows[-1].runs[1].errors.splitlines()[-30:]:
                    _say(f"    | {each[:300]}")
    if arguments.write:
        (ROOT / "docs" / "frameworks.md").write_text(page(rows), encoding="utf-8")
    return int(any(row.fails for row in rows))


if __name__ == "__main__":
    sys.exit(main())
