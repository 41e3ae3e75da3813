"""What the rows of all devices know about an interval, as the attributes of a span."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isnan
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.spans.demand import INTERVAL
from opentelemetry.instrumentation.hardware.spans.rows import ACCELERATOR, PACKAGE, PROCESS, VISIBLE, Increase, Rows

_LONG: Final = 1.0  # seconds of the shortest span that gets what is read once per second

_ROUNDING: Final = 1e-6  # CPU seconds of descendants below which a difference of two sums is one of rounding

_ENERGY: Final = c.SPAN_ENERGY.name
_UNCERTAINTY: Final = c.SPAN_UNCERTAINTY.name
_DEVICES: Final = c.SPAN_DEVICES.name
_GPU_TIME: Final = c.SPAN_GPU_TIME.name
_GPU_UTILIZATION: Final = c.SPAN_GPU_UTILIZATION.name
_GPU_MEMORY_PEAK: Final = c.SPAN_GPU_MEMORY_PEAK.name
_GPU_THROTTLE_TIME: Final = c.SPAN_GPU_THROTTLE_TIME.name
_CPU_ENERGY: Final = c.SPAN_CPU_ENERGY.name
_CPU_TIME: Final = c.SPAN_CPU_TIME.name
_TREE_CPU_TIME: Final = c.SPAN_TREE_CPU_TIME.name
_TREE_MEMORY_PEAK: Final = c.SPAN_TREE_MEMORY_PEAK.name


def measured(rows: Iterable[Rows], begin: float, end: float, cpu_time: float | None = None) -> dict[str, float | str]:
    """Return what is known about an interval, as attributes of a span. What is unknown of one device is left out.

    Of less than :data:`.ledger.INTERVAL`, only CPU time is known: the readings around it are not about it.

    Args:
        rows: The rows of all devices and of the process.
        begin: Seconds since the epoch.
        end: Seconds since the epoch.
        cpu_time: CPU seconds of the process meanwhile, if they were read at both ends.
    """
    seconds = end - begin
    if seconds < INTERVAL and cpu_time is not None:
        return {_CPU_TIME: rounded(cpu_time)}
    is_long = seconds >= _LONG
    accelerators: list[Increase | None] = []
    packages: list[Increase] = []
    process: Increase | None = None
    is_guess = False
    for each in rows:
        kind, use = each.kind, each.use
        if (kind == ACCELERATOR and not use) or (kind == PROCESS and cpu_time is not None and not is_long):
            continue
        found = each.measure(begin, end)
        if kind == ACCELERATOR:
            accelerators.append(found)
            is_guess |= use == VISIBLE
        elif kind == PACKAGE and found is not None:
            packages.append(found)
        elif kind == PROCESS:
            process = found
    values: dict[str, float | str] = {}
    if accelerators and seconds >= INTERVAL:
        _add_accelerators(values, accelerators, seconds, is_long)
        if is_guess and values:
            values[_DEVICES] = "visible"
    if packages:
        energy = sum(each.energy for each in packages)
        if energy >= sum(each.bound for each in packages):
            values[_CPU_ENERGY] = rounded(energy)
    _add_process(values, process, cpu_time, is_long)
    return values


def _add_accelerators(
    values: dict[str, float | str], found: Sequence[Increase | None], seconds: float, is_long: bool
) -> None:
    """Add the sums over the accelerators, if none of them is unknown."""
    energy = bound = busy = throttled = 0.0
    memory = -inf
    for each in found:
        if each is None:  # the sum over the others would be taken for all
            return
        energy += each.energy
        bound += each.bound
        busy += each.busy
        throttled += each.throttled
        memory = max(memory, each.memory)
    if energy >= bound:
        values[_ENERGY] = rounded(energy)
        values[_UNCERTAINTY] = rounded(bound)
    if not isnan(busy):
        utilization = busy / seconds / len(found)
        values[_GPU_TIME] = rounded(busy)
        values[_GPU_UTILIZATION] = min(1.0, rounded(utilization))
    if memory > 0.0:
        values[_GPU_MEMORY_PEAK] = int(rounded(memory))
    if is_long and not isnan(throttled):
        values[_GPU_THROTTLE_TIME] = rounded(throttled)


def _add_process(
    values: dict[str, float | str], process: Increase | None, cpu_time: float | None, is_long: bool
) -> None:
    """Add the CPU time of the process, and CPU time and memory of its tree."""
    if cpu_time is None and process is not None:
        cpu_time = process.energy
    if cpu_time is None:
        return
    values[_CPU_TIME] = rounded(cpu_time)
    if process is not None and is_long:
        descendants = process.busy - process.energy
        if descendants > _ROUNDING:
            values[_TREE_CPU_TIME] = rounded(cpu_time + descendants)
        if process.memory > 0.0:
            values[_TREE_MEMORY_PEAK] = int(rounded(process.memory))


def rounded(value: float) -> float:
    """Return a value with four significant digits: no reading is more exact."""
    return float(f"{value:.4g}")


def token_count(attributes: Mapping[str, Any]) -> float:
    """Return the number of tokens that a span processed, from its own attributes; 0 if it is unknown."""
    counts = [next((attributes[name] for name in names if name in attributes), 0) for names in c.TOKEN_COUNTS]
    return float(sum(count for count in counts if isinstance(count, (int, float)) and count > 0))
