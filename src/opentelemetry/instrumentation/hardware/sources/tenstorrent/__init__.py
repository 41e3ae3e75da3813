"""Tenstorrent: accelerators of the driver tt-kmd."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.model import Scope


class Tenstorrent(AcceleratorSource):
    """Wormhole and Blackhole accelerators, from the files of their driver."""

    name = "tenstorrent"
    scope = Scope.HOST
    rows = ("hw.",)
    signs = ("/sys/class/tenstorrent", "/dev/tenstorrent")
    modules = (f"{__name__}.driver", f"{__name__}.visible")
    absent = "the driver tt-kmd is not loaded: there is no /sys/class/tenstorrent"
    fix = "tt-kmd 2.0 or newer has the files; load it with modprobe tenstorrent"

    def visibility(self) -> VisibilityRule:
        from opentelemetry.instrumentation.hardware.sources.tenstorrent.visible import RULE

        return RULE

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.sources.tenstorrent.driver import Kernel

        files = self.linux_files()
        yield DriverChoice("tt-kmd", "", lambda: Kernel(files))
