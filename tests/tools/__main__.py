"""Builds and finds every program that tests run against, and names those that are missing: `python -m tests.tools`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.tools import JAEGER, OTELCOL, PACKAGES, VIEWER, Missing, build, fake_nvml, program


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    wanted: dict[str, Callable[[], Path]] = {
        recipe.folder: partial(build, recipe, _say) for recipe in (OTELCOL, JAEGER, VIEWER)
    }
    wanted["fakenvml"] = fake_nvml
    wanted |= {name: partial(program, name) for name in PACKAGES}
    missing = 0
    for name, get in wanted.items():
        began = time.monotonic()
        try:
            _say(f"{name}: {get()} ({time.monotonic() - began:.1f} s)")
        except Missing as reason:
            missing += 1
            print(f"{name}: {reason}", file=sys.stderr, flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
