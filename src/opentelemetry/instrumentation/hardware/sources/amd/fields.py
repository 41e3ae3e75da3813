"""The values of amdgpu and of AMD's tools by name, with metrics, units and plausible ranges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as a
from opentelemetry.instrumentation.hardware.accelerators.sysfs import PCIE_GENERATION, PCIE_WIDTH

_COUNT = (1 << 32) - 2  # all ones stands for a count that is not available

# Watts of a GPU that is awake. For some that are part of a CPU, the driver reports a few mW.
_LEAST_POWER = 0.1

# -- files of amdgpu

UTILIZATION: Final = a.utilization("general")
MEMORY_USED: Final = a.memory_used()
MEMORY_TOTAL: Final = a.memory_total()
POWER: Final = a.power("µW", least=_LEAST_POWER)
OVERDRIVE: Final = a.Field(c.HW_GPU_MEMORY_OVERDRIVE_RATIO, unit="%")
POWER_INSTANT: Final = a.Field(c.HW_POWER_INSTANT, unit="µW", least=_LEAST_POWER)

# Files of a card that are sampled.
SYSFS: Final[Mapping[str, a.Field]] = {
    "gpu_busy_percent": UTILIZATION,
    "mem_busy_percent": a.utilization("memory"),
    "mem_info_vram_used": MEMORY_USED,
    "mem_info_vram_total": MEMORY_TOTAL,
}

SYSFS_SLOW: Final[Mapping[str, a.Field]] = {
    "pcie_replay_count": a.errors("pcie_replay", most=_COUNT),
    "pp_mclk_od": OVERDRIVE,
    "pp_dpm_sclk": a.frequency_limit("graphics"),
    "pp_dpm_mclk": a.frequency_limit("memory"),
}

# Files of sensors that are sampled, each with the sensor's label instead of its number.
HWMON: Final[Mapping[str, a.Field]] = {
    "edge_input": a.temperature("edge", "m°C"),
    "junction_input": a.temperature("junction", "m°C"),
    "mem_input": a.temperature("memory", "m°C"),
    "sclk_input": a.frequency("graphics", "Hz"),
    "mclk_input": a.frequency("memory", "Hz"),
}

HWMON_SLOW: Final[Mapping[str, a.Field]] = {
    **{
        f"{label}_{file}": a.temperature_limit(sensor, limit, "m°C")
        for label, sensor in {"edge": "edge", "junction": "junction", "mem": "memory"}.items()
        for file, limit in {"crit": "high.degraded", "emergency": "high.critical"}.items()
    },
    "vddgfx_input": a.voltage("gpu"),
    "vddnb_input": a.voltage("soc"),
    "vddboard_input": a.voltage("board"),
    "power1_cap": a.power_limit("enforced", "µW"),
    "power1_cap_max": a.power_limit("max", "µW"),
    "power1_cap_default": a.power_limit("default", "µW"),
}

# By block of the chip, the beginning of the type of its errors; ``chip_`` for other blocks. UMC is the device memory.
# The engines count the ECC errors of their caches, registers and buffers.
RAS_BLOCKS: Final[Mapping[str, str]] = {"umc": "", **dict.fromkeys(("gfx", "sdma", "mmhub", "vcn", "jpeg"), "sram_")}

RAS: Final[Mapping[tuple[str, str], a.Field]] = {
    (prefix, kind): a.errors(prefix + kind)
    for prefix in ("", "sram_", "chip_")
    for kind in ("corrected", "uncorrected", "deferred")
}

FAN_SPEED_RATIO: Final = a.Field(c.HW_FAN_SPEED_RATIO, unit="%", most=1)
FAN_METRICS: Final = (c.HW_FAN_SPEED, c.HW_FAN_SPEED_RATIO)

ENERGY: Final = a.energy()

THROTTLE_REASONS: Final = ("power_cap", "current_cap", "thermal_sw", "thermal_hw")

# The values that :class:`~.gpu_metrics.GpuMetrics` decodes.
GPU_METRICS: Final[Mapping[str, a.Field]] = {
    "video": a.utilization("video", ""),
    "jpeg": a.utilization("jpeg", ""),
    **{f"hbm{stack}": a.temperature(f"hbm{stack}") for stack in range(4)},
    "pcie.generation": PCIE_GENERATION,
    "pcie.width": PCIE_WIDTH,
    "clock.video": a.frequency("video"),
    "voltage.soc": a.voltage("soc"),
    "voltage.memory": a.voltage("memory"),
    "energy": ENERGY,
    "xgmi.receive": a.link("xgmi", "receive"),
    "xgmi.transmit": a.link("xgmi", "transmit"),
    **{reason: a.throttle(reason) for reason in THROTTLE_REASONS},
}

# What spans need of them.
SPAN_METRICS: Final = frozenset({ENERGY, *(GPU_METRICS[reason] for reason in THROTTLE_REASONS)})

# -- amd-smi

# Paths in the documents of ``amd-smi metric`` and ``amd-smi static``; of several for one series the newest first.
#
# ``errors`` is the sum of ``ecc_blocks``, see :data:`RAS_BLOCKS`. Left out: throttling (``violation``), which the tool
# itself measures over a tenth of a second, and the totals of errors, which include all blocks of the chip.
AMD_SMI: Final[Mapping[str, a.Field]] = {
    "usage/gfx_activity": a.utilization("general"),
    "usage/umc_activity": a.utilization("memory"),
    "usage/vcn_busy": a.utilization("video"),
    "usage/vcn_activity": a.utilization("video"),
    "usage/mm_activity": a.utilization("video"),
    "usage/jpeg_busy": a.utilization("jpeg"),
    "usage/jpeg_activity": a.utilization("jpeg"),
    "mem_usage/total_vram": a.memory_total("MiB|MB"),
    "mem_usage/used_vram": a.memory_used("MiB|MB", least=1),
    "temperature/edge": a.temperature("edge"),
    "temperature/hotspot": a.temperature("junction"),
    "temperature/mem": a.temperature("memory"),
    **{
        f"limit/{word}_{name}_temperature": a.temperature_limit(sensor, limit)
        for name, sensor in {"edge": "edge", "hotspot": "junction", "vram": "memory", "mem": "memory"}.items()
        for word, limit in {"slowdown": "high.degraded", "shutdown": "high.critical"}.items()
    },
    "power/socket_power": a.power(least=_LEAST_POWER),
    "power/current_socket_power": a.power(least=_LEAST_POWER),
    "power/average_socket_power": a.power(least=_LEAST_POWER),
    "limit/ppt0/socket_power_limit": a.power_limit("enforced"),
    "limit/socket_power": a.power_limit("enforced"),
    "limit/current_power": a.power_limit("enforced"),
    "limit/power": a.power_limit("enforced"),
    "limit/ppt0/max_power_limit": a.power_limit("max"),
    "limit/max_power": a.power_limit("max"),
    "energy/total_energy_consumption": a.energy(least=a.POSITIVE),
    "clock/gfx_0/clk": a.frequency("graphics"),
    "clock/gfx/clk": a.frequency("graphics"),
    "clock/mem_0/clk": a.frequency("memory"),
    "clock/mem/clk": a.frequency("memory"),
    "clock/vclk_0/clk": a.frequency("video"),
    "clock/vclk0/clk": a.frequency("video"),
    "clock/gfx_0/max_clk": a.frequency_limit("graphics"),
    "clock/gfx/max_clk": a.frequency_limit("graphics"),
    "clock/mem_0/max_clk": a.frequency_limit("memory"),
    "clock/mem/max_clk": a.frequency_limit("memory"),
    "power/gfx_voltage": a.voltage("gpu"),
    "power/soc_voltage": a.voltage("soc"),
    "power/mem_voltage": a.voltage("memory"),
    "fan/usage": FAN_SPEED_RATIO,
    "fan/rpm": a.Field(c.HW_FAN_SPEED, unit="RPM"),
    "pcie/generation": PCIE_GENERATION,
    "pcie/width": PCIE_WIDTH,
    "pcie/replay_count": a.errors("pcie_replay", most=_COUNT),
    **{
        f"errors/{prefix}{word}_count": a.errors(f"{prefix}{kind}", most=_COUNT)
        for prefix in ("", "sram_", "chip_")
        for word, kind in {"correctable": "corrected", "uncorrectable": "uncorrected", "deferred": "deferred"}.items()
    },
}

# -- rocm-smi

# Keys of ``rocm-smi -a --json``; of several for one series the newest first.
#
# The tool prints 0 for some values that it cannot read, so 0 is plausible only for utilization, clocks, counts and
# fans. Left out: ``Accumulated Energy (uJ)``, the energy counter times a factor that some versions round, and ``pcie
# clock level``, which is what the GPU is set to, not what its link has negotiated.
ROCM_SMI: Final[Mapping[str, a.Field]] = {
    "GPU use (%)": a.utilization("general"),
    "GPU Memory Read/Write Activity (%)": a.utilization("memory"),
    "GPU memory use (%)": a.utilization("memory"),  # the name of the same in ROCm 5
    "GPU Memory OverDrive value (%)": OVERDRIVE,
    "GPU Memory Allocated (VRAM%)": a.Field(c.HW_GPU_MEMORY_UTILIZATION, unit="%"),  # without the sizes in bytes
    "VRAM Total Memory (B)": a.memory_total(),
    "VRAM Total Used Memory (B)": a.memory_used(least=1),
    **{
        f"Temperature (Sensor {name}) (C)": a.temperature(sensor)
        for name, sensor in {
            "edge": "edge",
            "junction": "junction",
            "memory": "memory",
            **{f"HBM {stack}": f"hbm{stack}" for stack in range(4)},
        }.items()
    },
    "Current Socket Graphics Package Power (W)": a.power(least=_LEAST_POWER),
    "Average Graphics Package Power (W)": a.power(least=_LEAST_POWER),
    "Socket Graphics Package Power (W)": a.power(least=_LEAST_POWER),
    "Max Graphics Package Power (W)": a.power_limit("enforced"),
    "Energy counter": a.Field(c.HW_ENERGY, unit=(1, 1 << 16), least=1e-6),
    **{
        key: a.frequency(domain)
        for clock, domain in {"sclk": "graphics", "mclk": "memory"}.items()
        for key in (f"{clock} clock speed:", f"{clock} clock speed", f"{clock} clock level")
    },
    "Valid sclk range": a.frequency_limit("graphics"),
    "Valid mclk range": a.frequency_limit("memory"),
    "Voltage (mV)": a.voltage("gpu"),
    "Fan speed (%)": FAN_SPEED_RATIO,
    "Fan Speed (%)": FAN_SPEED_RATIO,
    "Fan RPM": a.Field(c.HW_FAN_SPEED),
    "PCIe Replay Count": a.errors("pcie_replay", most=_COUNT),
}

# -- facts that the tools report

# Each with the regular expression of its text.
FACTS: Final = {
    "unique": "(?:0x)?[0-9a-fA-F]{1,20}",
    "model": "(?!0x[0-9a-fA-F]+$).{1,200}",
    "device": "0x[0-9a-fA-F]+",
    "serial": "(?!0+$)[0-9A-Za-z-]{1,64}",
    "vbios": "[0-9A-Za-z._-]{1,64}",
    "address": r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]",
    "driver": ".{1,200}",
}

AMD_SMI_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "unique": ("asic/asic_serial",),
    "model": ("asic/market_name",),
    "device": ("asic/device_id",),
    "serial": ("board/product_serial",),
    "vbios": ("vbios/version", "vbios/part_number", "ifwi/version", "ifwi/part_number"),  # ifwi since ROCm 7.1
    "address": ("bus/bdf",),
    "driver": ("driver/version", "driver/driver_version"),
}

# By fact, the tool's keys; the first one with a valid text counts.
ROCM_SMI_FACTS: Final[Mapping[str, tuple[str, ...]]] = {
    "unique": ("Unique ID",),
    "model": ("Card Series", "Card series", "Device Name", "Card Model", "Card model"),
    "device": ("Device ID", "GPU ID"),
    "serial": ("Serial Number",),
    "vbios": ("VBIOS version",),
    "address": ("PCI Bus",),
    "driver": ("Driver version",),
}
