"""Intel: GPUs, from the files of the kernel drivers i915 and xe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.accelerators.sysfs import cards_of
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.system.files import Files


class Intel(AcceleratorSource):
    """Intel's GPUs: cards, and parts of a CPU.

    Attributes:
        gpus: The kernel drivers.
    """

    name = "intel"
    rows = ("hw.", "process.gpu.")
    settings = ()
    modules = (f"{__name__}.device", "opentelemetry.instrumentation.hardware.accelerators.drm")
    gpus: ClassVar[tuple[str, ...]] = ("i915", "xe")
    absent = "there is no GPU of i915 or xe in /sys/class/drm"

    @classmethod
    def has_sign(cls, config: Config, environ: Mapping[str, str], files: Files | None) -> bool:
        del config, environ
        return files is not None and bool(cards_of(files, cls.gpus))

    def visibility(self) -> VisibilityRule:
        """Return a rule without variables: those of Level Zero count devices in an order that the files do not have."""
        return VisibilityRule("Intel GPU", "hw.gpu.*", driver="i915 xe")

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.accelerators.drm import DrmDriver
        from opentelemetry.instrumentation.hardware.sources.intel.device import Gpu

        files = self.linux_files()
        # The only way to read them: the counters of the kernel's PMU need CAP_PERFMON.
        yield DriverChoice("the kernel", "", lambda: DrmDriver(files, dict.fromkeys(self.gpus, Gpu), (), self.absent))
