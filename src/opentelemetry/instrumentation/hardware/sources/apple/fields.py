"""The keys in the tools' output, with the part of the Mac, metric, unit and plausible range of each.

The tools print 0 for a sensor that the chip does not have, so 0 is plausible only where a part may be idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as a

GPU: Final = "gpu0"
SRAM: Final = "gpu0/sram"
CPU: Final = "cpu"
E_CORES: Final = "ecpu"
P_CORES: Final = "pcpu"
ANE: Final = "ane"
MEMORY: Final = "memory"
HOST: Final = "host"

# The parts of a Mac by ``hw.id``: name, type and the part that they belong to. All others are fans.
PARTS: Final[Mapping[str, tuple[str, str, str]]] = {
    GPU: ("GPU 0", "gpu", ""),
    SRAM: ("GPU 0 SRAM", "memory", GPU),
    CPU: ("CPU", "cpu", ""),
    E_CORES: ("E cores", "cpu", CPU),
    P_CORES: ("P cores", "cpu", CPU),
    ANE: ("Neural Engine", "npu", ""),
    MEMORY: ("Memory", "memory", ""),
    HOST: ("machine", "host", ""),
}

UTILIZATION: Final = a.utilization("general")
RENDERER: Final = a.utilization("renderer")
TILER: Final = a.utilization("tiler")
ACTIVE: Final = a.utilization("general", "")
SCALED: Final = a.utilization("scaled", "")
# A sensor that is off reports -5 to 10 degrees. A Mac is made for rooms of 10 degrees or more, and its chip is warmer.
TEMPERATURE: Final = a.temperature("gpu", least=10)
CPU_TEMPERATURE: Final = a.temperature("cpu", least=10)
POWER: Final = a.power(least=1e-12, most=5000)
IDLE_POWER: Final = a.power(least=0, most=5000)
MEMORY_USED: Final = a.memory_used(least=1)
MEMORY_ALLOCATED: Final = a.Field(c.HW_GPU_MEMORY_ALLOCATED, least=1)
FREQUENCY: Final = a.frequency("graphics", least=1, most=20e9)
CPU_SPEED: Final = a.Field(c.HW_CPU_SPEED, unit="MHz", least=1, most=20e9)
HOST_POWER: Final = a.Field(c.HW_HOST_POWER, least=1e-12, most=5000)
HOST_ENERGY: Final = a.Field(c.HW_HOST_ENERGY)
RECOVERIES: Final = a.errors("recovery", most=1 << 40)
FAN_SPEED: Final = a.Field(c.HW_FAN_SPEED)
FAN_SPEED_RATIO: Final = a.Field(c.HW_FAN_SPEED_RATIO)

# Keys of ``apple_gpu_stats --json``, the first generation.
STATS_1: Final[Mapping[str, tuple[str, a.Field]]] = {
    "utilization": (GPU, UTILIZATION),
    "mem_used": (GPU, a.Field(c.HW_GPU_MEMORY_UTILIZATION, unit="%", least=1e-9)),
    "temperature": (GPU, TEMPERATURE),
    "power": (GPU, POWER),
}

# Keys of ``apple_gpu_stats``, the second generation.
STATS_2: Final[Mapping[str, tuple[str, a.Field]]] = {
    "utilization": (GPU, UTILIZATION),
    "renderUtilization": (GPU, RENDERER),
    "tilerUtilization": (GPU, TILER),
    "inUseSystemMemory": (GPU, MEMORY_USED),
    "allocatedSystemMemory": (GPU, MEMORY_ALLOCATED),
    "recoveryCount": (GPU, RECOVERIES),
    "gpuPower": (GPU, POWER),
    "systemPower": (HOST, HOST_POWER),
}

# GPU temperatures of the second generation: the sensors of all chips, 0 for those that this chip does not have.
STATS_2_TEMPERATURES: Final = (
    *(f"m1Gpu{number}" for number in range(1, 5)),
    *(f"m2Gpu{number}" for number in range(1, 3)),
    *(f"m3Gpu{number}" for number in range(1, 9)),
)

# Keys of ``PerformanceStatistics`` in the I/O registry.
IOREG: Final[Mapping[str, tuple[str, a.Field]]] = {
    "Device Utilization %": (GPU, UTILIZATION),
    "Renderer Utilization %": (GPU, RENDERER),
    "Tiler Utilization %": (GPU, TILER),
    "In use system memory": (GPU, MEMORY_USED),
    "Alloc system memory": (GPU, MEMORY_ALLOCATED),
    "recoveryCount": (GPU, RECOVERIES),
}

# Keys of ``macmon pipe`` since 0.8; until 0.7 a pair ``gpu_usage`` has the frequency and the scaled ratio. Versions
# between 0.7 and 0.8.2 call the latter ``gpu_usage_ratio``.
#
# The active ratio is the share of the time; the scaled ratio is the share of the work that the unit could do at its
# highest frequency.
MACMON: Final[Mapping[str, tuple[str, a.Field]]] = {
    "gpu_active_ratio": (GPU, ACTIVE),
    "gpu_usage_ratio": (GPU, SCALED),
    "gpu_scaled_ratio": (GPU, SCALED),
    "gpu_freq_mhz": (GPU, FREQUENCY),
    "temp/gpu_temp_avg": (GPU, TEMPERATURE),
    "gpu_power": (GPU, IDLE_POWER),
    "gpu_ram_power": (SRAM, POWER),
    "cpu_power": (CPU, POWER),
    "temp/cpu_temp_avg": (CPU, CPU_TEMPERATURE),
    "ecpu_freq_mhz": (E_CORES, CPU_SPEED),
    "pcpu_freq_mhz": (P_CORES, CPU_SPEED),
    "ane_power": (ANE, IDLE_POWER),
    "ram_power": (MEMORY, POWER),
    "sys_power": (HOST, HOST_POWER),
}

# The values that a Mac has, although no tool reports all of them.
EXPECTED: Final = (
    (GPU, UTILIZATION),
    (GPU, MEMORY_USED),
    (GPU, TEMPERATURE),
    (GPU, POWER),
    (GPU, FREQUENCY),
    (CPU, POWER),
    (ANE, POWER),
    (P_CORES, CPU_SPEED),
    (HOST, HOST_POWER),
)
