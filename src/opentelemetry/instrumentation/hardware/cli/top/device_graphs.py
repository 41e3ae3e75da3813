"""The histories of a device side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.cli.quantity import fraction
from opentelemetry.instrumentation.hardware.cli.top.history import History, ratio
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    DIM,
    STRONG,
    Line,
    axis,
    fitted,
    graph,
    percent,
    size,
    whole,
)
from opentelemetry.instrumentation.hardware.model import Number

_TILE, _TALL, _LOW = 30, 9, 3  # the least width, and the most and the least lines of a graph with its title


class _Graph(NamedTuple):
    """A history."""

    name: str
    kind: str
    value: str
    limit: Number | None
    style: str


def device_graphs(history: History, device: Device, width: int, height: int) -> list[Line]:
    """Return the histories side by side, as many as have room, above a time axis."""
    known = [
        each
        for each in _known_graphs(history, device)
        if any(value is not None for value in history.of(each.kind, device.id))
    ]
    across = max(1, min(len(known), (width + 2) // (_TILE + 2)))
    down = -(-len(known) // across)
    while down > 1 and (height - 2) // down < _LOW:
        down -= 1
    if not known or height - 2 < _LOW:
        return []
    tall = min((height - 2) // down, _TALL)
    each_width = (width + 2) // across - 2
    lines: list[Line] = [[]]
    for start in range(0, min(len(known), across * down), across):
        row = known[start : start + across]
        lines.append(
            [
                piece
                for each in row
                for piece in fitted(whole([[(each.name, DIM)], [(each.value, STRONG)]], each_width), each_width + 2)
            ]
        )
        tiles = [graph(_scaled(history, each, device), each_width, tall - 1, each.style) for each in row]
        lines += [[piece for tile in tiles for piece in (*tile[at], ("  ", ""))] for at in range(tall - 1)]
    text = axis(history.seconds(each_width), each_width)
    lines.append([piece for _ in range(across) for piece in fitted(text, each_width + 2)])
    return lines


def _known_graphs(history: History, device: Device) -> list[_Graph]:
    def newest(kind: str, text: Callable[[float], str]) -> str:
        value = ([None, *history.of(kind, device.id)])[-1]
        return "-" if value is None else text(value)

    def rate(kind: str) -> str:
        highest = max((value for value in history.of(kind, device.id) if value is not None), default=0.0)
        return newest(kind, lambda value: f"{size(value)}/s, highest {size(highest)}/s")

    return [
        _Graph("busy", "device", percent(device.busy), 1.0, "busy"),
        _Graph("SMs", "sm", newest("sm", percent), 1.0, "busy"),
        _Graph("tensor cores", "tensor", newest("tensor", percent), 1.0, "busy"),
        _Graph("memory", "device memory", percent(ratio(device.used, device.total)), 1.0, "memory"),
        _Graph("memory bandwidth", "dram", newest("dram", percent), 1.0, "memory"),
        _Graph("power", "power", fraction(device.power, device.power_limit, "W"), device.power_limit, "disk"),
        _Graph(
            "heat",
            "temperature",
            fraction(device.temperature, device.temperature_limit, "Cel"),
            device.temperature_limit,
            "",
        ),
        _Graph("clock", "clock", fraction(device.clock, device.clock_limit, "Hz"), device.clock_limit, "good"),
        _Graph("PCIe", "pcie", rate("pcie"), None, "network"),
        _Graph("NVLink", "nvlink", rate("nvlink"), None, "network"),
    ]


def _scaled(history: History, each: _Graph, device: Device) -> list[float | None]:
    values = history.of(each.kind, device.id)
    highest = each.limit or max((value for value in values if value is not None), default=0.0) or 1.0
    return [None if value is None else value / highest for value in values]
