"""The tables of devices and of the processes that use them, and the graphs of devices."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.instrumentation.hardware.cli.figures import Device
from opentelemetry.instrumentation.hardware.cli.quantity import duration, quantity
from opentelemetry.instrumentation.hardware.cli.top.history import History, ratio
from opentelemetry.instrumentation.hardware.cli.top.holders import Process
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    BAD,
    DIM,
    GOOD,
    STRONG,
    UNKNOWN,
    WARNING,
    Column,
    Line,
    bar,
    fitted,
    graph,
    level,
    part,
    percent,
    size,
    spark,
)
from opentelemetry.instrumentation.hardware.cli.top.thresholds import FULL, HELD, IDLE, heat
from opentelemetry.instrumentation.hardware.model import Number

_TILE = 22
"""The least width of a device's graph."""


def device_columns(history: History, devices: Sequence[Device], has_graphs: bool) -> list[Column[Device]]:
    """Return the columns of the devices.

    Columns without any value are left out. If all models are equal, the title has it; a graph replaces the history.
    """
    name = max((len(_indented(device)) for device in devices), default=5)
    model = max((len(device.model) for device in devices), default=5)
    columns = [
        Column[Device](
            "DEVICE", min(max(name, 7), 14), lambda device, _: [(_indented(device), _style(device))], _natural
        ),
        Column[Device]("MODEL", min(max(model, 5), 22), lambda device, _: [(device.model, DIM)], _model, rank=6),
        Column[Device]("BUSY", 13, _busy, lambda device: -(_known(device.busy)), 3),
        Column[Device]("HISTORY", 12, lambda device, width: _spark(history, device, width), _natural, 3, rank=7),
        Column[Device]("MEMORY", 18, _memory, lambda device: -(_known(device.used)), 2),
        Column[Device]("POWER", 9, _power, lambda device: -(_known(device.power)), rank=2, right=True),
        Column[Device]("TEMP", 5, _temperature, lambda device: -(_known(device.temperature)), rank=1, right=True),
        Column[Device]("CLOCK", 8, _clock, lambda device: -(_known(device.clock)), rank=5, right=True),
        Column[Device]("THROTTLED", 15, _throttled, lambda device: -device.throttled, rank=4),
    ]
    is_shown = {
        "MODEL": len({device.model for device in devices}) > 1,
        "BUSY": any(device.busy is not None for device in devices),
        "HISTORY": not has_graphs and any(device.busy is not None for device in devices),
        "MEMORY": any(device.used is not None for device in devices),
        "POWER": any(device.power is not None for device in devices),
        "TEMP": any(device.temperature is not None for device in devices),
        "CLOCK": any(device.clock is not None for device in devices),
        "THROTTLED": any(device.reason for device in devices),
    }
    return [column for column in columns if is_shown.get(column.title, True)]


def device_tiles(devices: Sequence[Device], history: History, width: int, height: int) -> list[Line]:
    """Return the graphs of all devices, side by side; nothing if there is no room."""
    shown = [device for device in devices if device.busy is not None]
    each = (width + 2) // len(shown) - 2 if shown else 0
    if each < _TILE or height < 3:
        return []
    tiles = [graph(history.of("device", device.id), each, height - 1, "busy") for device in shown]
    lines: list[Line] = [[]]
    for device in shown:
        lines[0] += fitted([(f"{device.name} ", DIM), (percent(device.busy), STRONG)], each + 2)
    for row in range(height - 1):
        lines.append([piece for tile in tiles for piece in (*tile[row], ("  ", ""))])
    return lines


def device_title(devices: Sequence[Device]) -> tuple[str, str]:
    """Return the title of the devices, and their sums."""
    wholes = [device for device in devices if not device.parent]
    kind = "GPU" if all(device.name.startswith("GPU") for device in wholes) else "accelerator"
    kind += "" if len(wholes) == 1 else "s"
    busy = sum(1 for device in wholes if (device.busy or 0.0) >= IDLE)
    watts = [device.power for device in wholes if device.power is not None]
    power = f" · {quantity(sum(watts), 'W')}" if watts else ""
    models = {device.model for device in devices} - {""}
    model = f" {models.pop()}" if len(models) == 1 else ""
    return f"{len(wholes)} {kind}{model}", f"{busy} busy{power}"


