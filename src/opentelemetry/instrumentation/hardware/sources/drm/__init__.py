"""GPUs of small computers and desktops, and NPUs of laptops. Their drivers are part of the Linux kernel.

AMD's and Intel's GPUs have sources of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource


class Drm(AcceleratorSource):
    """GPUs and NPUs that the kernel's Direct Rendering Manager reports.

    Attributes:
        gpus: Kernel drivers of GPUs, as they are named on the bus.
        npus: Kernel drivers of NPUs.
    """

    name = "drm"
    rows = ("hw.", "process.gpu.", "process.npu.")
    modules = (f"{__name__}.driver",)
    absent = (
        "there is no GPU of nouveau, panfrost, panthor, lima, v3d or msm in /sys/class/drm, and no NPU of ivpu or "
        "amdxdna in /sys/class/accel"
    )
    process_metrics = "process.gpu.*, process.npu.*"
    is_selectable = False
    gpus: ClassVar[tuple[str, ...]] = (
        "panfrost",
        "panthor",
        "lima",
        "v3d",
        "msm_dpu",
        "msm_mdp",
        "msm-mdss",
        "adreno",
        "nouveau",
    )
    npus: ClassVar[tuple[str, ...]] = ("intel_vpu", "amdxdna")
    cards = (*gpus, *npus)

    def visibility(self) -> VisibilityRule:
        return VisibilityRule("GPU or NPU")

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.sources.drm.driver import Kernel

        files = self.linux_files()
        yield DriverChoice("the kernel", "", lambda: Kernel(self, files, self.gpus, self.npus))
