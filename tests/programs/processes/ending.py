"""A program that computes for a while and exits. The only export happens at exit.

Usage: ending.py explicit|late JOURNAL...; the journals' providers are passed to `instrument()`, or the first one is set
as the global provider after instrumenting. Prints the CPU seconds that it used.
"""

from __future__ import annotations

import sys
import time

from opentelemetry.metrics import set_meter_provider
from tests.support.journal import provider
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor
from opentelemetry.instrumentation.hardware import telemetry as module

WHEN, *JOURNALS = sys.argv[1:]

module._EXIT_WAIT = 60.0  # a slow machine may need more than 0.1 s for the last reading
instrumentor = HardwareInstrumentor()
if WHEN == "late":
    instrumentor.instrument()
    set_meter_provider(provider(JOURNALS[0], 3600))
    assert instrumentor._telemetry.session is not None
    instrumentor._telemetry.session.read_now(60)
    until(lambda: not instrumentor._telemetry.waits_for_provider, "notice of the provider")
else:
    for path in JOURNALS:
        instrumentor.instrument(meter_provider=provider(path, 3600))
stop = time.process_time() + 0.3
while time.process_time() < stop:
    sum(range(1000))
print(time.process_time())
