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
    beside,
    graph,
    peak,
    percent,
    size,
    whole,
)
from opentelemetry.instrumentation.hardware.model import Number

_TILE, _TALL, _LOW = 30, 9, 3  # the least width, and the most and the least lines of a graph with its title


class _Graph(NamedTuple):
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
    wide = (width + 2) // across - 2
    lines: list[Line] = [[]]
    for start in range(0, min(len(known), across * down), across):
        tiles = []
        for each in known[start : start + across]:
            values = history.of(each.kind, device.id)
            title = whole([[(each.name, DIM)], [(each.value, STRONG)]], wide)
            tiles.append([title, *graph(values, wide, tall - 1, each.style, each.limit or peak(values))])
        lines += beside(tiles, wide)
    return [*lines, *beside([[axis(history.seconds(wide), wide)]] * across, wide)]


def _known_graphs(history: History, device: Device) -> list[_Graph]:
    def newest(kind: str, text: Callable[[float], str]) -> str:
        value = ([None, *history.of(kind, device.id)])[-1]
        return "-" if value is None else text(value)

    def rate(kind: str) -> str:
        return newest(kind, lambda value: f"{size(value)}/s, highest {size(peak(history.of(kind, device.id)))}/s")

    hot = device.temperature_limit
    return [
        _Graph("busy", "device", percent(device.busy), 1.0, "busy"),
        _Graph("SMs", "sm", newest("sm", percent), 1.0, "busy"),
        _Graph("tensor cores", "tensor", newest("tensor", percent), 1.0, "busy"),
        _Graph("memory", "device memory", percent(ratio(device.used, device.total)), 1.0, "memory"),
        _Graph("memory bandwidth", "dram", newest("dram", percent), 1.0, "memory"),
        _Graph("power", "power", fraction(device.power, device.power_limit, "W"), device.power_limit, "disk"),
        _Graph("heat", "temperature", fraction(device.temperature, hot, "Cel"), hot, ""),
        _Graph("clock", "clock", fraction(device.clock, device.clock_limit, "Hz"), device.clock_limit, "good"),
        _Graph("PCIe", "pcie", rate("pcie"), None, "network"),
        _Graph("NVLink", "nvlink", rate("nvlink"), None, "network"),
    ]
