"""A program that uses the package. The step `package` runs it, and checks its types against the installed wheel."""

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from opentelemetry.instrumentation.hardware import Config, HardwareInstrumentor, HardwareSpanProcessor, __version__
from opentelemetry.instrumentation.hardware.resource_detector import HardwareJobDetector

resource: Resource = HardwareJobDetector().detect()
meters = MeterProvider([InMemoryMetricReader()], resource)
traces = TracerProvider(resource=resource)
traces.add_span_processor(HardwareSpanProcessor())
instrumentor: HardwareInstrumentor = HardwareInstrumentor()
instrumentor.instrument(meter_provider=meters, sources=["host"], sample_interval=1)
instrumentor.uninstrument()
config: Config = Config()
version: str = __version__
