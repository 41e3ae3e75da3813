"""Run the matrix: `python -m tests.slow.matrix [--group NAME]... [--case PATTERN]... [--fast] [--jobs N] [--write]`.

Each case runs a program with and without the package, and compares exit status, duration, output, standard error,
processes and files left behind, and what a receiver got. The exit status is 1 if a case fails.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from tests.slow.matrix.case import Case
from tests.slow.matrix.groups import GROUPS, cases
from tests.slow.matrix.report import Row, page, row, summary
from tests.slow.matrix.run import Outcome, compare, run
from tests.support.children import ROOT
from tests.tools import Missing


class Matrix:
    """Runs cases. The run without the package is made once for all cases that have the same one."""

    def __init__(self, patience: float = 1.0) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._off: dict[tuple[object, ...], Future[Outcome]] = {}

    def _without(self, case: Case) -> Outcome:
        with self._lock:
            first = case.program not in self._off
            future = self._off.setdefault(case.program, Future())
        if first:
            try:
                future.set_result(run(case, False, self._patience))
            except BaseException as error:
                future.set_exception(error)
        return future.result()

    def row(self, case: Case) -> Row:
        """Run a case. A case that differs runs once more, also without the package: the machine may have slowed."""
        try:
            off, on = self._without(case), run(case, True, self._patience)
            if problems := compare(case, off, on, self._patience):
                off, on = run(case, False, self._patience), run(case, True, self._patience)
                problems = compare(case, off, on, self._patience)
        except Missing as missing:
            return Row(case, missing=str(missing))
        return Row(case, str(off), str(on), problems, errors=on.errors)


def main() -> int:
    """Run the selected cases, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow.matrix", description=__doc__)
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group")
    parser.add_argument("--case", action="append", metavar="PATTERN", help="such as 'drivers/*hang*'")
    parser.add_argument("--fast", action="store_true", help="only the cases of the suite")
    parser.add_argument("--jobs", type=int, default=2 * (os.cpu_count() or 1), metavar="N", help="runs at once")
    parser.add_argument("--patience", type=float, default=1.0, metavar="N", help="waits and bounds are N times as long")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--write", action="store_true", help="write docs/dev/matrix.md")
    parser.add_argument("--verbose", action="store_true", help="print the standard error of cases that differ")
    arguments = parser.parse_args()
    chosen = [
        case
        for case in cases(arguments.group or GROUPS)
        if (case.fast or not arguments.fast)
        and any(fnmatch.fnmatchcase(case.title, each) for each in arguments.case or ["*"])
    ]
    if arguments.list:
        print("\n".join(case.title for case in chosen))
        return 0
    began = time.monotonic()
    matrix, rows = Matrix(arguments.patience), []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for future in as_completed([pool.submit(matrix.row, case) for case in chosen]):
            rows.append(future.result())
            print(row(rows[-1]), flush=True)
            if arguments.verbose and rows[-1].problems:
                print("\n".join(f"    | {line[:300]}" for line in rows[-1].errors[:20]), flush=True)
    seconds = time.monotonic() - began
    order = {case.title: at for at, case in enumerate(cases(GROUPS))}
    rows.sort(key=lambda each: order[each.case.title])
    print(f"\n{summary(rows)}\n{seconds:.0f} s, {arguments.jobs} at once")
    if arguments.write:
        (ROOT / "docs" / "dev" / "matrix.md").write_text(page(rows))
    return int(any(each.fails for each in rows))


if __name__ == "__main__":
    sys.exit(main())
