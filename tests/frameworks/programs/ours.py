"""Starts this package by code, where it is installed: the same programs run without it."""

from importlib.util import find_spec


def instrument() -> None:
    """Call ``HardwareInstrumentor().instrument()`` if there is one."""
    if find_spec("opentelemetry.instrumentation.hardware") is not None:
        from opentelemetry.instrumentation.hardware import HardwareInstrumentor

        HardwareInstrumentor().instrument()
