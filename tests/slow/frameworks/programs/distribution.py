"""Spans with a vendor's distribution of OpenTelemetry: nested ones, and those of forked processes.

Usage: the distribution's command, then python -m tests.slow.frameworks.programs.distribution
       python -m tests.slow.frameworks.programs.distribution azure|sentry|lumigo|ddtrace first|last
"""

import multiprocessing
import os
import sys
import time
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tests.slow.frameworks.programs.ours import instrument

from opentelemetry import trace


def set_up(vendor: str) -> None:
    """Set up the SDK by code, as the vendor's documentation says."""
    endpoint = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    if vendor == "azure":
        from azure.monitor.opentelemetry import configure_azure_monitor

        key = "InstrumentationKey=00000000-0000-0000-0000-000000000001"
        configure_azure_monitor(
            connection_string=f"{key};IngestionEndpoint={endpoint}/;LiveEndpoint={endpoint}/",
            span_processors=[BatchSpanProcessor(OTLPSpanExporter())],
            sampling_ratio=1.0,
        )
    if vendor == "ddtrace":  # started by ddtrace-run; the SDK is beside it
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
    if vendor == "sentry":
        import sentry_sdk
        from sentry_sdk.integrations.otlp import OTLPIntegration

        key = "http://0123456789abcdef0123456789abcdef@"
        sentry_sdk.init(dsn=f"{endpoint.replace('http://', key)}/7", integrations=[OTLPIntegration()])


def work(name: str) -> None:
    """Make a span in a child process, and export it."""
    with trace.get_tracer(__name__).start_as_current_span(name):
        time.sleep(1.2)
    provider: Any = trace.get_tracer_provider()
    provider.force_flush()


if __name__ == "__main__":
    if sys.argv[1:]:
        vendor, ours = sys.argv[1:]
        if ours == "first":
            instrument()
        set_up(vendor)
        if ours == "last":
            instrument()
    tracer = trace.get_tracer(__name__)
    for _ in range(2):
        with tracer.start_as_current_span("request"), tracer.start_as_current_span("model"):
            time.sleep(0.8)
    process = multiprocessing.get_context("fork").Process(target=work, args=("worker",))
    process.start()
    process.join()
    if os.fork() == 0:
        try:
            work("forked")
        finally:
            os._exit(0)
    os.wait()
