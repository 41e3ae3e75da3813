"""A program that ends a span in a finalizer, as agent-framework does for a stream that nobody reads to its end."""

import weakref

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

from opentelemetry.instrumentation.hardware import HardwareInstrumentor


class Stream:
    """It lives until the exit."""


if __name__ == "__main__":
    HardwareInstrumentor().instrument()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
    stream = Stream()
    weakref.finalize(stream, provider.get_tracer(__name__).start_span("stream").end)
