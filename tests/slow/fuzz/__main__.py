"""Fuzz targets one after the other, each in a process of its own, and print a table. Needs Atheris."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.slow.fuzz.targets import CORPUS, TARGETS, Target

SECONDS = 10  # limit of one input. Alone, each takes milliseconds.

MEGABYTES = 1024  # limit of the process

_ROOT = Path(__file__).parents[3]


def fuzz(name: str, target: Target, seconds: float, folder: Path) -> tuple[str, bool]:
    """Fuzz a target. Returns a row of the table, and whether there was no finding."""
    inputs, findings = folder / name, CORPUS / name
    inputs.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds()):
        (inputs / f"seed{number}").write_bytes(seed)
    limits = {
        "max_total_time": int(seconds),
        "max_len": target.limit,
        "timeout": SECONDS,
        "rss_limit_mb": MEGABYTES,
        "print_final_stats": 1,
        "artifact_prefix": f"{findings}/",
    }
    options = [f"-{option}={value}" for option, value in limits.items()]
    line = [sys.executable, "-m", "tests.slow.fuzz.one", name, *options, str(inputs), str(findings)]
    with open(folder / f"{name}.log", "w+", encoding="utf-8", errors="replace") as log:
        code = subprocess.run(line, cwd=_ROOT, stdout=log, stderr=log, check=False).returncode
        log.seek(0)
        text = log.read()
    numbers = {key: int(value) for key, value in re.findall(r"stat::(\w+): +([0-9]+)", text)}
    coverage = re.findall(r" ft: ([0-9]+)", text)
    done = numbers.get("number_of_executed_units", 0)
    speed, memory = numbers.get("average_exec_per_sec", 0), numbers.get("peak_rss_mb", 0)
    finding = "" if code == 0 else f"see {folder / name}.log"
    return f"| {name} | {done:,} | {speed:,} | {memory} | {(coverage or ['?'])[-1]} | {finding} |", code == 0


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.slow.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[[], *TARGETS], metavar="TARGET", help="default: all")
    parser.add_argument("--seconds", type=float, default=60, help="for each target (%(default)s)")
    parser.add_argument("--folder", type=Path, help="inputs of earlier runs, and logs; default: a temporary folder")
    options = parser.parse_args(arguments)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="fuzz-"))
    print("| target | inputs | per second | MiB | features | finding |\n|---|---:|---:|---:|---:|---|", flush=True)
    is_clean = True
    for name in options.targets or TARGETS:
        row, passed = fuzz(name, TARGETS[name], options.seconds, folder)
        is_clean = is_clean and passed
        print(row, flush=True)
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
