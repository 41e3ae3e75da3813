"""A process of a job that takes the lock of the reporter when it is told to.

It reads lines from standard input: Python expressions, in which `reporter` is its :class:`Reporter`, and prints each
value as JSON. It ends with its input.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

from opentelemetry.instrumentation.hardware.pipeline.reporter import Reporter

reporter = Reporter(os.environ)


def fork_in_c() -> int:
    """Fork without the hooks of Python; the child waits until its parent has ended and its output is closed."""
    pid: int = ctypes.CDLL(None).fork()
    if not pid:
        while True:
            ctypes.CDLL(None).pause()
    return pid


print(json.dumps(os.getpid()), flush=True)
for line in sys.stdin:
    print(json.dumps(eval(line)), flush=True)
