"""AMD: GPUs, from the files of the kernel driver amdgpu, or else from AMD's tools."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.simulator.machine import announce


class Amd(AcceleratorSource):
    """AMD's GPUs."""

    name = "amd"
    rows = ("hw.", "process.gpu.")
    signs = ("/sys/module/amdgpu", "/sys/bus/pci/drivers/amdgpu")
    settings = ("amdgpu", "amd_smi", "rocm_smi")
    modules = (f"{__name__}.driver", f"{__name__}.tool", f"{__name__}.visible")
    absent = "no AMD driver is loaded: there is no /sys/module/amdgpu"
    fix = "rocm-smi or amd-smi should list the GPUs in the same environment"

    def compute_files(self) -> tuple[str, ...]:
        return ("/dev/kfd",)

    def visibility(self) -> VisibilityRule:
        from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
        from opentelemetry.instrumentation.hardware.sources.amd.visible import visibility_rule

        self.topology = Topology(self.linux_files())
        return visibility_rule(self.topology)

    def drivers(self) -> Iterator[DriverChoice]:
        from opentelemetry.instrumentation.hardware.sources.amd import tool
        from opentelemetry.instrumentation.hardware.sources.amd.driver import Amdgpu

        files, topology = self.linux_files(), self.topology
        config, command = self.context.config, self.context.drivers.command
        is_simulated = config.simulates(self.name)
        if is_simulated:
            announce(config.name_of("simulate"), config.simulate, "AMD")
        amd_smi, rocm_smi = tool.AMD_SMI.with_setting(config.amd_smi), tool.ROCM_SMI.with_setting(config.rocm_smi)
        yield DriverChoice("amdgpu", "amdgpu", lambda: Amdgpu(files, topology, is_simulated))
        yield DriverChoice("amd-smi", "amd_smi", lambda: tool.AmdSmi(files, topology, command(amd_smi)))
        yield DriverChoice("rocm-smi", "rocm_smi", lambda: tool.RocmSmi(files, topology, command(rocm_smi)))
