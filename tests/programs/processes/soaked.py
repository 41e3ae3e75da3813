"""A program with a counter and a span per second of its own, until its standard input ends."""

from __future__ import annotations

import select
import sys

from opentelemetry import metrics, trace

counter = metrics.get_meter("application").create_counter("application.steps")
tracer = trace.get_tracer("application")
while not select.select([sys.stdin], [], [], 1.0)[0]:
    with tracer.start_as_current_span("step"):
        counter.add(1)
