"""A program without metrics of its own that forks while its reader exports. The child has metrics.

Prints the status of the child, or "hung".
"""

from __future__ import annotations

import os
import sys
import threading

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    PeriodicExportingMetricReader,
)
from tests.support.relatives import outcome
from tests.support.traces import until

from opentelemetry.instrumentation.hardware import HardwareInstrumentor

PATIENCE = 20.0  # seconds. The SDK waits for 30 s.

PARENT = os.getpid()


class Slow(MetricExporter):
    """An export that lasts until the child has ended; those of the child are fast."""

    exporting, ended = threading.Event(), threading.Event()

    def export(self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object) -> MetricExportResult:
        if os.getpid() == PARENT:
            self.exporting.set()
            self.ended.wait(60)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        pass


if __name__ == "__main__":
    reader = PeriodicExportingMetricReader(Slow(), export_interval_millis=500)
    provider = MeterProvider([reader])
    HardwareInstrumentor().instrument(meter_provider=provider)
    until(Slow.exporting.is_set, "export")
    child = os.fork()
    if not child:
        provider.get_meter("child").create_counter("child.steps").add(1)
        sys.exit(3)
    print(outcome(child, PATIENCE))
    Slow.ended.set()
