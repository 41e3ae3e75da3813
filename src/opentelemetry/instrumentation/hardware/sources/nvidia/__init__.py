"""NVIDIA: GPUs and MIG instances, through the library NVML, or nvidia-smi if the library cannot be used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.sleep import RuntimePower
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.settings import PREFIX
from opentelemetry.instrumentation.hardware.sources.nvidia.visible import RULE
from opentelemetry.instrumentation.hardware.system.local import machine

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.settings import Config
    from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Host, Jetson
    from opentelemetry.instrumentation.hardware.system.files import Files

_GPUS = "/proc/driver/nvidia/gpus"


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
        "C:\\Windows\\System32\\nvml.dll",
    )
    settings = ("nvml", "nvidia_smi")
    modules = (f"{__name__}.driver", f"{__name__}.tool", f"{__name__}.jetson", "pynvml")
    absent = (
        "no NVIDIA driver is loaded: neither /sys/module/nvidia nor /proc/driver/nvidia exists; if NVML works here, "
        f"set {PREFIX}NVML to the path of libnvidia-ml.so.1"
    )
    fix = (
        "nvidia-smi should work in the same environment; in a container the NVIDIA Container Toolkit brings the library"
    )

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import the modules that read the devices, if there may be some."""
        if config.simulates(cls.name):
            import opentelemetry.instrumentation.hardware.sources.nvidia.simulated  # noqa: F401
        return super().prepare(config)

    @classmethod
    def has_sign(cls, config: Config, environ: Mapping[str, str], files: Files | None) -> bool:
        """Whether one of the signs is present, or GPUs are simulated."""
        return config.simulates(cls.name) or super().has_sign(config, environ, files)

    def drivers(self) -> Iterator[DriverChoice]:
        """Yield NVML, nvidia-smi, and the kernel's files of a Jetson."""
        if self.context.config.simulates(self.name):
            yield DriverChoice("the simulator", "", self._library)
            return
        yield DriverChoice("NVML", "nvml", self._library)
        yield DriverChoice("nvidia-smi", "nvidia_smi", self._tool)
        jetson = self._host().jetson
        if jetson.paths():
            yield DriverChoice("nvgpu", "", lambda: self._nvgpu(jetson))

    def _library(self) -> AcceleratorDriver:
        from opentelemetry.instrumentation.hardware.sources.nvidia.driver import Library

        return Library(self, self._host())

    def _tool(self) -> AcceleratorDriver:
        from opentelemetry.instrumentation.hardware.sources.nvidia.tool import NvidiaSmi

        return NvidiaSmi(self, self._host())

    def _nvgpu(self, jetson: Jetson) -> AcceleratorDriver:
        from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Nvgpu

        return Nvgpu(jetson)

    def _host(self) -> Host:
        from opentelemetry.instrumentation.hardware.sources.nvidia.jetson import Host, Jetson

        return Host(self._power(), Jetson(self.files), machine(self.context.drivers).total_memory)

    def visibility(self) -> VisibilityRule:
        """Return the rule for the variables of CUDA and of the container runtime."""
        return RULE

    def compute_files(self) -> Sequence[str]:
        """Return the device files that a program opens to compute. NVML does not open them."""
        return ("/dev/nvidia-uvm",)

    def _power(self) -> RuntimePower:
        """Return the runtime power state of all GPUs."""
        addresses: Sequence[str] = ()
        with suppress(OSError):
            names = self.files.names(_GPUS) if self.files else os.listdir(_GPUS)
            addresses = [name.lower() for name in names]
        return RuntimePower(self.files, addresses)

    def may_open(self) -> bool:
        """Whether any GPU is awake, because initializing NVML wakes all of them."""
        return not self._power().are_all_suspended()
