"""One span in a PID namespace, of a program that has a GPU's device file open. Prints its attributes as JSON.

Usage: hidden_spans.py process|agent [FILE]
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack

from tests.support.traces import spans_in_memory

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

with ExitStack() as stack:
    for file in sys.argv[2:]:
        stack.enter_context(open(file))
    HardwareInstrumentor().instrument(mode=sys.argv[1], nvidia_smi="off")
    provider, exporter = spans_in_memory()
    time.sleep(3.0)
    with provider.get_tracer("program").start_as_current_span("work"):
        time.sleep(2.0)
    print(json.dumps(dict(exporter.get_finished_spans()[0].attributes or {})))
