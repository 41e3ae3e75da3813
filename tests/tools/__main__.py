"""Gets every program ready ahead of the tests, and says which cannot be had: `python -m tests.tools`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.tools import PACKAGES, Missing, fake_nvml, otelcol, program


def main() -> int:
    wanted: dict[str, Callable[[], Path]] = {"otelcol": otelcol, "fakenvml": fake_nvml}
    wanted |= {name: partial(program, name) for name in PACKAGES}
    missing = 0
    for name, get in wanted.items():
        began = time.monotonic()
        try:
            print(f"{name}: {get()} ({time.monotonic() - began:.1f} s)", flush=True)
        except Missing as reason:
            missing += 1
            print(f"{name}: {reason}", file=sys.stderr, flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
