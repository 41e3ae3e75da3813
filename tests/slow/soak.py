"""Memory, descriptors and threads of an instrumented program by the minute: `python -m tests.slow.soak [--minutes N]`.

A program runs without this package and with it at several intervals of export, over a simulated NVML with two GPUs,
into a receiver. The status is 1 if memory still grows in the second half of the run, by least squares, or if
descriptors or threads increase in it. Run at least 25 minutes: the first ten fill the histories of windows and spans.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.support import children
from tests.support.sink import Sink
from tests.tools.nvml import FakeNvml, h100

INTERVALS = (0.1, 1.0, 60.0)  # seconds between exports. Sources are sampled as often, but at least every 2 s.

MOST = 0.3  # growth in the second half that counts as flat, in kB/s: 1 MB in an hour


class Usage(NamedTuple):
    """What a process uses; the order is that of the columns."""

    rss: int
    descriptors: int
    threads: int


def usage(pid: int) -> Usage:
    """Return the resident memory of a process in kB, its descriptors and its threads."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return Usage(int(lines["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")), int(lines["Threads"]))


def slope(values: Sequence[float], seconds: float) -> float:
    """Return the growth per second of values that are so many seconds apart, by least squares."""
    return statistics.linear_regression([at * seconds for at in range(len(values))], values).slope


def problems(found: Sequence[Usage], seconds: float) -> list[str]:
    """Return what grows in the second half of a run, as sentences."""
    late = found[len(found) // 2 :]
    growth = slope([each.rss for each in late], seconds)
    texts = [f"memory grows by {growth:.2f} kB/s"] if growth > MOST else []
    for name in ("descriptors", "threads"):
        numbers = [getattr(each, name) for each in late]
        half = len(numbers) // 2
        if statistics.median(numbers[half:]) > statistics.median(numbers[:half]):
            texts.append(f"{name} increase")
    return texts


def runs(sink: Sink, nvml: FakeNvml) -> dict[str, dict[str, str]]:
    """Return the environment of each run."""
    driver = {name: value for name, value in nvml.environment.items() if name != "FAKE_NVML_CALLS"}
    without = sink.environment(INTERVALS[0]) | {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": f"hardware,{children.PEERS}"}
    found = {"without": without}
    for seconds in INTERVALS:
        sampling = {"OTEL_PYTHON_HARDWARE_SAMPLE_INTERVAL": str(min(seconds, 2.0))}
        found[f"{seconds:g} s"] = sink.environment(seconds) | driver | sampling
    return found


def main() -> int:
    """Run the programs, and print a line each minute."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow.soak", description=__doc__)
    parser.add_argument("--minutes", type=int, default=60, metavar="N", help="at least 4; default: 60")
    minutes = parser.parse_args().minutes
    if minutes < 4:
        parser.error("--minutes: at least 4")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        sink = stack.enter_context(Sink())
        every = runs(sink, FakeNvml(folder, h100(0), h100(1)))
        programs = {
            name: stack.enter_context(children.started(children.instrumented("processes/soaked"), environment))
            for name, environment in every.items()
        }
        found: dict[str, list[Usage]] = {name: [] for name in programs}
        print("minute  " + "  ".join(f"{name + ': RSS kB, fds, threads':>32}" for name in programs), flush=True)
        begun = time.monotonic()
        for minute in range(1, minutes + 1):
            time.sleep(max(0.0, begun + 60 * minute - time.monotonic()))
            for name, program in programs.items():
                found[name].append(usage(program.pid))
            row = "  ".join("{:>20} {:>5} {:>5}".format(*each[-1]) for each in found.values())
            print(f"{minute:6}  {row}", flush=True)
            sink.exports.clear()
        for program in programs.values():
            program.end_input()
            program.wait(children.PATIENCE)
    verdicts = {name: problems(each, 60) for name, each in found.items()}
    for name, each in found.items():
        growth = slope([one.rss for one in each[len(each) // 2 :]], 60)
        print(f"{name}: {growth:+.3f} kB/s in the second half; {'; '.join(verdicts[name]) or 'flat'}")
    return int(any(verdicts[name] for name in verdicts if name != "without"))


if __name__ == "__main__":
    sys.exit(main())
