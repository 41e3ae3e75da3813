"""The error of the energy of a block of code: by a span with our processor, beside other tools on the same driver.

The simulated GPU takes a random power of 100 to 700 W for 0.3 s each. Its energy counter moves every 20 ms, and the
exact energy between two instants is known. All tools measure at the same time, each in a process of its own that the
driver lists as the user of the GPU. Their blocks have random phases. A round takes 10 seconds.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.slow.benchmarks import peers, windows
from tests.slow.benchmarks.figure import Figure
from tests.slow.benchmarks.steady import ENOUGH
from tests.tools import ROOT, Missing, nvml
from tests.tools.load import Random, loaded

PEERS = {"zeus": "Zeus", "codecarbon": "CodeCarbon"}
LENGTHS = sorted(set(windows.ROUND))
LOAD = Random(slot=0.3, base=100, peak=700, period=0.02)

_LONGEST = 200.0  # seconds of measuring at most: a part of the benchmarks has 300 with all that comes before


class Errors(NamedTuple):
    """What a tool got wrong in blocks of one length, in percent.

    Attributes:
        median: The median of the relative error.
        high: Its 95th percentile.
        missing: The blocks without an energy.
    """

    median: float
    high: float
    missing: float


class Outcome(NamedTuple):
    """What came of a tool.

    Attributes:
        errors: By seconds of the block.
        calls: Calls of the driver in the thread of a block, on average.
        rounds: The rounds of blocks that it measured.
    """

    errors: dict[float, Errors]
    calls: float
    rounds: float


def figures(seconds: float) -> list[Figure]:
    return list(_figures(measured(min(seconds, _LONGEST))))


def _figures(found: dict[str, Outcome]) -> Iterator[Figure]:
    ours = found["ours"]
    noisy = min(outcome.rounds for outcome in found.values()) < ENOUGH
    for length in LENGTHS:
        own = ours.errors[length]
        for peer, name in PEERS.items():
            theirs = found[peer].errors[length] if peer in found else None
            for part in ("median", "high"):
                beside = None if theirs is None else getattr(theirs, part)
                yield Figure(_name(length, part), getattr(own, part), "%", name, beside, noisy=noisy)
        yield Figure(f"{length:g} s without an energy", own.missing, "%", noisy=noisy)
    for peer, name in PEERS.items():
        yield Figure(_CALLS, ours.calls, "calls", name, found[peer].calls if peer in found else None)


_CALLS = "driver calls by a block"


def _name(length: float, part: str) -> str:
    return f"{length:g} s, {'median' if part == 'median' else '95 %'} error"


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """Yield the lines of a table: a row for each tool, a column for each length of a block."""
    own = {figure.name: figure.ours for figure in figures}
    rows = {"a span": own}
    for figure in figures:
        if figure.alternative and figure.beside is not None:
            rows.setdefault(figure.alternative, {})[figure.name] = figure.beside
    yield "  median and 95 % error  " + "".join(f"{f'{length:g} s':>16}" for length in LENGTHS) + "    calls"
    for tool, numbers in rows.items():
        errors = {name: f"{value:.2f} %" for name, value in numbers.items()}
        cells = (
            f"{errors.get(_name(each, 'median'), ''):>8}{errors.get(_name(each, 'high'), ''):>8}" for each in LENGTHS
        )
        yield f"  {tool:23}{''.join(cells)}{numbers.get(_CALLS, nan):9.1f}"
    try:
        peers.python()
    except Missing as reason:
        yield f"  {reason}"


def measured(seconds: float) -> dict[str, Outcome]:
    """The outcome of each tool that is installed; they measure at the same time."""
    pythons = {"ours": Path(sys.executable)}
    with suppress(Missing):
        pythons |= dict.fromkeys(PEERS, peers.python())
    with TemporaryDirectory() as scratch, ExitStack() as stack:
        folders = {tool: Path(scratch, tool) for tool in pythons}
        children = {
            tool: stack.enter_context(_started(tool, python, folders[tool], seconds))
            for tool, python in pythons.items()
        }
        for tool, child in children.items():
            assert child.stdout is not None
            if not child.stdout.readline():
                raise RuntimeError(f"{tool} failed:\n{(folders[tool] / 'errors').read_text()}")
        for child in children.values():
            assert child.stdin is not None
            print("go", file=child.stdin, flush=True)
        for tool, child in children.items():
            if child.wait():
                raise RuntimeError(f"{tool} failed:\n{(folders[tool] / 'errors').read_text()}")
        return {tool: _outcome(json.loads((folder / "blocks").read_text())) for tool, folder in folders.items()}


@contextmanager
def _started(tool: str, python: Path, folder: Path, seconds: float) -> Iterator[subprocess.Popen[str]]:
    """Start a tool on a machine of its own, whose power is the same as that of the others."""
    folder.mkdir()
    fake = nvml.FakeNvml(folder, loaded(nvml.h100(), LOAD))
    smi = folder / "nvidia-smi"  # CodeCarbon asks whether there is one
    smi.write_text("#!/bin/sh\n")
    smi.chmod(0o755)
    environment = {
        **os.environ,
        **fake.environment,
        "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT),
    }
    del environment["FAKE_NVML_CALLS"]
    with (folder / "errors").open("w") as errors:
        child = subprocess.Popen(
            [python, "-m", windows.__name__, tool, str(seconds), str(folder / "blocks")],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    with child:
        try:
            fake.set_lines({"gpu0.ComputeRunningProcesses": nvml.listed((child.pid, 9 * nvml.MIB))})
            yield child
        finally:
            child.kill()


def _outcome(blocks: Sequence[windows.Block]) -> Outcome:
    errors = {}
    for length in LENGTHS:
        given = [joules for each, *_, joules, _ in blocks if each == length]
        wrong = [
            100 * abs(joules / LOAD.joules(begin, end) - 1)
            for each, begin, end, joules, _ in blocks
            if each == length and joules is not None
        ]
        missing = 100 * given.count(None) / len(given)
        wrong = wrong or [100.0]  # nothing instead of a number
        high = statistics.quantiles(wrong, n=20, method="inclusive")[-1] if len(wrong) > 1 else wrong[0]
        errors[length] = Errors(statistics.median(wrong), high, missing)
    return Outcome(errors, statistics.mean(calls for *_, calls in blocks), len(blocks) / len(windows.ROUND))
