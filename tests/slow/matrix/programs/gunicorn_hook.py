"""A configuration of gunicorn that instruments each worker, unless the package is turned off."""

import os


def post_fork(server, worker):  # type: ignore[no-untyped-def]
    if "hardware" not in os.environ["OTEL_PYTHON_DISABLED_INSTRUMENTATIONS"].split(","):
        from opentelemetry.instrumentation.hardware import HardwareInstrumentor

        HardwareInstrumentor().instrument()
