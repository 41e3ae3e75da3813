"""What people look for first, in a few lines: a line for each GPU, and the host."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.gpus import Gpu, gpus, said_of
from opentelemetry.instrumentation.hardware.cli.table import clip, quantity
from opentelemetry.instrumentation.hardware.cli.view import View, line
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number

_GAP = "  "

_UNKNOWN = "-"

_NOTED = 0.005
"""The share of time from which on held down clocks are worth a word."""

_LEAST = 8
"""Columns below which a last column is left out."""

_IDLE = ("idle", "iowait")


def glance(view: View, width: int) -> list[str]:
    """A line for each GPU, and the host with its processor, memory, disks and network."""
    lines, host = overview(view, width), _flow(_host(view), width)
    return [*lines, *([""] if lines and host else []), *host]


def overview(view: View, width: int) -> list[str]:
    """A line for each GPU, under a heading; nothing where there is none. What does not fit is left out at the end."""
    known = gpus(view)
    if not known:
        return []
    rows = [_row(view, *gpu) for gpu in known.items()]
    titles = [title for title in rows[0] if any(row[title] for row in rows)]
    lines = ["" for _ in (titles, *rows)]
    for title in titles:
        cells = [title, *(row[title] or _UNKNOWN for row in rows)]
        size = max(map(len, cells))
        room = width - len(lines[0]) - (len(_GAP) if lines[0] else 0)
        if size > room and (title != titles[-1] or room < _LEAST):
            break
        gap = _GAP if lines[0] else ""
        lines = [f"{each}{gap}{clip(cell, room):{min(size, room)}}" for each, cell in zip(lines, cells)]
    return [each.rstrip() for each in lines]


def _row(view: View, id: str, gpu: Gpu) -> dict[str, str]:  # noqa: A002
    """What is said of a GPU, by column; "" for what is not known."""

    def number(metric: Metric, key: str = "", word: str = "") -> Number | None:
        return said_of(view, metric, id, key, word)

    states = [state for state in ("degraded", "failed") if number(c.HW_STATUS, c.HW_STATE, state)]
    shares = [number(c.HW_GPU_UTILIZATION, c.GPU_TASK, task) for task in ("general", "sm")]
    return {
        "GPU": gpu.name,
        "state": "".join(states),
        "busy": _part(next((share for share in shares if share is not None), None), None, "%"),
        "memory": _part(number(c.HW_GPU_MEMORY_USAGE), number(c.HW_GPU_MEMORY_LIMIT), "By"),
        "power": _part(number(c.HW_POWER), number(c.HW_POWER_LIMIT, c.HW_LIMIT_TYPE, "enforced"), "W"),
        "temp": _part(number(c.HW_TEMPERATURE, c.HW_SENSOR_LOCATION, "gpu"), None, "Cel"),
        "held down by": _held(view, id),
        "model": gpu.short,
    }


def _held(view: View, gpu: str) -> str:
    """What held its clocks down most in this window, and for which share of it."""
    shares = {
        str(attributes[c.THROTTLE_REASON]): view.rates.get(line(c.HW_GPU_THROTTLE_TIME, attributes), 0.0)
        for _, attributes in view.snapshot.values.get(c.HW_GPU_THROTTLE_TIME, ())
        if attributes[c.HW_ID] == gpu
    }
    reason = max(shares, key=shares.__getitem__, default="")
    return f"{reason} {quantity(shares[reason], '%')}" if reason and shares[reason] >= _NOTED else ""


def _part(used: Number | None, limit: Number | None, unit: str) -> str:
    """So much of so much, the unit said once where both have the same."""
    if used is None:
        return ""
    part = quantity(used, unit)
    if limit is None:
        return part
    whole = quantity(limit, unit)
    number, _, prefixed = part.partition(" ")
    return f"{number if whole.endswith(f' {prefixed}') else part} / {whole}"


# -- the host


def _host(view: View) -> Iterator[str]:
    busy = [(value, each) for value, each in _all(view, c.SYSTEM_CPU_UTILIZATION) if each[c.CPU_MODE] not in _IDLE]
    if busy:
        parts = len({each.get(c.CPU_NUMBER) for _, each in busy})
        count = _sum(view, c.SYSTEM_CPU_LOGICAL_COUNT)
        said = quantity(sum(value for value, _ in busy) / parts, "%")
        yield f"CPU {said} of {count}" if count else f"CPU {said}"
    limit = _sum(view, c.CONTAINER_MEMORY_LIMIT)
    for name, used, whole in (
        ("memory", _sum(view, c.SYSTEM_MEMORY_USAGE, "used"), _sum(view, c.SYSTEM_MEMORY_LIMIT)),
        ("container", _sum(view, c.CONTAINER_MEMORY_USAGE) if limit is not None else None, limit),
    ):
        if used is not None:
            yield f"{name} {_part(used, whole, 'By')}"
    for name, metric, ways in (
        ("disk", c.SYSTEM_DISK_IO, ("read", "write")),
        ("network", c.SYSTEM_NETWORK_IO, ("receive", "transmit")),
    ):
        if _all(view, metric):
            yield " ".join((name, *(f"{way} {quantity(_rate(view, metric, way), 'By')}/s" for way in ways)))
    if view.pid != os.getpid():
        yield from _process(view)


def _process(view: View) -> Iterator[str]:
    shares = [value for value, _ in _all(view, c.PROCESS_TREE_CPU_UTILIZATION) or _all(view, c.PROCESS_CPU_UTILIZATION)]
    sizes = [_sum(view, row) for row in (c.PROCESS_TREE_MEMORY_USAGE, c.PROCESS_MEMORY_USAGE)]
    size, held = next((each for each in sizes if each is not None), None), _sum(view, c.PROCESS_GPU_MEMORY_USAGE)
    parts = [f"pid {view.pid} CPU {quantity(sum(shares), '%')}"] if shares else []
    parts += [f"memory {quantity(size, 'By')}"] if size is not None else []
    parts += [f"GPU memory {quantity(held, 'By')}"] if held is not None else []
    if parts:
        yield ", ".join(parts)


def _all(view: View, metric: Metric) -> Sequence[tuple[Number, Attributes]]:
    return view.snapshot.values.get(metric, ())


def _sum(view: View, metric: Metric, word: str = "") -> Number | None:
    """All series of a metric together, or those with a word among their attributes; None where there is none."""
    found = [value for value, attributes in _all(view, metric) if not word or word in attributes.values()]
    return sum(found) if found else None


def _rate(view: View, metric: Metric, word: str) -> float:
    """What all series of a counter with a word among their attributes grew by in a second."""
    chosen = [attributes for _, attributes in _all(view, metric) if word in attributes.values()]
    return sum(view.rates.get(line(metric, attributes), 0.0) for attributes in chosen)


def _flow(items: Iterator[str], width: int) -> list[str]:
    """Items side by side, in as many lines as they need."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + 3 + len(item) <= width:
            lines[-1] += f"   {item}"
        else:
            lines.append(clip(item, width))
    return lines