def _indented(device: Device) -> str:
    return f" {device.name}" if device.parent else device.name


def _natural(device: Device) -> tuple[object, ...]:
    return ()


def _model(device: Device) -> str:
    return device.model


def _known(value: Number | None) -> Number:
    return -1 if value is None else value


def _style(device: Device) -> str:
    return {"failed": BAD, "degraded": WARNING}.get(device.state, STRONG)


def _busy(device: Device, width: int) -> Line:
    if device.state == "failed":
        return [("failed", BAD)]
    if device.busy is None:
        return UNKNOWN
    is_held = (ratio(device.used, device.total) or 0.0) >= HELD
    style = "busy" if device.busy >= IDLE or not is_held else WARNING
    return [*bar(device.busy, width - 5, "busy"), (f"{percent(device.busy):>5}", style)]


def _spark(history: History, device: Device, width: int) -> Line:
    return spark(history.of("device", device.id), width, "busy")


def _memory(device: Device, width: int) -> Line:
    if device.used is None:
        return UNKNOWN
    share = ratio(device.used, device.total)
    style = level(share or 0.0, *FULL)
    text = f"{part(device.used, device.total):>11}"
    return [*bar(share, width - 1 - len(text), style), (f" {text}", "" if style == GOOD else style)]


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


def _throttled(device: Device, width: int) -> Line:
    if not device.reason:
        return [("", "")]
    style = BAD if device.reason.startswith(("thermal", "slowdown", "power_brake")) else WARNING
    text = f"{percent(device.throttled)} {device.reason.replace('_', ' ')}"
    return [(text[:width], style)]


# -- processes


def process_columns(processes: Sequence[Process]) -> list[Column[Process]]:
    """Return the columns of the processes."""
    name = max((len(each.device) for each in processes), default=5)
    user = max((len(each.user) for each in processes), default=4)
    return [
        Column[Process]("DEVICE", min(max(name, 7), 12), lambda each, _: [(each.device, STRONG)], _device_order),
        Column[Process]("PID", 8, lambda each, _: [(str(each.pid), "")], lambda each: each.pid, right=True),
        Column[Process]("USER", min(max(user, 5), 12), _user, lambda each: each.user),
        Column[Process]("MEMORY", 7, _device_memory, lambda each: -(each.device_memory or 0), right=True),
        Column[Process]("CPU", 6, _process_cpu, lambda each: -(each.cpu or 0.0), rank=2, right=True),
        Column[Process]("RSS", 6, _process_memory, lambda each: -(each.memory or 0), rank=3, right=True),
        Column[Process]("AGE", 6, _age, lambda each: -(each.age or 0.0), rank=4, right=True),
        Column[Process]("COMMAND", 16, _command, lambda each: each.command, 1),
    ]


def _device_order(process: Process) -> tuple[int, str]:
    return len(process.device), process.device


def _user(process: Process, _: int) -> Line:
    return [(process.user, "")] if process.user else UNKNOWN


def _device_memory(process: Process, _: int) -> Line:
    return UNKNOWN if process.device_memory is None else [(size(process.device_memory), STRONG)]


def _process_cpu(process: Process, _: int) -> Line:
    return UNKNOWN if process.cpu is None else [(percent(process.cpu), "")]


def _process_memory(process: Process, _: int) -> Line:
    return UNKNOWN if process.memory is None else [(size(process.memory), "")]


def _age(process: Process, _: int) -> Line:
    if process.age is None:
        return UNKNOWN
    text = duration(float(round(process.age)))
    return [(text.replace(" min", "m").replace(" ", ""), DIM)]


def _command(process: Process, width: int) -> Line:
    if not process.command:
        return [("of another container or user", DIM)]
    program, space, rest = process.command.partition(" ")
    head, slash, base = program.rpartition("/")
    return [(head + slash, DIM), (base, STRONG), (space + rest, "")] if width > 40 else [(base + space + rest, "")]
