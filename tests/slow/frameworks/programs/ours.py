"""Starts this package by code, where it is installed: the same programs run without it."""

import time
from importlib.util import find_spec


def instrument() -> None:
    """Call ``HardwareInstrumentor().instrument()`` if there is one."""
    if find_spec("opentelemetry.instrumentation.hardware") is not None:
        from opentelemetry.instrumentation.hardware import HardwareInstrumentor

        HardwareInstrumentor().instrument()
        time.sleep(1.0)  # a span that ends before the driver has answered twice has no energy
