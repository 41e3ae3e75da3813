"""Google: TPUs, from the metric services of programs, the profiler of a TPU node, and libtpu's SDK."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.model import Scope
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.tpu.driver import TpuDriver
from opentelemetry.instrumentation.hardware.sources.tpu.presence import Presence
from opentelemetry.instrumentation.hardware.system.files import Files


class Tpu(AcceleratorSource):
    """The TPUs of this host, or of a node that the environment names."""

    name = "tpu"
    scope = Scope.HOST
    rows = ("hw.", "google.tpu.")
    modules = (f"{__name__}.messages", "opentelemetry.instrumentation.hardware.drivers.rpc")
    absent = "there is no TPU on the PCI bus, and neither TPU_NAME nor TPU_RUNTIME_METRICS_PORTS names one"
    is_selectable = False

    @classmethod
    def has_sign(cls, config: Config, environ: Mapping[str, str], files: Files | None) -> bool:
        return bool(Presence(config, environ, files))

    def drivers(self) -> Iterator[DriverChoice]:
        yield DriverChoice("the TPU services", "", lambda: TpuDriver(self))
