"""The callbacks of examples/training with the real Trainers: `python -m tests.support.trainers [--install]`.

Runs a program with each, and prints what is wrong with its spans. The programs need a virtual environment with PyTorch
of about 6 GB, which `--install` makes in the cache of the built programs. All checkouts share it.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from tests.programs.spans.trainings import ACCUMULATED, BATCHES, EPOCHS, FAIL, STOP
from tests.support import children
from tests.tools import BUILT, ROOT, Missing

# The programs of `tests/programs`, and the package that each tests.
PROGRAMS = {"spans.huggingface_trainer": "transformers", "spans.lightning_trainer": "lightning"}

PACKAGES = ("torch", "numpy", "transformers", "accelerate", "lightning")
FOLDER = BUILT / f"trainers-{sys.version_info.major}.{sys.version_info.minor}"
LONG = 0.3  # seconds of a span that must have attributes of the hardware

Spans = list[dict[str, Any]]


def interpreter() -> Path:
    """Return the Python of the virtual environment."""
    if not (FOLDER / "complete").exists():
        raise Missing("torch, transformers and lightning take 6 GB: python -m tests.support.trainers --install")
    return FOLDER / "bin" / "python"


def install() -> None:
    """Make the virtual environment, if there is none."""
    if (FOLDER / "complete").exists():
        return
    own = [each for each in requires("opentelemetry-instrumentation-hardware") or () if "extra ==" not in each]
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(FOLDER)], check=True)
    python = str(FOLDER / "bin" / "python")
    uv = shutil.which("uv")
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    subprocess.run([*pip, *PACKAGES, *own], check=True)
    (FOLDER / "complete").touch()


def spans(program: str) -> dict[str, Spans]:
    """Run a program, and return its spans by training.

    Raises:
        Missing: The virtual environment is not installed.
    """
    # As a module: beside a script, its folder would be searched first for imports.
    command = [str(interpreter()), "-m", f"tests.programs.{program}"]
    environment = {"PYTHONPATH": str(ROOT / "src"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = children.succeed(command, environment, cwd=ROOT)
    found: dict[str, Spans] = json.loads(done.stdout.splitlines()[-1])
    return found


def problems(trainings: Mapping[str, Spans]) -> list[str]:
    """Return what is wrong with the spans of a program, as sentences."""
    steps = math.ceil(BATCHES / ACCUMULATED)
    whole = [("train", *[("train.epoch", *["train.step"] * steps)] * EPOCHS)]
    failed = [("train", ("train.epoch", *["train.step"] * (FAIL // ACCUMULATED + 1)))]
    expected = {
        "whole": whole,
        "stopped": [("train", ("train.epoch", *["train.step"] * STOP))],
        "failed": failed,
        "again": [*failed, *whole],
    }
    found = []
    for training, wanted in expected.items():
        tree = _tree(trainings[training])
        if tree != wanted:
            found.append(f"{training}: {tree} instead of {wanted}")
        found += [f"{training}: {sentence}" for sentence in _wrong(trainings[training])]
    if not all(span["failed"] for span in trainings["failed"] if span["attributes"].get("train.step.number") != 0):
        found.append("failed: a span that was open at the error does not have its status")
    traces = Counter(span["trace"] for spans in trainings.values() for span in spans if span["parent"] is None)
    if traces.total() > len(traces):
        found.append("two trainings have the same trace ID: the Trainer seeds the generator of the IDs")
    return found


def _tree(spans: Spans, parent: int | None = None) -> list[Any]:
    """The names of the spans within a span, each with those in it."""
    inside = [(span["name"], _tree(spans, span["id"])) for span in spans if span["parent"] == parent]
    return [(name, *children) if children else name for name, children in inside]


def _wrong(spans: Spans) -> Iterator[str]:
    for span in spans:
        if span["seconds"] is None:
            yield f"{span['name']} is not ended"
        elif span["seconds"] >= LONG and "process.cpu.time" not in span["attributes"]:
            yield f"{span['name']} of {span['seconds']:.2f} s has only {span['attributes']}"
    for name in ("train.epoch", "train.step"):
        numbers = [span["attributes"][f"{name}.number"] for span in spans if span["name"] == name]
        if any(number not in (0, before + 1) for before, number in zip([-1, *numbers], numbers)):
            yield f"{name} has the numbers {numbers}"


def main() -> int:
    """Run the programs and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.trainers", description=__doc__)
    parser.add_argument("--install", action="store_true", help="make the virtual environment first")
    if parser.parse_args().install:
        install()
    wrong = 0
    for program, package in PROGRAMS.items():
        began = time.monotonic()
        try:
            trainings = spans(program)
        except Missing as missing:
            print(f"{package}: not run: {missing}")
            return 1
        found = problems(trainings)
        wrong += len(found)
        count = sum(map(len, trainings.values()))
        print(f"{package}: {count} spans, {time.monotonic() - began:.0f} s: {'; '.join(found) or 'right'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
