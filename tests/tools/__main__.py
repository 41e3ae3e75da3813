"""Builds and finds the programs that tests run against, and names those that are missing.

python -m tests.tools                all that the suite needs
python -m tests.tools kubernetes     only this one
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.tools import (
    HELM,
    JAEGER,
    KUBERNETES,
    OTELCOL,
    PACKAGES,
    PYTHON,
    STANDALONE,
    VICTORIAMETRICS,
    VIEWER,
    WANDB,
    WINDOWS,
    Missing,
    build,
    fake_nvml,
    program,
)

# What the suite needs, and what only a slow run needs, which is built if it is named.
SUITE = (OTELCOL, JAEGER, VIEWER, VICTORIAMETRICS, HELM, PYTHON, STANDALONE, WANDB, WINDOWS)
SLOW = (KUBERNETES,)


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    wanted: dict[str, Callable[[], Path]] = {
        recipe.folder: partial(build, recipe, _say)
        for recipe in (*SUITE, *SLOW)
        if recipe in SUITE or recipe.folder in sys.argv
    }
    wanted["fakenvml"] = fake_nvml
    wanted |= {name: partial(program, name) for name in PACKAGES}
    named = sys.argv[1:] or wanted
    missing = 0
    for name in named:
        get = wanted[name]
        began = time.monotonic()
        try:
            _say(f"{name}: {get()} ({time.monotonic() - began:.1f} s)")
        except Missing as reason:
            missing += 1
            print(f"{name}: {reason}", file=sys.stderr, flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
