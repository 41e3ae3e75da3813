"""Tenstorrent: accelerators of the driver tt-kmd."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import Assignable, VisibilityRule, select_by_variable
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource

# The accelerators that a program may use: the numbers of the files in /dev/tenstorrent, or PCI addresses.
VARIABLE: Final = "TT_VISIBLE_DEVICES"

RULE: Final = VisibilityRule(
    "Tenstorrent accelerator",
    "hw.npu.*",
    (VARIABLE,),
    partial(select_by_variable, VARIABLE),
    assignable=lambda found: [Assignable("NPU", f"NPU {each.index}", each.id, str(each.index)) for each in found],
)


class Tenstorrent(AcceleratorSource):
    """Wormhole and Blackhole accelerators, from the files of their driver."""

    name = "tenstorrent"
    rows = ("hw.",)
    signs = ("/sys/class/tenstorrent", "/dev/tenstorrent")
    modules = (f"{__name__}.driver",)
    absent = "the driver tt-kmd is not loaded: there is no /sys/class/tenstorrent"
    fix = "tt-kmd 2.0 or newer has the files; load it with modprobe tenstorrent"

    def visibility(self) -> VisibilityRule:
        return RULE

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.sources.tenstorrent.driver import Kernel

        files = self.linux_files()
        yield DriverChoice("tt-kmd", "", lambda: Kernel(files))
