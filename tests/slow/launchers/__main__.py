"""Run all launchers and print the table: `python -m tests.slow.launchers [--only NAME]... [--list] [--patience S]`.

The row of a launcher that is not installed says how to install it. The exit status is 1 if a row is wrong.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import tempfile
import time
from pathlib import Path

from tests.slow.launchers.cases import CASES
from tests.slow.launchers.runner import Outcome, run, words
from tests.tools import Missing
from tests.tools.collector import Collector

_ROW = "{:37} {:27} {:>5} {:>9} {:27} {:>5}  {}"


def main() -> int:
    """Run the selected cases."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow.launchers", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="a case, or a pattern such as 'gunicorn-*'")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--patience", type=float, default=40.0, help="seconds that a case may take to export")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if any(fnmatch.fnmatch(case.name, each) for each in arguments.only or ["*"])]
    if arguments.list:
        print("\n".join(case.name for case in chosen))
        return 0
    print(_ROW.format("case", "expected processes", "hosts", "reporters", "processes", "s", "verdict"), flush=True)
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, Collector(Path(folder)) as collector:
        for case in chosen:
            began = time.monotonic()
            try:
                outcome = run(case, collector, Path(folder), patience=arguments.patience)
                verdict = "; ".join(outcome.problems) or "right"
                wrong += bool(outcome.problems)
            except Missing as missing:
                outcome, verdict = Outcome(), f"not run: {missing}"
            row = (words(case.expected), outcome.hosts, outcome.reporters, words(outcome.processes))
            print(_ROW.format(case.name, *row, f"{time.monotonic() - began:.1f}", verdict), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
