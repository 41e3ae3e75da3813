"""Apple's GPU by ``apple_gpu_stats``, a program that wandb's wheels brought along until October 2024.

Its first generation (``--json``) says shares in percent; its second one says bytes and names every sensor there is on
any chip, with 0 for those that this one does not have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.json import number
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.apple.reading import (
    GPU,
    HOST,
    Said,
    celsius,
    count,
    document,
    percent,
    said,
    size,
    watts,
)
from opentelemetry.instrumentation.hardware.sources.apple.running import Running

TOOL: Final = Tool("apple_gpu_stats")

_SENSORS: Final = (
    *(f"m1Gpu{number}" for number in range(1, 5)),
    *(f"m2Gpu{number}" for number in range(1, 3)),
    *(f"m3Gpu{number}" for number in range(1, 9)),
)
"""Temperatures of the GPU by what a chip of each kind has."""

_WAYS: Final[tuple[list[str], ...]] = (["--json"], [])
"""The arguments that the generations take."""


def by(command: Command) -> Running:
    """The tool, by its command."""
    return Running(TOOL.name, command, _WAYS, parse)


def parse(text: bytes) -> Said:
    """What the tool printed, of either generation.

    Raises:
        Unavailable: there is no GPU, or it is not Apple's.
        ValueError: that is nothing that can be understood.
    """
    words = document(text)
    if not words:
        raise Unavailable(f"{TOOL.name} finds no GPU")
    vendor = words.get("vendor")
    if isinstance(vendor, str) and vendor and "apple" not in vendor.lower():
        raise Unavailable(f"{TOOL.name} finds a GPU of {vendor.strip()[:40]!r}")
    return _second(words) if "inUseSystemMemory" in words else _first(words)


def _first(words: Mapping[str, Any]) -> Said:
    allocated = percent(words.get("mem_used")) or None
    utilization = percent(words.get("utilization"))
    temperature, power = celsius(words.get("temperature")), watts(words.get("power"))
    if not (allocated or temperature or power):
        utilization = utilization or None  # nothing shows that it was measured
    gpu = {
        "utilization.general": utilization,
        "memory.utilization": allocated,
        "temperature.gpu": temperature,
        "power": power,
    }
    raw = {
        "utilization": None if utilization is None else utilization * 100,
        "allocated": None if allocated is None else allocated * 100,
        "temperature": temperature,
        "watts": power,
    }
    return said({GPU: gpu}, words.get("name"), raw)


def _second(words: Mapping[str, Any]) -> Said:
    used, allocated = size(words.get("inUseSystemMemory")), size(words.get("allocatedSystemMemory"))
    utilization = percent(words.get("utilization"))
    if not (used or allocated):  # they come from the same table, where memory is never 0
        utilization = utilization or None
    sensors = [each for name in _SENSORS if (each := celsius(words.get(name))) is not None]
    temperature = sum(sensors) / len(sensors) if sensors else None
    system = watts(words.get("systemPower"))
    recoveries = count(words.get("recoveryCount")) if used or allocated else None
    gpu = {
        "utilization.general": utilization,
        "memory.used": used,
        "temperature.gpu": temperature,
        "power": watts(words.get("gpuPower")),
        "errors.recovery": recoveries,
    }
    raw = {
        "utilization": None if utilization is None else utilization * 100,
        "allocated": number(used / allocated * 100, 0, 100) if used and allocated else None,
        "temperature": temperature,
        "watts": system,
    }
    return said({GPU: gpu, HOST: {"host.power": system}}, words.get("name"), raw)
