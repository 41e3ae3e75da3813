"""NVIDIA: GPUs and MIG instances, through the library NVML, or nvidia-smi if the library cannot be used."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.presence import matches
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.sleep import RuntimePower
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.sources.nvidia.visible import RULE

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.settings import Config

_WINDOWS = "C:\\Windows\\System32\\nvml.dll"

_SIGNS = "neither /sys/module/nvidia nor /proc/driver/nvidia exists"
if sys.platform == "win32":
    _SIGNS = f"{_WINDOWS} does not exist"


class Nvidia(AcceleratorSource):
    """The GPUs, and their usage by the observed program."""

    name = "nvidia"
    rows = ("hw.", "process.gpu.")
    signs = (  # NVML is not initialized without one: as root it would create device files, and load the kernel module
        "/sys/module/nvidia/initstate",
        "/proc/driver/nvidia/version",
        "/proc/driver/nvidia/params",  # all that gVisor has
        "/sys/module/nvgpu",  # Jetson, which has no PCI device
        "/sys/devices/platform/gpu.0/load",
        "/sys/devices/gpu.0/load",  # with a kernel that has nvgpu built in
        "/dev/dxg",  # a container in WSL
        "/usr/lib/wsl/lib/libnvidia-ml.so.1",
        _WINDOWS,
    )
    settings = ("nvml", "nvidia_smi")
    modules = (f"{__name__}.driver", f"{__name__}.tool", f"{__name__}.jetson", "pynvml")
    absent = f"no NVIDIA driver is loaded: {_SIGNS}; if NVML works here, set {PREFIX}NVML to the path of its library"
    fix = (
        "nvidia-smi should work in the same environment; in a container the NVIDIA Container Toolkit brings the library"
    )

    @classmethod
    def prepare(cls, config: Config) -> bool:
        if config.simulates(cls.name):
            import opentelemetry.instrumentation.hardware.sources.nvidia.simulated  # noqa: F401
        return super().prepare(config)

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.sources.nvidia.driver import Library
        from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Host, Jetson, Nvgpu
        from opentelemetry.instrumentation.hardware.sources.nvidia.tool import NvidiaSmi

        jetson = Jetson(self.files)
        host = Host(self._power(), jetson, self.context.drivers.machine().total_memory)
        if self.context.config.simulates(self.name):
            yield DriverChoice("the simulator", "", lambda: Library(self, host))
            return
        yield DriverChoice("NVML", "nvml", lambda: Library(self, host))
        yield DriverChoice("nvidia-smi", "nvidia_smi", lambda: NvidiaSmi(self, host))
        if jetson.paths():
            yield DriverChoice("nvgpu", "", lambda: Nvgpu(jetson))

    def visibility(self) -> VisibilityRule:
        return RULE

    def compute_files(self) -> Sequence[str]:
        """Return the device files that a program opens to compute. NVML does not open them."""
        return ("/dev/nvidia-uvm",)

    def _power(self) -> RuntimePower:
        folders = matches("/proc/driver/nvidia/gpus/*", self.files)
        return RuntimePower(self.files, [folder.rpartition("/")[2].lower() for folder in folders])

    def may_open(self) -> bool:
        """Whether any GPU is awake, because initializing NVML wakes all of them."""
        return not self._power().are_all_suspended()
