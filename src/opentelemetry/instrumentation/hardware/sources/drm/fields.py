"""The files of GPUs and NPUs by name, and their metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as a
from opentelemetry.instrumentation.hardware.accelerators.fdinfo import TASKS

# By task.
GPU_UTILIZATION: Final[Mapping[str, a.Field]] = {task: a.utilization(task, "") for task in TASKS.values()}

FREQUENCY: Final = a.frequency("graphics", "Hz")
FREQUENCY_LIMIT: Final = a.frequency_limit("graphics", "Hz")

GPU_SENSORS: Final[Mapping[str, a.Field]] = {
    "temp1_input": a.temperature("gpu", "m°C"),
    "power1_input": a.power("µW"),
}

# Files of nouveau's sensors.
GPU_SENSORS_SLOW: Final[Mapping[str, a.Field]] = {
    "temp1_max": a.temperature_limit("gpu", "high.degraded", "m°C"),
    "temp1_crit": a.temperature_limit("gpu", "high.critical", "m°C"),
    "power1_max": a.power_limit("max", "µW"),
    "in0_input": a.voltage("gpu"),
}

# A table of v3d: by queue, the nanoseconds in which it was busy.
GPU_STATS: Final = "gpu_stats"

NPU_BUSY: Final = "npu_busy_time_us"
NPU_UTILIZATION: Final = a.npu_utilization(unit="")
NPU_FREQUENCY: Final = a.Field(c.HW_NPU_FREQUENCY, unit="Hz")

# Files of Intel's NPU driver ivpu.
NPU: Final[Mapping[str, a.Field]] = {
    "npu_memory_utilization": a.Field(c.HW_NPU_MEMORY_USAGE),
    "npu_current_frequency_mhz": a.Field(c.HW_NPU_FREQUENCY, unit="MHz"),
}

NPU_SENSORS: Final[Mapping[str, a.Field]] = {
    "temp1_input": a.temperature("die", "m°C"),
    "power1_input": a.power("µW"),
}

# By kernel driver.
VENDORS: Final[Mapping[str, str]] = {
    "panfrost": "Arm",
    "panthor": "Arm",
    "lima": "Arm",
    "v3d": "Broadcom",
    **dict.fromkeys(("msm_dpu", "msm_mdp", "msm-mdss", "adreno"), "Qualcomm"),
    "nouveau": "NVIDIA",
    "intel_vpu": "Intel",
    "amdxdna": "AMD",
}
