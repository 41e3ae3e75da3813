"""A monotonic clock that a program can put forward. Import it before the package, which keeps the function."""

from __future__ import annotations

import time

_real = time.monotonic
_ahead = 0.0


def _now() -> float:
    return _real() + _ahead


def put_forward(seconds: float) -> None:
    """Advance the clock."""
    global _ahead
    _ahead += seconds


time.monotonic = _now
