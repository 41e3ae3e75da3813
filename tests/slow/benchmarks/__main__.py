"""``python -m tests.slow.benchmarks``: measure the package and its alternatives, and print one table."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import suppress
from math import inf
from pathlib import Path

from tests.slow.benchmarks import fresh, report, span_accuracy
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import REFERENCE, calibrate

# The modules that measure, each in a process of its own; the heading of each, and its seconds in a full run.
PARTS = {
    "collection": ("Collecting the default metrics, without an exporter", 20),
    "reading": ("Reading the host and this process", 10),
    "tree": ("Reading the tree of a process with 256 children", 10),
    "threads": ("Our threads at the defaults, in an idle program", 20),
    "busy": ("A thread that computes without pause, beside our threads", 35),
    "growth": ("One reading on a crowded machine", 25),
    "spans": ("Starting and ending a span", 10),
    "span_accuracy": ("Energy of a block of code against the exact one, on a simulated GPU", 60),
    "contention": ("Two threads at full load, with spans; multiples of the same without the package", 400),
    "imports": ("Importing the package where OpenTelemetry is imported already", 30),
    "gpu": ("Eight NVIDIA GPUs of a simulated driver; CPU time without the driver's own", 50),
    "amd": ("Eight AMD GPUs as files", 10),
    "openmetrics": ("Scraping a page of 10,000 series", 20),
    "flood": ("A tool or an endpoint that sends without end, collected every second", 100),
}

_FULL = float(sum(seconds for _, seconds in PARTS.values()))
_QUICK = 40.0


def measure(name: str, seconds: float) -> list[Figure]:
    """The figures of one part."""
    found = fresh.call(f"tests.slow.benchmarks.{name}:figures", seconds, seconds=300.0 + 2 * seconds)
    return [Figure(*values) for values in found]


def _seconds(word: str) -> float:
    with suppress(ValueError):
        if 0 <= (seconds := float(word)) < inf:
            return seconds
    raise argparse.ArgumentTypeError(f"{word!r} is no number of seconds")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, and return 1 when a bound is missed beyond doubt."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.slow.benchmarks",
        description="Measure the package beside its alternatives; status 1 means a bound missed beyond doubt.",
    )
    parser.add_argument("--quick", action="store_true", help="about a minute instead of fifteen")
    parser.add_argument("--seconds", metavar="N", type=_seconds, help="measure for N seconds in all, start-up apart")
    parser.add_argument("--only", metavar="PART", action="append", choices=PARTS, help=", ".join(PARTS))
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures to a file")
    options = parser.parse_args(arguments)
    if not sys.platform.startswith("linux"):
        parser.error("the benchmarks need Linux: CPU clocks of threads, priorities, private memory")
    try:
        if options.json:
            options.json.open("a").close()  # to fail before the measurements rather than after them
    except OSError as error:
        parser.error(str(error))
    seconds = options.seconds if options.seconds is not None else _QUICK if options.quick else _FULL
    os.environ[REFERENCE] = f"{calibrate(min(3.0, seconds / 20)):.4f}"

    print(report.filled(", ".join(f"{name} {version}" for name, version in report.versions().items())))
    print(report.filled("{processor}, {CPUs} CPUs, {system}".format(**report.machine())))
    print(report.HEADING)
    found: dict[str, list[Figure]] = {}
    for name in options.only or PARTS:
        heading, share = PARTS[name]
        print(heading, flush=True)
        found[name] = measure(name, seconds * share / _FULL)
        for figure in found[name]:
            print(report.row(figure), flush=True)
        if name == "span_accuracy":
            print("", *span_accuracy.table(found[name]), sep="\n", flush=True)
    figures = [figure for part in found.values() for figure in part]
    print()
    for note in report.notes(figures):
        print(report.filled(note))
    if options.json:
        options.json.write_text(json.dumps(report.document(found, seconds), indent=1) + "\n", encoding="utf-8")
    return int(any(figure.missed for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
