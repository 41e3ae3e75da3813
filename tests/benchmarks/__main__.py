"""``python -m tests.benchmarks``: measure, and print the table."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from tests.benchmarks import fresh
from tests.benchmarks.figure import HEADINGS, Figure, line, row
from tests.benchmarks.steady import REFERENCE, calibrate

NAMES = ("collection", "reading", "threads", "busy", "growth", "imports", "gpu", "amd", "openmetrics")
"""The modules that measure, each in a process of its own."""


def measure(name: str, quick: bool) -> list[Figure]:
    """The figures of one module."""
    return [Figure(*values) for values in fresh.call(f"tests.benchmarks.{name}:figures", quick)]


def main(arguments: list[str] | None = None) -> int:
    """Print the table; what misses its bound is said there and costs no exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds: whether it works, not how fast")
    parser.add_argument("--only", metavar="NAME", action="append", choices=NAMES, help=", ".join(NAMES))
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there as well")
    options = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        parser.error("the benchmarks need Linux: they ask the kernel for CPU clocks, priorities and private memory")
    os.environ[REFERENCE] = "inf" if options.quick else f"{calibrate(3.0):.4f}"
    print(f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} CPUs, yardstick {os.environ[REFERENCE]} ms")
    print(line(*HEADINGS))
    found: list[Figure] = []
    for name in options.only or NAMES:
        for figure in measure(name, options.quick):
            print(row(figure), flush=True)
            found.append(figure)
    if options.json:
        rows = [{**figure._asdict(), "ratio": figure.ratio, "holds": figure.holds} for figure in found]
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
