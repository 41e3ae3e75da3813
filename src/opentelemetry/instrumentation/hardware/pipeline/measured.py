"""What the ledgers know about an interval, as the attributes of a span."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf, isnan
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.pipeline.rows import (
    CPU_ENERGY,
    CPU_TIME,
    ENERGY,
    GPU_MEMORY,
    GPU_TIME,
    THROTTLE_TIME,
    TREE_MEMORY,
    HasRows,
    Place,
    Rows,
)

_ENERGY: Final = c.SPAN_ENERGY.name
_GPU_TIME: Final = c.SPAN_GPU_TIME.name
_GPU_UTILIZATION: Final = c.SPAN_GPU_UTILIZATION.name
_GPU_MEMORY_PEAK: Final = c.SPAN_GPU_MEMORY_PEAK.name
_GPU_THROTTLE_TIME: Final = c.SPAN_GPU_THROTTLE_TIME.name
_CPU_ENERGY: Final = c.SPAN_CPU_ENERGY.name
_TREE_CPU_TIME: Final = c.SPAN_TREE_CPU_TIME.name
_TREE_MEMORY_PEAK: Final = c.SPAN_TREE_MEMORY_PEAK.name
_RESOLUTION: Final = c.SPAN_RESOLUTION.name


def measured(ledgers: Iterable[HasRows], begin: float, end: float) -> dict[str, float]:
    """Return what the ledgers know about an interval, as attributes. What is unknown of one device is left out.

    Args:
        ledgers: The ledgers of all sources.
        begin: Seconds since the epoch.
        end: Seconds since the epoch.
    """
    energy = busy = throttled = cpu_energy = resolution = 0.0
    memory = -inf
    gpus = missing = packages = 0
    process: tuple[Rows, tuple[Place, Place, float]] | None = None
    for ledger in ledgers:
        rows = ledger.rows
        if rows is None or not (rows.devices or rows.packages or rows.has_process):
            continue  # such as a GPU that is not used, which is read less often
        places = rows.places(begin, end)
        if places is None:
            missing += rows.devices  # else the sum over the devices of other sources would be taken for all
            continue
        first, last, interval = places
        resolution = interval if interval > resolution else resolution
        devices = rows.devices
        if devices:
            gpus += devices
            energy += rows.increase(ENERGY, first, last)
            busy += rows.increase(GPU_TIME, first, last)
            throttled += rows.increase(THROTTLE_TIME, first, last)
            peak = rows.peak(GPU_MEMORY, first, last)
            if peak > memory or peak != peak:  # noqa: PLR0124 - NaN: unknown
                memory = peak
        if rows.packages:
            packages += 1
            cpu_energy += rows.increase(CPU_ENERGY, first, last)
        if rows.has_process:
            process = rows, places
    found = {}
    if gpus and not missing:
        utilization = busy / (end - begin) / gpus
        found[_ENERGY] = energy
        found[_GPU_TIME] = busy
        found[_GPU_UTILIZATION] = 1.0 if utilization > 1.0 else utilization
        found[_GPU_MEMORY_PEAK] = _whole(memory)
        found[_GPU_THROTTLE_TIME] = throttled
    elif process is not None and not gpus:
        rows, (first, last, _) = process
        found[_TREE_CPU_TIME] = rows.increase(CPU_TIME, first, last)
        found[_TREE_MEMORY_PEAK] = _whole(rows.peak(TREE_MEMORY, first, last))
    if packages:
        found[_CPU_ENERGY] = cpu_energy
    if isnan(sum(found.values())):
        found = {name: value for name, value in found.items() if not isnan(value)}
    if found:
        found[_RESOLUTION] = resolution
    return found


def _whole(size: float) -> float:
    """Return a number of bytes as an integer; NaN stays NaN."""
    return int(size) if size == size else size  # noqa: PLR0124 - false for NaN
