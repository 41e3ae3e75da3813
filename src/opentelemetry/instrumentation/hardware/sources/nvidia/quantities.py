"""NVML's numbers: which of our quantities they are, and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from opentelemetry.instrumentation.hardware.model import Number, Rate
from opentelemetry.instrumentation.hardware.sources.nvidia import nvml as n

T = TypeVar("T")

ENGINES: Final = {"Encoder": "encoder", "Decoder": "decoder", "Jpg": "jpeg", "Ofa": "ofa"}
"""``nvmlDeviceGet<engine>Utilization``, and the task that it is busy with."""

TASKS: Final = ("sm", "memory", "encoder", "decoder")
"""What ``nvmlDeviceGetProcessUtilization`` tells apart."""

REASONS: Final = {
    "application_clocks": 0x02,
    "power_cap": 0x04,
    "slowdown_hw": 0x08,
    "sync_boost": 0x10,
    "thermal_sw": 0x20,
    "thermal_hw": 0x40,
    "power_brake": 0x80,
}
"""Bits of ``nvmlDeviceGetCurrentClocksEventReasons``."""

DOMAINS: Final = {"graphics": 0, "sm": 1, "memory": 2, "video": 3}
"""``nvmlClockType_t``."""

THRESHOLDS: Final = {
    "gpu.high.critical": 0,
    "gpu.high.degraded": 1,
    "memory.max": 2,
    "gpu.max": 3,
}
"""``nvmlTemperatureThresholds_t``."""

OFTEN: Final[Mapping[tuple[int, int], tuple[str, float]]] = {
    (82, 0): ("temperature.memory", 1),
    (83, 0): ("energy", 1e-3),
    (74, 0): ("throttle.power_cap", 1e-9),
    (76, 0): ("throttle.sync_boost", 1e-9),
    (138, n.ALL_LINKS): ("io.nvlink.transmit", 1024),
    (139, n.ALL_LINKS): ("io.nvlink.receive", 1024),
    (197, 0): ("io.pcie.transmit", 1),
    (198, 0): ("io.pcie.receive", 1),
}
"""Fields (with their scope) that are sampled: the quantity and what a unit of the field is. No field of 199 or above:
their numbers differ between versions of the driver.
"""

ERRORS: Final[Mapping[str, tuple[int, ...]]] = {
    "errors.retired_page": (29, 30),
    "errors.row_remap": (142, 143),
    "errors.pcie_replay": (94,),
    "errors.nvlink_crc": (38, 45),
    "errors.nvlink_replay": (52,),
    "errors.nvlink_recovery": (59,),
}
"""Fields that count what went wrong; a sum stands for all of its parts or for nothing."""

MEMORY_ERRORS: Final[Mapping[str, tuple[int, ...]]] = {"errors.corrected": (22, 5), "errors.uncorrected": (23, 6)}
"""Lifetime errors of the device's memory, or else of all that is protected; what was counted first is counted on."""

SIGNS: Final = (31, 144, 145)
"""Fields that say that a device wants to be looked after: pages and rows that wait for a reset, or had no spare."""

SELDOM: Final = tuple((field, 0) for fields in (*ERRORS.values(), *MEMORY_ERRORS.values(), SIGNS) for field in fields)

GPM: Final = {
    2: "utilization.sm",
    3: "occupancy",
    5: "utilization.tensor",
    10: "utilization.dram",
    11: "utilization.fp64",
    12: "utilization.fp32",
    13: "utilization.fp16",
    20: "io.pcie.transmit",
    21: "io.pcie.receive",
    60: "io.nvlink.receive",
    61: "io.nvlink.transmit",
}
"""``NVML_GPM_METRIC_*``: percent, and for the links MiB a second, which a device that counts the bytes overrules."""


def known(said: Mapping[str, T | None]) -> dict[str, T]:
    """What was said of all that was asked."""
    return {name: value for name, value in said.items() if value is not None}


def share(percent: Any) -> float | None:
    """Percent as a share; what is no percentage is nothing."""
    return percent / 100 if isinstance(percent, (int, float)) and 0 <= percent <= 100 else None


def rate(mib: Any) -> Rate | None:
    """MiB a second as bytes a second."""
    return Rate(mib * 2.0**20) if isinstance(mib, (int, float)) and 0 <= mib < math.inf else None


def address(bus: str | None) -> str | None:
    """NVML's PCI address as the kernel writes it: a domain of four digits, or of more where it needs them."""
    domain, colon, rest = (bus or "").lower().partition(":")
    return f"{domain.lstrip('0'):0>4}:{rest}" if colon else None


def times(number: Any, factor: float) -> Number | None:
    return None if number is None else number * factor
