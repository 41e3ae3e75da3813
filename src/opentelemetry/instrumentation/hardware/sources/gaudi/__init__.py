"""Intel Gaudi: accelerators, through the tool hl-smi."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import (
    Selection,
    VisibilityRule,
    all_ids,
    select_by_name,
)
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource

# Numbers of the modules of a server that a program may use, as hl-smi lists them.
VARIABLE: Final = "HABANA_VISIBLE_MODULES"


def visible_modules(environ: Mapping[str, str], found: Sequence[Device]) -> Selection:
    """Select the modules of the variable."""
    words = [f"module{word.strip()}" for word in environ.get(VARIABLE, "").split(",") if word.strip()]
    chosen = select_by_name(words, found) if words else Selection(all_ids(found))
    return chosen._replace(unmatched=tuple(word.removeprefix("module") for word in chosen.unmatched))


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
        return VisibilityRule("Gaudi", "hw.npu.*", (VARIABLE,), visible_modules)

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.sources.gaudi.driver import NAME, HlSmi

        files = self.linux_files()
        yield DriverChoice(NAME, "hl_smi", lambda: HlSmi(self.context, files))
