"""Forks again and again while a TPU runtime is asked; each child instruments itself or not, and ends as it likes.

Usage: tpu_forks.py COUNT. Prints, as JSON, how the children ended, and whether the parent is still told.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import warnings

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

warnings.simplefilter("ignore")
instrumentor = HardwareInstrumentor()
instrumentor.instrument(sources=["tpu"], sample_interval=0.01)
session = instrumentor._session
assert session is not None
session.board.fresh(10)
(poller,) = session.board.pollers


ended = []
for number in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        gc.collect()
        if number % 2:
            sys.exit(0)  # by way of everything that Python does at its end
        os._exit(0)
    ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
session.board.fresh(10)
print(json.dumps({"ended": ended, "still": poller.problem is None and bool(poller.window(None, poller._clock())[0])}))
instrumentor.uninstrument()
