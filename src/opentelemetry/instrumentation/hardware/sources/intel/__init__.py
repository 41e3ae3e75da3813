"""Intel: GPUs, from the files of the kernel drivers i915 and xe."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource


class Intel(AcceleratorSource):
    """Intel's GPUs: cards, and parts of a CPU."""

    name = "intel"
    rows = ("hw.", "process.gpu.")
    modules = (f"{__name__}.device", "opentelemetry.instrumentation.hardware.accelerators.drm")
    cards = ("i915", "xe")
    absent = "there is no GPU of i915 or xe in /sys/class/drm"

    def visibility(self) -> VisibilityRule:
        """Return a rule without variables: those of Level Zero count devices in an order that the files do not have."""
        return VisibilityRule("Intel GPU", "hw.gpu.*", driver="i915 xe")

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.accelerators.drm import DrmDriver
        from opentelemetry.instrumentation.hardware.sources.intel.device import Gpu

        files = self.linux_files()
        # The only way to read them: the counters of the kernel's PMU need CAP_PERFMON.
        yield DriverChoice("the kernel", "", lambda: DrmDriver(files, dict.fromkeys(self.cards, Gpu), (), self.absent))
