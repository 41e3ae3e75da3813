"""Intel Gaudi: accelerators, through the tool hl-smi."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule, select_by_variable
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource

# Numbers of the modules of a server that a program may use, as hl-smi lists them.
VARIABLE: Final = "HABANA_VISIBLE_MODULES"


class Gaudi(AcceleratorSource):
    """Gaudi, Gaudi 2 and Gaudi 3."""

    name = "gaudi"
    rows = ("hw.", "process.npu.")
    signs = ("/sys/module/habanalabs", "/sys/bus/pci/drivers/habanalabs")
    settings = ("hl_smi",)
    modules = (f"{__name__}.driver",)
    absent = "the driver habanalabs is not loaded: there is no /sys/module/habanalabs"
    fix = "hl-smi should list the accelerators in the same environment"
    process_metrics = "process.npu.utilization"

    def visibility(self) -> VisibilityRule:
        return VisibilityRule("Gaudi", "hw.npu.*", (VARIABLE,), partial(select_by_variable, VARIABLE, prefix="module"))

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.sources.gaudi.driver import NAME, HlSmi

        files = self.linux_files()
        yield DriverChoice(NAME, "hl_smi", lambda: HlSmi(self.context, files))
