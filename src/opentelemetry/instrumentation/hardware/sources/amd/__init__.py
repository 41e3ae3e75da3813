"""AMD: GPUs, from the files of the kernel driver amdgpu, or else from AMD's tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.accelerators.driver import DriverChoice
from opentelemetry.instrumentation.hardware.accelerators.selection import VisibilityRule
from opentelemetry.instrumentation.hardware.accelerators.source import AcceleratorSource
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.simulator.machine import announce

if TYPE_CHECKING:
    from opentelemetry.instrumentation.hardware.settings import Config
    from opentelemetry.instrumentation.hardware.system.files import Files


class Amd(AcceleratorSource):
    """AMD's GPUs."""

    name = "amd"
    rows = ("hw.", "process.gpu.")
    signs = ("/sys/module/amdgpu", "/sys/bus/pci/drivers/amdgpu")
    settings = ("amdgpu", "amd_smi", "rocm_smi")
    modules = (f"{__name__}.driver", f"{__name__}.tool", f"{__name__}.visible")
    absent = "no AMD driver is loaded: there is no /sys/module/amdgpu"
    fix = "rocm-smi or amd-smi should list the GPUs in the same environment"

    @classmethod
    def has_sign(cls, config: Config, environ: Mapping[str, str], files: Files | None) -> bool:
        """Whether one of the signs is present, or GPUs are simulated."""
        return config.simulates(cls.name) or super().has_sign(config, environ, files)

    def compute_files(self) -> tuple[str, ...]:
        """Return ROCm's device file."""
        return ("/dev/kfd",)

    def visibility(self) -> VisibilityRule:
        """Return the rule for ROCm's variables."""
        from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
        from opentelemetry.instrumentation.hardware.sources.amd.visible import visibility_rule

        if self.files is None:
            raise Unavailable(self.absent)
        self.topology = Topology(self.files)
        return visibility_rule(self.topology)

    def drivers(self) -> Iterator[DriverChoice]:
        """Yield the kernel's files, then the tools, the newer one first."""
        from opentelemetry.instrumentation.hardware.sources.amd.driver import Amdgpu
        from opentelemetry.instrumentation.hardware.sources.amd.processes import Processes
        from opentelemetry.instrumentation.hardware.sources.amd.tool import (
            AMD_SMI_TOOL,
            ROCM_SMI_TOOL,
            AmdSmi,
            RocmSmi,
        )

        files, topology, config, command = self.files, self.topology, self.context.config, self.context.drivers.command
        assert files is not None
        is_simulated = config.simulates(self.name)
        if is_simulated:
            announce(config.name_of("simulate"), config.simulate, "AMD")
        processes = Processes(files, topology)
        yield DriverChoice("amdgpu", "amdgpu", lambda: Amdgpu(files, topology, processes, is_simulated))
        yield DriverChoice(
            "amd-smi", "amd_smi", lambda: AmdSmi(command(AMD_SMI_TOOL.with_setting(config.amd_smi)), processes)
        )
        yield DriverChoice(
            "rocm-smi", "rocm_smi", lambda: RocmSmi(command(ROCM_SMI_TOOL.with_setting(config.rocm_smi)), processes)
        )
