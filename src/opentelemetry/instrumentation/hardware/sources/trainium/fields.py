"""The values of the Neuron driver and of neuron-monitor, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Field, errors, npu_utilization

UTILIZATION: Final = npu_utilization()  # of a core, in percent

# Of a device, in bytes.
MEMORY_USED: Final = Field(c.HW_NPU_MEMORY_USAGE)
MEMORY_TOTAL: Final = Field(c.HW_NPU_MEMORY_LIMIT)

# Mean power of the last minute, in percent of the maximum.
POWER: Final = Field(c.HW_POWER_UTILIZATION, unit="%", most=1)

# Memory errors since the driver was loaded, by the name of the file and of neuron-monitor.
ERRORS: Final[Mapping[str, Field]] = {
    "mem_ecc_corrected": errors("corrected"),
    "mem_ecc_uncorrected": errors("uncorrected"),
    "mem_ecc_repairable_uncorrected": errors("repairable"),
    "sram_ecc_corrected": errors("sram_corrected"),
    "sram_ecc_uncorrected": errors("sram_uncorrected"),
}
