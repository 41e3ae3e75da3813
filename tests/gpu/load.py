"""``python -m tests.gpu.load KIND SECONDS [SHARE]``: keep the first GPU busy, and report it.

It prints a line of JSON with the GPU's UUID at the beginning, and one with the busy seconds, the elapsed seconds and
the bytes uploaded at the end.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.gpu.cuda import Cuda

KINDS = ("idle", "arithmetic", "copies", "uploads", "duty")

# Seconds of a duty cycle: several lie within the shortest sampling period of a driver, a sixth of a second.
PERIOD = 0.05

_COPIED = 256 * 1024 * 1024


def run(kind: str, seconds: float, share: float, report: Callable[[dict[str, Any]], None]) -> None:
    """Keep the GPU busy for some seconds, or for a share of them in a duty cycle."""
    cuda = Cuda()
    with cuda.memory(_COPIED) as one, cuda.memory(_COPIED) as other, cuda.pinned(_COPIED) as host:

        def burn() -> None:
            cuda.burn(100_000, one)

        def copy() -> None:
            cuda.copy(other, one, _COPIED)
            cuda.wait()

        def upload() -> None:
            cuda.upload(one, host, _COPIED)

        def step() -> float:
            if kind == "duty":
                return _cycle(cuda, share)
            return _idle(PERIOD) if work is None else _timed(work)

        work: Callable[[], object] | None = {"copies": copy, "uploads": upload}.get(kind)
        if kind == "arithmetic":
            work = _matrices() or burn
        step()  # the first one compiles and loads
        report({"uuid": cuda.uuid, "pid": os.getpid()})
        begun, busy, steps = time.monotonic(), 0.0, 0
        while (passed := time.monotonic() - begun) < seconds:
            busy += step()
            steps += 1
        report({"busy": busy, "passed": passed, "uploaded": steps * _COPIED if kind == "uploads" else 0})
    cuda.close()


def _timed(work: Callable[[], object]) -> float:
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


def _idle(seconds: float) -> float:
    threading.Event().wait(seconds)
    return 0.0


def _cycle(cuda: Cuda, share: float) -> float:
    """Run one period: a kernel for a share of it, then nothing."""
    begun = time.monotonic()
    cuda.spin(share * PERIOD)
    busy = time.monotonic() - begun
    _idle(max(0.0, PERIOD - busy))
    return share * PERIOD


def _matrices() -> Callable[[], object] | None:
    """Return a function that multiplies matrices with an installed library, if there is one."""
    if importlib.util.find_spec("torch") is not None:
        torch: Any = importlib.import_module("torch")
        if torch.cuda.is_available():
            return partial(_product, torch.rand(4096, 4096, device="cuda"), torch.cuda.synchronize)
    if importlib.util.find_spec("cupy") is not None:
        cupy: Any = importlib.import_module("cupy")
        return partial(_product, cupy.random.rand(4096, 4096), cupy.cuda.Device().synchronize)
    return None


def _product(matrix: Any, wait: Callable[[], object]) -> None:
    matrix @ matrix
    wait()


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    kind, seconds, *share = sys.argv[1:]
    run(kind, float(seconds), float(share[0]) if share else 1.0, _print)
