"""A program whose wall clock is set while it runs, by the seconds of each line of its standard input.

Suspend is the same for a program: the monotonic clock stands still meanwhile, and the wall clock does not.
"""

from __future__ import annotations

import sys
import time

_time, _time_ns = time.time, time.time_ns
_ahead = 0

# Before the SDK, which keeps the functions.
time.time = lambda: _time() + _ahead
time.time_ns = lambda: _time_ns() + _ahead * 10**9

from opentelemetry.instrumentation.auto_instrumentation import initialize  # noqa: E402

initialize()
for line in sys.stdin:
    _ahead += int(line)
