"""The table of devices, and their graphs: one of each below the table, all of one on its page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware.bottlenecks.judge import Verdict
from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.cli.text import fraction, quantity
from opentelemetry.instrumentation.hardware.cli.top.history import History, ratio
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    BAD,
    DIM,
    FULL,
    GOOD,
    HELD,
    IDLE,
    SIMULATED,
    STRONG,
    UNKNOWN,
    WARNING,
    Column,
    Line,
    alarm,
    axis,
    bar,
    beside,
    graph,
    heat,
    part,
    peak,
    percent,
    short,
    size,
    spark,
    timed,
    whole,
    width_of,
)
from opentelemetry.instrumentation.hardware.model import Number

_TILE = 22  # the least width of a device's graph in the table

# The least width, and the most and the least lines, of a graph with its title on the page of a device.
_WIDE, _TALL, _LOW = 30, 9, 3


def device_columns(
    history: History, devices: Sequence[Device], verdicts: Mapping[str, Verdict], has_graphs: bool
) -> list[Column[Device]]:
    """Return the columns of the devices.

    Columns without any value are left out. If all models are equal, the title has it; a graph replaces the history.
    """

    def verdict(device: Device) -> str:
        found = verdicts.get(device.id)
        return found.name if found is not None and found.is_bottleneck else ""

    def widest(least: int, cell: Callable[[Device, int], Line]) -> int:
        return max([least, *(width_of(cell(device, 0)) for device in devices)])

    def has_value(column: Column[Device]) -> bool:
        return any(text.strip(" -") for device in devices for text, _ in column.cell(device, 12))

    def model(device: Device, _: int) -> Line:
        return [(device.model, DIM)]

    def held(device: Device, _: int) -> Line:
        return [(verdict(device), WARNING)]

    columns: list[Column[Device]] = [
        Column("DEVICE", widest(7, _name), _name, lambda device: 0),  # as they are numbered
        Column("MODEL", min(widest(5, model), 22), model, lambda device: device.model, rank=8),
        Column("BUSY", 5, _busy, lambda device: _known(device.busy), 4, rank=1, descending=True),
        Column(
            "HISTORY",
            12,
            lambda device, width: spark(history.of("device", device.id), width, "busy"),
            lambda device: 0,
            grows=3,
            rank=9,
        ),
        Column("MEMORY", widest(6, _memory), _memory, lambda device: _known(device.used), 3, rank=2, descending=True),
        Column(
            "POWER", widest(6, _power), _power, lambda device: _known(device.power), rank=4, right=True, descending=True
        ),
        Column("TEMP", 5, _temperature, lambda device: _known(device.temperature), rank=3, right=True, descending=True),
        Column("CLOCK", 8, _clock, lambda device: _known(device.clock), rank=7, right=True, descending=True),
        Column(
            "THROTTLED", widest(9, _throttled), _throttled, lambda device: device.throttled, rank=5, descending=True
        ),
        Column("HELD BACK BY", widest(12, held), held, lambda device: verdict(device) or "~", rank=6),
    ]
    unwanted = ["HISTORY"] if has_graphs else []
    if len({device.model for device in devices}) == 1:
        unwanted.append("MODEL")
    return [column for column in columns if column.title not in unwanted and has_value(column)]


def device_tiles(devices: Sequence[Device], history: History, width: int, height: int) -> list[Line]:
    """Return the graphs of all devices, side by side; nothing if they do not fit."""
    shown = [device for device in devices if device.busy is not None]
    each = (width + 2) // len(shown) - 2 if shown else 0
    if each < _TILE or height < 3:
        return []
    tiles = [
        [
            whole([[(short(device.name), DIM)], [(percent(device.busy), STRONG)]], each, " "),
            *timed(history.of("device", device.id), each, height - 1, "busy", history.seconds(each)),
        ]
        for device in shown
    ]
    return beside(tiles, each)


def device_title(devices: Sequence[Device]) -> tuple[str, str]:
    """Return the title of the devices, and their sums."""
    wholes = [device for device in devices if not device.parent]
    kind = "GPU" if all(device.name.startswith("GPU") for device in wholes) else "accelerator"
    kind = f"simulated {kind}" if any(device.name.endswith(SIMULATED) for device in wholes) else kind
    kind += "" if len(wholes) == 1 else "s"
    busy = sum(1 for device in wholes if (device.busy or 0.0) >= IDLE)
    watts = [device.power for device in wholes if device.power is not None]
    power = f" · {quantity(sum(watts), 'W')}" if watts else ""
    models = {device.model for device in devices} - {""}
    model = f" {models.pop()}" if len(models) == 1 else ""
    return f"{len(wholes)} {kind}{model}", f"{busy} busy{power}"


# -- cells


def _known(value: Number | None) -> Number:
    return -1 if value is None else value


def _name(device: Device, _: int) -> Line:
    indent = " " if device.parent else ""
    return [(f"{indent}{short(device.name)}", {"failed": BAD, "degraded": WARNING}.get(device.state, STRONG))]


def _busy(device: Device, width: int) -> Line:
    if device.state == "failed":
        return [("failed", BAD)]
    if device.busy is None:
        return UNKNOWN
    is_held = (ratio(device.used, device.total) or 0.0) >= HELD
    style = "busy" if device.busy >= IDLE or not is_held else WARNING
    return [*bar(device.busy, width - 5, "busy"), (f"{percent(device.busy):>5}", style)]


def _memory(device: Device, width: int) -> Line:
    if device.used is None:
        return UNKNOWN
    share = ratio(device.used, device.total)
    style = alarm(share or 0.0, *FULL)
    text = f"{part(device.used, device.total):>11}"
    return [*bar(share, width - 1 - len(text), style or GOOD), (f" {text}" if width > len(text) else text, style)]


def _power(device: Device, _: int) -> Line:
    if device.power is None:
        return UNKNOWN
    if device.power_limit is None:
        return [(f"{device.power:.0f}W", "")]
    is_high = device.power >= 0.98 * device.power_limit
    return [(f"{device.power:.0f}", WARNING if is_high else ""), (f"/{device.power_limit:.0f}W", DIM)]


def _temperature(device: Device, _: int) -> Line:
    if device.temperature is None:
        return UNKNOWN
    return [(f"{device.temperature:.0f}°C", heat(device.temperature, device.temperature_limit))]


def _clock(device: Device, _: int) -> Line:
    if device.clock is None:
        return UNKNOWN
    return [(quantity(device.clock, "Hz").replace(" ", ""), WARNING if device.reason else "")]


def _throttled(device: Device, _: int) -> Line:
    if not device.reason:
        return [("", "")]
    style = BAD if device.reason.startswith(("thermal", "slowdown", "power_brake")) else WARNING
    return [(f"{percent(device.throttled)} {device.reason.replace('_', ' ')}", style)]


# -- the graphs of one device


def device_graphs(history: History, device: Device, width: int, height: int) -> list[Line]:
    """Return the histories side by side, as many as have room, above a time axis."""
    known = [each for each in _graphs(history, device) if any(value is not None for value in each[2])]
    across = max(1, min(len(known), (width + 2) // (_WIDE + 2)))
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
        for name, newest, values, limit, style in known[start : start + across]:
            title = whole([[(name, DIM)], [(newest, STRONG)]], wide)
            tiles.append([title, *graph(values, wide, tall - 1, style, limit or peak(values))])
        lines += beside(tiles, wide)
    return [*lines, *beside([[axis(history.seconds(wide), wide)]] * across, wide)]


def _graphs(history: History, device: Device) -> Iterator[tuple[str, str, Sequence[float | None], Number | None, str]]:
    """Yield name, newest value, values, limit and style of each graph."""
    hot, clock = device.temperature_limit, device.clock_limit
    shown = (
        ("busy", "device", percent(device.busy), 1.0, "busy"),
        ("SMs", "sm", "", 1.0, "busy"),
        ("tensor cores", "tensor", "", 1.0, "busy"),
        ("memory", "device memory", percent(ratio(device.used, device.total)), 1.0, "memory"),
        ("memory bandwidth", "dram", "", 1.0, "memory"),
        ("power", "power", fraction(device.power, device.power_limit, "W"), device.power_limit, "disk"),
        ("heat", "temperature", fraction(device.temperature, hot, "Cel"), hot, ""),
        ("clock", "clock", fraction(device.clock, clock, "Hz"), clock, "good"),
        ("PCIe", "pcie", "", None, "network"),
        ("NVLink", "nvlink", "", None, "network"),
    )
    for name, kind, text, limit, style in shown:
        values = history.of(kind, device.id)
        newest = values[-1] if values else None
        rate = "-" if newest is None else f"{size(newest)}/s, highest {size(peak(values))}/s"
        yield name, text or (percent(newest) if limit else rate), values, limit, style
