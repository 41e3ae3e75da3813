"""Hardware telemetry for OpenTelemetry: the host, its file systems, its container and this process.

Run ``opentelemetry-instrument python app.py``, or::

    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

    HardwareInstrumentor().instrument()
"""

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor
from opentelemetry.instrumentation.hardware.version import __version__

__all__ = ["Config", "HardwareInstrumentor", "__version__"]
