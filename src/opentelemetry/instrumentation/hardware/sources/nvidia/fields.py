"""The values of NVML and nvidia-smi by their names and numbers, and their metrics.

Both have a text for a value that is not known, so a temperature, a power or a voltage of 0 is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import fields as a

ALL_LINKS: Final = 0xFFFFFFFF  # the scope of an NVLink field that stands for the sum over all links

# NVML: one call per value.

GENERAL: Final = a.utilization("general")
GENERAL_PEAK: Final = a.Field(c.HW_GPU_UTILIZATION_PEAK, unit="%")
MEMORY_BUSY: Final = a.utilization("memory")
MEMORY_USED: Final = a.memory_used()
MEMORY_TOTAL: Final = a.memory_total()
TEMPERATURE: Final = a.temperature("gpu", least=0)
JUNCTION: Final = a.temperature("junction", least=0)  # the hottest part of the chip, as AMD names it

POWER: Final = a.power("mW", least=0)
POWER_ENFORCED: Final = a.power_limit("enforced", "mW")
POWER_DEFAULT: Final = a.power_limit("default", "mW")
POWER_MAX: Final = a.power_limit("max", "mW")
POWER_INSTANT: Final = a.Field(c.HW_POWER_INSTANT, unit="mW", least=0)
PCIE_NOW: Final = {
    "CurrPcieLinkGeneration": a.Field(c.HW_GPU_PCIE_GENERATION, least=1, most=99),
    "CurrPcieLinkWidth": a.Field(c.HW_GPU_PCIE_WIDTH, unit="x", least=1, most=99),
}
PCIE_MAX: Final = {
    "MaxPcieLinkGeneration": a.Field(c.HW_GPU_PCIE_GENERATION_LIMIT, least=1, most=99),
    "MaxPcieLinkWidth": a.Field(c.HW_GPU_PCIE_WIDTH_LIMIT, unit="x", least=1, most=99),
}
# What NVML reports of an integrated GPU although it has none. Of GB10: one lane of generation 1
# (https://github.com/Syllo/nvtop/pull/499), and 0 % of its memory also under load
# (https://github.com/mostlygeek/llama-swap/issues/782).
NOT_INTEGRATED: Final[Mapping[a.Field, str]] = {
    **dict.fromkeys((*PCIE_NOW.values(), *PCIE_MAX.values()), "an integrated GPU has no PCIe link"),
    MEMORY_BUSY: "an integrated GPU has no memory of its own",
}

BAR1: Final = (a.Field(c.HW_GPU_BAR1_USAGE), a.Field(c.HW_GPU_BAR1_LIMIT))
PERFORMANCE_STATE: Final = a.Field(c.HW_GPU_PERFORMANCE_STATE)
FAN_RATIO: Final = a.Field(c.HW_FAN_SPEED_RATIO, unit="%")
FAN_SPEED: Final = a.Field(c.HW_FAN_SPEED, unit="RPM")

# ``nvmlDeviceGet<engine>Utilization``.
ENGINES: Final = {
    "Encoder": a.utilization("encoder"),
    "Decoder": a.utilization("decoder"),
    "Jpg": a.utilization("jpeg"),
    "Ofa": a.utilization("ofa"),
}

# In the order of ``nvmlClockType_t``.
CLOCKS: Final = {domain: a.frequency(domain) for domain in ("graphics", "sm", "memory", "video")}
CLOCK_LIMITS: Final = {domain: a.frequency_limit(domain) for domain in CLOCKS}

# In the order of ``nvmlTemperatureThresholds_t``.
THRESHOLDS: Final = (
    a.temperature_limit("gpu", "high.critical"),
    a.temperature_limit("gpu", "high.degraded"),
    a.temperature_limit("memory", "max"),
    a.temperature_limit("gpu", "max"),
)

# Bits of ``nvmlDeviceGetCurrentClocksEventReasons``.
REASONS: Final = {
    0x02: a.throttle("application_clocks"),
    0x04: a.throttle("power_cap"),
    0x08: a.throttle("slowdown_hw"),
    0x10: a.throttle("sync_boost"),
    0x20: a.throttle("thermal_sw"),
    0x40: a.throttle("thermal_hw"),
    0x80: a.throttle("power_brake"),
    0x100: a.throttle("display_clocks"),
    0x200: a.throttle("board_limit"),
    0x400: a.throttle("reliability"),
}

# NVML: ``nvmlDeviceGetFieldValues``, by ``NVML_FI_*`` and scope.

# Fields that are read often.
#
# Not read: 197 and 198, the bytes over PCIe. They wrap (``nvml.h``: "Value can be wrapped"), at 4 GiB: the counters of
# the kernel driver are ``NvU32 pexCounters[]`` (``ctrl2080bus.h`` of open-gpu-kernel-modules). At 64 GB/s that is every
# 67 ms, so that the number of wraps between two samples is not known. GPM has the rate.
SAMPLED: Final[Mapping[tuple[int, int], a.Field]] = {
    (82, 0): a.temperature("memory", least=0),
    (83, 0): a.energy("mJ"),
    (74, 0): a.throttle("power_cap", "ns"),
    (76, 0): a.throttle("sync_boost", "ns"),
    (138, ALL_LINKS): a.link("nvlink", "transmit", "KiB"),
    (139, ALL_LINKS): a.link("nvlink", "receive", "KiB"),
}

# In older drivers, these numbers stand for other fields.
_SAMPLED_SINCE_580: Final = {
    (269, 0): a.throttle("thermal_sw", "ns"),
    (270, 0): a.throttle("thermal_hw", "ns"),
    (271, 0): a.throttle("power_brake", "ns"),
}


def sampled(driver_version: str) -> Mapping[tuple[int, int], a.Field]:
    """Return the fields that are read often with this version of the driver, such as ``580.95.05``."""
    return {**SAMPLED, **_SAMPLED_SINCE_580} if branch(driver_version) >= 580 else SAMPLED


def branch(driver_version: str) -> int:
    """Return the release branch of a driver: 580 of ``580.95.05``; 0 if it is unknown."""
    major = driver_version.partition(".")[0]
    return int(major) if major.isdecimal() else 0


# Fields with the power of a component, a device of its own: the module of GPU and CPU, or the memory of the GPU.
SCOPES: Final = {(185, 1): "module", (185, 2): "memory"}

INSTANT: Final = (186, 0)

Ids = tuple[tuple[int, int], ...]  # fields with their scopes

EACH_NVLINK: Final = -1  # the scope that stands for each NVLink of the GPU
EACH_C2C: Final = -2  # and for each link from chip to chip (C2C)

LINK_COUNTS: Final = {EACH_NVLINK: (91, 0), EACH_C2C: (170, 0)}  # the fields with the number of links


def _sum(*fields: int, scope: int = 0) -> Ids:
    return tuple((field, scope) for field in fields)


# Error counters, each the sum of some fields: of the first alternative that the device supports.
#
# Numbers from 201 to 250 are the same in all versions of the driver that have them; 199, 200 and those above are not.
ERRORS: Final[Mapping[a.Field, tuple[Ids, ...]]] = {
    a.errors("corrected"): (_sum(22), _sum(5)),  # of the device's memory; if not supported, of all memories of the chip
    a.errors("uncorrected"): (_sum(23), _sum(6)),
    a.errors("retired_page"): (_sum(29, 30),),
    a.errors("row_remap"): (_sum(142, 143),),
    a.errors("pcie_replay"): (_sum(94),),
    a.errors("pcie_correctable"): (_sum(173),),
    a.errors("pcie_non_fatal"): (_sum(179),),
    a.errors("pcie_fatal"): (_sum(180),),
    a.errors("nvlink_crc"): (_sum(163, scope=EACH_NVLINK), _sum(38, 45)),  # the totals are always 0 on Hopper
    a.errors("nvlink_replay"): (_sum(161, scope=EACH_NVLINK), _sum(52)),
    a.errors("nvlink_recovery"): (_sum(162, scope=EACH_NVLINK), _sum(215, scope=ALL_LINKS), _sum(59)),
    a.errors("nvlink_recovery_failed"): (_sum(214, scope=ALL_LINKS),),
    a.errors("nvlink_effective"): (_sum(219, scope=ALL_LINKS),),
    a.errors("c2c_crc"): (_sum(231, scope=EACH_C2C),),
    a.errors("c2c_replay"): (_sum(232, scope=EACH_C2C),),
}

# More errors, with ``DETAIL=gpu``.
MORE_ERRORS: Final[Mapping[a.Field, tuple[Ids, ...]]] = {
    a.errors("pcie_nak_received"): (_sum(174),),
    a.errors("pcie_receiver"): (_sum(175),),
    a.errors("pcie_bad_tlp"): (_sum(176),),
    a.errors("pcie_nak_sent"): (_sum(177),),
    a.errors("pcie_bad_dllp"): (_sum(178),),
    a.errors("pcie_unsupported_request"): (_sum(181),),
    a.errors("pcie_lcrc"): (_sum(182),),
    a.errors("pcie_lane"): (_sum(183),),
    a.errors("nvlink_malformed_packet"): (_sum(206, scope=ALL_LINKS),),
    a.errors("nvlink_buffer_overrun"): (_sum(207, scope=ALL_LINKS),),
    a.errors("nvlink_receive"): (_sum(208, scope=ALL_LINKS),),
    a.errors("nvlink_receive_remote"): (_sum(209, scope=ALL_LINKS),),
    a.errors("nvlink_receive_general"): (_sum(210, scope=ALL_LINKS),),
    a.errors("nvlink_local_link_integrity"): (_sum(211, scope=ALL_LINKS),),
    a.errors("nvlink_transmit_discard"): (_sum(212, scope=ALL_LINKS),),
    a.errors("nvlink_symbol"): (_sum(221, scope=ALL_LINKS),),
    a.errors("c2c_replay_repeated"): (_sum(233, scope=EACH_C2C),),
}

# Errors of caches, registers and the like: those of all memories of the chip, less those of the device's memory.
SRAM_ERRORS: Final = {
    a.errors("sram_corrected"): ((5, 0), (22, 0)),
    a.errors("sram_uncorrected"): ((6, 0), (23, 0)),
}

RECOVERY_ACTION: Final = a.Field(c.HW_GPU_RECOVERY_ACTION, most=99)
RECOVERY: Final = (230, 0)

# Fields that are not 0 while a repair is pending, or has failed, or the driver requires a recovery action.
DEGRADED: Final = ((31, 0), (144, 0), (145, 0), RECOVERY)


def degraded(driver_version: str) -> Ids:
    """Return these fields of a version of the driver. That of 615 adds a bank of the memory, which Rubin remaps."""
    return (*DEGRADED, (307, 0)) if branch(driver_version) >= 615 else DEGRADED


# Structures with their version, and the flags of pending or impossible repairs, as indices of words of 32 bits.
REPAIRS: Final[Mapping[str, tuple[int, tuple[int, ...]]]] = {
    "RepairStatus": (0x0100000C, (1, 2)),  # channel, TPC
    "UnrepairableMemoryFlag_v1": (0x01000008, (1,)),
    "SramEccErrorStatus": (0x01000068, (24,)),  # the threshold is exceeded
}

# The structure with the state of the NVLink fabric, and its version.
FABRIC: Final = ("GpuFabricInfoV", 0x02000024)

NVLINK_UP: Final = a.Field(c.HW_GPU_NVLINK_UP)
NVLINK_STATE: Final = 165
NVLINK_BYTES: Final = {138: "transmit", 139: "receive"}


def nvlink_up(link: int) -> a.Field:
    """Return whether an NVLink is active."""
    return a.Field(c.HW_GPU_NVLINK_UP, {c.GPU_LINK_NUMBER: link})


def nvlink_io(link: int, direction: str) -> a.Field:
    """Return the bytes over an NVLink."""
    return a.Field(c.HW_GPU_NVLINK_IO, {c.GPU_LINK_NUMBER: link, c.NETWORK_DIRECTION: direction}, "KiB")


# NVML: critical events (Xid). https://docs.nvidia.com/deploy/xid-errors/

XID: Final = a.errors("xid")  # stands for the events of all numbers where they are not received

# Xids that are exported as 0 from the start, because alerts on them compare with the value before.
HARDWARE_XIDS: Final = (48, 63, 64, 74, 79, 94, 95, 119)

_XIDS: Final = range(1, 200)  # the numbers that NVIDIA's catalog assigns, and some for future ones


def xid(number: int | str) -> a.Field:
    """Return the counter of the events with a number; an unknown number is ``other``."""
    return _xid(str(number) if number in _XIDS else "other")


@cache
def _xid(word: str) -> a.Field:
    return a.Field(c.HW_ERRORS, {c.ERROR_TYPE: "xid", c.GPU_XID: word})


# NVML: GPU performance monitoring (GPM).

# ``NVML_GPM_METRIC_*``. The bytes of a link that the device counts are not exported from its rate, unless its counter
# is always 0.
GPM: Final = {
    1: GENERAL,  # the only such value of a MIG instance
    2: a.utilization("sm"),
    3: a.Field(c.HW_GPU_SM_OCCUPANCY, unit="%"),
    5: a.utilization("tensor"),
    10: a.utilization("dram"),
    11: a.utilization("fp64"),
    12: a.utilization("fp32"),
    13: a.utilization("fp16"),
    20: a.link("pcie", "transmit", "MiB/s"),
    21: a.link("pcie", "receive", "MiB/s"),
    60: a.link("nvlink", "receive", "MiB/s"),
    61: a.link("nvlink", "transmit", "MiB/s"),
}

# The same with ``DETAIL=gpu``.
PIPES: Final = {
    4: a.utilization("integer"),
    6: a.utilization("tensor_dfma"),
    7: a.utilization("tensor_hmma"),
    8: a.utilization("tensor_dmma"),
    9: a.utilization("tensor_imma"),
}

# Of the device memory since the driver was loaded, in the order of ``nvmlMemoryErrorType_t``.
VOLATILE_ERRORS: Final = tuple(
    a.Field(c.HW_GPU_MEMORY_ERRORS, {c.ERROR_TYPE: kind}) for kind in ("corrected", "uncorrected")
)

# Files of the kernel driver nvgpu.

JETSON_LOAD: Final = a.utilization("general", unit=(1, 1000))
JETSON_CLOCK: Final = a.frequency("graphics", "Hz")
JETSON_CLOCK_LIMIT: Final = a.frequency_limit("graphics", "Hz")
JETSON_TEMPERATURE: Final = a.temperature("gpu", "m°C", least=0)

# The observed program.

PROCESS_MEMORY: Final = a.Field(c.PROCESS_GPU_MEMORY_USAGE)

# In the order of ``nvmlProcessUtilizationSample_t``.
PROCESS_UTILIZATION: Final = tuple(
    a.Field(c.PROCESS_GPU_UTILIZATION, {c.GPU_TASK: task}, "%") for task in ("sm", "memory", "encoder", "decoder")
)

# nvidia-smi: path of the element below ``gpu``.

_ECC: Final = "ecc_errors/aggregate"
_RETIRED: Final = "retired_pages/{}_retirement/retired_count"
_COUNTERS: Final = "clocks_event_reasons_counters/clocks_event_reasons_counters"
_CEILING: Final = "gpu_power_readings/gpu_ceiling_power_limit"  # since 610
_COUNT: Final = (1 << 32) - 2  # the greatest count: all ones stand for "not available"

_LINK: Final = "pci/pci_gpu_link_info"

XML_POWER: Final = a.power(least=0)
XML_TOTAL: Final = a.memory_total("MiB")
XML_USED: Final = a.memory_used("MiB")

# The elements of each value in all schemas. The first one with a plausible value is used. ``a + b`` is a sum, and ``a -
# b`` a difference.
#
# Not read: the PCIe throughput, which covers only 20 ms, and ``tlimit``, which is the distance to a threshold.
XML: Final[dict[a.Field, tuple[str, ...]]] = {
    GENERAL: ("utilization/gpu_util",),
    MEMORY_BUSY: ("utilization/memory_util",),
    ENGINES["Encoder"]: ("utilization/encoder_util",),
    ENGINES["Decoder"]: ("utilization/decoder_util",),
    ENGINES["Jpg"]: ("utilization/jpeg_util",),
    ENGINES["Ofa"]: ("utilization/ofa_util",),
    XML_TOTAL: ("fb_memory_usage/total",),
    XML_USED: ("fb_memory_usage/used",),
    TEMPERATURE: ("temperature/gpu_temp",),
    JUNCTION: ("temperature/gpu_temp_max",),  # since 615
    a.temperature("memory", least=0): ("temperature/memory_temp",),
    a.temperature_limit("gpu", "high.critical"): ("temperature/gpu_temp_max_threshold",),
    a.temperature_limit("gpu", "high.degraded"): ("temperature/gpu_temp_slow_threshold",),
    a.temperature_limit("gpu", "max"): ("temperature/gpu_temp_max_gpu_threshold",),
    a.temperature_limit("memory", "max"): ("temperature/gpu_temp_max_mem_threshold",),
    XML_POWER: (
        "gpu_power_readings/power_draw",
        "power_readings/power_draw",
        "gpu_power_readings/average_power_draw",
        "gpu_power_readings/instant_power_draw",
    ),
    a.power_limit("enforced"): (
        "gpu_power_readings/current_power_limit",
        "power_readings/enforced_power_limit",
        f"{_CEILING}/current_power_limit",
    ),
    a.power_limit("default"): (
        "gpu_power_readings/default_power_limit",
        "power_readings/default_power_limit",
        f"{_CEILING}/default_power_limit",
    ),
    a.power_limit("max"): ("gpu_power_readings/max_power_limit", "power_readings/max_power_limit"),
    **{
        fields[domain]: (f"{folder}/{element}_clock",)
        for folder, fields in {"clocks": CLOCKS, "max_clocks": CLOCK_LIMITS}.items()
        for domain, element in {"graphics": "graphics", "sm": "sm", "memory": "mem", "video": "video"}.items()
    },
    a.throttle("power_cap", "us"): (f"{_COUNTERS}_sw_power_cap",),
    a.throttle("sync_boost", "us"): (f"{_COUNTERS}_sync_boost",),
    a.throttle("thermal_sw", "us"): (f"{_COUNTERS}_sw_therm_slowdown",),
    a.throttle("thermal_hw", "us"): (f"{_COUNTERS}_hw_therm_slowdown",),
    a.throttle("power_brake", "us"): (f"{_COUNTERS}_hw_power_brake",),
    PERFORMANCE_STATE: ("performance_state",),
    FAN_RATIO: ("fan_speed",),
    a.errors("corrected", most=_COUNT): (
        f"{_ECC}/dram_correctable",
        f"{_ECC}/single_bit/device_memory",
        f"{_ECC}/single_bit/total",
    ),
    a.errors("uncorrected", most=_COUNT): (
        f"{_ECC}/dram_uncorrectable",
        f"{_ECC}/double_bit/device_memory",
        f"{_ECC}/double_bit/total",
    ),
    a.errors("sram_corrected", most=_COUNT): (
        f"{_ECC}/sram_correctable",
        f"{_ECC}/single_bit/total - {_ECC}/single_bit/device_memory",
    ),
    a.errors("sram_uncorrected", most=_COUNT): (
        f"{_ECC}/sram_uncorrectable",
        f"{_ECC}/sram_uncorrectable_parity + {_ECC}/sram_uncorrectable_secded",
        f"{_ECC}/double_bit/total - {_ECC}/double_bit/device_memory",
    ),
    a.errors("retired_page", most=_COUNT): (
        f"{_RETIRED.format('multiple_single_bit')} + {_RETIRED.format('double_bit')}",
    ),
    a.errors("row_remap", most=_COUNT): ("remapped_rows/remapped_row_corr + remapped_rows/remapped_row_unc",),
    a.errors("pcie_replay", most=_COUNT): ("pci/replay_counter",),
    RECOVERY_ACTION: ("gpu_recovery_action",),
    a.voltage("gpu", least=0): ("voltage/graphics_volt",),
    PCIE_NOW["CurrPcieLinkGeneration"]: (f"{_LINK}/pcie_gen/current_link_gen",),
    PCIE_NOW["CurrPcieLinkWidth"]: (f"{_LINK}/link_widths/current_link_width",),
    PCIE_MAX["MaxPcieLinkGeneration"]: (f"{_LINK}/pcie_gen/max_link_gen",),
    PCIE_MAX["MaxPcieLinkWidth"]: (f"{_LINK}/link_widths/max_link_width",),
    a.Field(c.HW_GPU_BAR1_USAGE, unit="MiB"): ("bar1_memory_usage/used",),
    a.Field(c.HW_GPU_BAR1_LIMIT, unit="MiB"): ("bar1_memory_usage/total",),
    a.Field(c.HW_POWER_INSTANT, unit="W", least=0): ("gpu_power_readings/instant_power_draw",),
}

XML_VOLATILE_ERRORS: Final[dict[a.Field, tuple[str, ...]]] = {
    field: (f"ecc_errors/volatile/dram_{kind}", f"ecc_errors/volatile/{former}/device_memory")
    for field, kind, former in zip(VOLATILE_ERRORS, ("correctable", "uncorrectable"), ("single_bit", "double_bit"))
}

_EVENTS: Final = ("clocks_event_reasons/clocks_event_reason", "clocks_throttle_reasons/clocks_throttle_reason")

# Throttling now, ``Active`` or ``Not Active``.
XML_REASONS: Final[Mapping[a.Field, tuple[str, ...]]] = {
    a.throttle(reason): tuple(f"{prefix}_{element}" for prefix in _EVENTS)
    for reason, element in {
        "power_cap": "sw_power_cap",
        "thermal_sw": "sw_thermal_slowdown",
        "thermal_hw": "hw_thermal_slowdown",
        "power_brake": "hw_power_brake_slowdown",
        "slowdown_hw": "hw_slowdown",
        "sync_boost": "sync_boost",
        "application_clocks": "applications_clocks_setting",
        "display_clocks": "display_clocks_setting",
        "board_limit": "board_limit",  # since 615, as the next one
        "reliability": "reliability",
    }.items()
}

_IN_XML: Final = {field.series for field in XML}

# Values that NVML reports, but no version of nvidia-smi.
NOT_IN_XML: Final = tuple(
    field for field in (*GPM.values(), XID, *ERRORS, FAN_SPEED, NVLINK_UP) if field.series not in _IN_XML
)

# Elements that are ``Yes`` while a repair is pending or has failed.
XML_DEGRADED: Final = (
    "retired_pages/pending_retirement",
    "retired_pages/pending_blacklist",
    "remapped_rows/remapped_row_pending",
    "remapped_rows/remapped_row_failure",
    "remapped_banks/bank_remapper_pending",
    "gpu_reset_status/reset_required",
    "ecc_errors/channel_repair_pending",
    "ecc_errors/tpc_repair_pending",
    "ecc_errors/unrepairable_memory",
    "ecc_errors/aggregate/sram_threshold_exceeded",
)

# The words for a recovery action, and their numbers in NVML.
XML_ACTIONS: Final = {"None": "0", "Reset": "1", "Reboot": "2", "Drain P2P": "3", "Drain and Reset": "4"}

# The elements with the power of a component.
XML_SCOPES: Final = {
    "module": ("module_power_readings/power_draw", "module_power_readings/average_power_draw"),
    "memory": ("gpu_memory_power_readings/average_power_draw",),
}

# The states of ``fabric/state``, and their numbers in NVML.
XML_FABRIC: Final = {"Not Started": 1, "In Progress": 2, "Completed": 3}

# The elements below ``fabric/health``, with the text of a fault.
XML_FABRIC_FAULTS: Final = {
    ("summary", "Unhealthy"),
    ("summary", "Limited Capacity"),
    ("bandwidth", "Degraded"),
    ("route_recovery_in_progress", "True"),
    ("route_unhealthy", "True"),
    ("access_timeout_recovery", "True"),
}
