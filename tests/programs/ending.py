"""A program that computes for a while and ends; the end makes the only export.

Usage: ending.py JOURNAL one|two|late; with "two" the journal's provider is the second that is reported to, with "late"
it is the global one, set after instrumenting.
Prints the CPU seconds that it used.
"""

from __future__ import annotations

import os
import sys
import time

from opentelemetry.metrics import set_meter_provider
from tests.programs.journal import provider

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

JOURNAL, PROVIDERS = sys.argv[1:]

if PROVIDERS == "late":
    HardwareInstrumentor().instrument(sample_interval=0.6)
    set_meter_provider(provider(JOURNAL, 3600))
else:
    for path in ([os.devnull] if PROVIDERS == "two" else []) + [JOURNAL]:
        HardwareInstrumentor().instrument(meter_provider=provider(path, 3600))
until = time.process_time() + 1.0
while time.process_time() < until:
    sum(range(1000))
print(time.process_time())
