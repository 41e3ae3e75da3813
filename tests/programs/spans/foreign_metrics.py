"""A program that configures logfire again after instrument(). It prints the names of its metrics, as JSON."""

import gc
import json
import time

import logfire
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.support.journal import flatten

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

ATTEMPTS = 100

if __name__ == "__main__":
    logfire.configure(send_to_logfire=False, console=False)
    HardwareInstrumentor().instrument(sources=["process"])
    gc.collect()
    reader = InMemoryMetricReader()
    metrics = logfire.MetricsOptions(additional_readers=[reader])
    logfire.configure(send_to_logfire=False, console=False, metrics=metrics)
    names: set[str] = set()
    for _ in range(ATTEMPTS):
        names |= {point.name for point in flatten(reader.get_metrics_data())}
        if names:
            break
        time.sleep(0.1)
    print(json.dumps(sorted(names)))
