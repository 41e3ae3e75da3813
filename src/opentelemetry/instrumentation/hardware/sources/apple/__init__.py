"""Apple: the GPU and the other parts of an Apple chip, from ``apple_gpu_stats``, ``macmon`` or ``ioreg``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.drivers.subprocess import setting_path
from opentelemetry.instrumentation.hardware.model import Scope
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system.files import Files


class Apple(AcceleratorSource):
    """An Apple chip, read with the first tool that works. Tools with a path in the settings are tried first."""

    name = "apple"
    scope = Scope.HOST
    rows = ("hw.",)
    settings = ("apple_gpu_stats", "macmon", "ioreg")
    modules = ("plistlib", f"{__name__}.driver")
    absent = "this is not a Mac"
    is_selectable = False

    @classmethod
    def has_sign(cls, config: Config, environ: Mapping[str, str], files: Files | None) -> bool:
        del config, environ, files
        return sys.platform == "darwin"

    def is_present(self) -> bool:
        return bool(self.context.drivers.python_module("platform").call("system") == "Darwin")

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.sources.apple import driver

        config, command, stream = self.context.config, self.context.drivers.command, self.context.drivers.stream
        stats = driver.STATS.with_setting(config.apple_gpu_stats)
        macmon = driver.MACMON.with_setting(config.macmon)
        ioreg = driver.IOREG.with_setting(config.ioreg)
        choices = (
            DriverChoice(stats.name, stats.name, lambda: driver.Stats(command(stats))),
            DriverChoice(
                macmon.name, macmon.name, lambda: driver.Macmon(command(macmon), stream(macmon), config.interval)
            ),
            DriverChoice(ioreg.name, ioreg.name, lambda: driver.Ioreg(command(ioreg))),
        )
        yield from sorted(choices, key=lambda choice: not setting_path(getattr(config, choice.setting)))
