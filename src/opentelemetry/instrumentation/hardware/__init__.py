"""Hardware telemetry for OpenTelemetry: the host, its file systems, its container and this process.

Run ``opentelemetry-instrument python app.py``, or::

    from opentelemetry.instrumentation.hardware import HardwareInstrumentor

    HardwareInstrumentor().instrument()

What a block of code used::

    with measure() as m:
        train_one_epoch()
    print(m.energy, m.gpu_time, m.cpu_time)

All values of this machine now, such as for a notebook::

    for device in snapshot().devices:
        print(device.name, device.model, device.value("hw.power"))
"""

TYPE_CHECKING = False  # as typing has it
if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.instrumentor import HardwareInstrumentor
    from opentelemetry.instrumentation.hardware.settings import Config
    from opentelemetry.instrumentation.hardware.snapshots import Device, HardwareSnapshot, Value, snapshot
    from opentelemetry.instrumentation.hardware.spans.measure import Measurement, measure
    from opentelemetry.instrumentation.hardware.spans.processor import HardwareSpanProcessor
    from opentelemetry.instrumentation.hardware.version import __version__
else:

    def __getattr__(name: str) -> object:
        """Load a public name at its first use. The command needs none of them."""
        import importlib

        places = {
            "Config": "settings",
            "Device": "snapshots",
            "HardwareInstrumentor": "instrumentor",
            "HardwareSnapshot": "snapshots",
            "HardwareSpanProcessor": "spans.processor",
            "Measurement": "spans.measure",
            "Value": "snapshots",
            "measure": "spans.measure",
            "snapshot": "snapshots",
            "__version__": "version",
        }
        if name not in places:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{__name__}.{places[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "Config",
    "Device",
    "HardwareInstrumentor",
    "HardwareSnapshot",
    "HardwareSpanProcessor",
    "Measurement",
    "Value",
    "__version__",
    "measure",
    "snapshot",
]
