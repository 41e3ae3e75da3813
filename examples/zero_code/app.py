"""A program without code for hardware telemetry. It runs for a while and creates a span for each step."""

import math
import os
import time

from opentelemetry import trace

tracer = trace.get_tracer("example.zero_code")


def step(number: int) -> float:
    with tracer.start_as_current_span("train.step") as span:
        span.set_attribute("train.step.number", number)
        batch = bytearray(20 * 2**20)
        return sum(math.sqrt(place) for place in range(0, len(batch), 64))


if __name__ == "__main__":
    end = time.monotonic() + float(os.environ.get("SECONDS_TO_RUN", "10"))
    number = 0
    while time.monotonic() < end:
        step(number)
        number += 1
        time.sleep(0.05)
    print(f"{number} steps done")
