"""The GPUs of i915 and xe, the only way to read them: the counters of the kernel's PMU need CAP_PERFMON."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.instrumentation.hardware.accelerators.drm import DrmDriver
from opentelemetry.instrumentation.hardware.sources.intel.device import Gpu
from opentelemetry.instrumentation.hardware.system.files import Files


class Kernel(DrmDriver):
    """The GPUs of i915 and xe.

    Args:
        files: Reads the files.
        gpus: The kernel drivers.
        absent: The reason of Unavailable.
    """

    def __init__(self, files: Files, gpus: Sequence[str], absent: str) -> None:
        super().__init__(files, dict.fromkeys(gpus, Gpu), (), absent)
