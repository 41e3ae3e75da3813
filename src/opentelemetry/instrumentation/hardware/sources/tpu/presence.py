"""Whether there is a TPU, and where it can be asked. Nothing is asked yet."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.tpu import addresses, chips
from opentelemetry.instrumentation.hardware.system.files import Files


class Ways:
    """Where a TPU is asked: what the settings, the bus and the environment come to."""

    def __init__(self, config: Config, environ: Mapping[str, str], kernel: Files | None) -> None:
        named = [word for word in config.tpu_runtime or () if word not in ("auto", "off")]
        self.chips = chips.found(kernel) if kernel is not None else []
        here = bool(self.chips or named or addresses.told(environ))
        self.runtime = addresses.runtime(config.tpu_runtime, environ) if here else ()
        asked = config.tpu_profiler not in (None, "auto", "off")
        self.profiler = addresses.profiler(config.tpu_profiler, environ) if asked or not here else ""
        self.sdk = config.libtpu == "on"

    def __bool__(self) -> bool:
        """Whether there is a TPU, or the address of one."""
        return bool(self.chips or self.runtime or self.profiler)
