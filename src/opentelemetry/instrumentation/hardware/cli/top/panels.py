"""The contents of the panels, as lines for a width and a height."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import figures
from opentelemetry.instrumentation.hardware.cli.figures import Device, Flow, Sensor, Space
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
    column,
    fitted,
    graph,
    level,
    part,
    percent,
    size,
    spark,
    width_of,
)
from opentelemetry.instrumentation.hardware.cli.view import View
from opentelemetry.instrumentation.hardware.model import Number, Series

FULL = (0.90, 0.97)
"""Warning and alarm of memory and file systems in use."""

BUSY = (0.80, 0.95)
"""Of CPUs and disks."""

WAITING = (0.10, 0.40)
"""Of the share of time during which tasks waited."""

HOT = (80.0, 90.0)
"""Of temperatures without a known limit, in degrees Celsius."""

_NEAR = 10.0
"""Degrees below a limit from which a temperature is a warning."""

_IDLE, _HELD = 0.05, 0.10
"""A device is idle below this utilization, and held from this share of its memory."""

_FLOW_GRAPH = 3
"""The least lines of a graph of disks or network, with its title."""

_TALLEST = 3
"""Lines of the columns of cores."""

_TILE = 22
"""The least width of a device's graph."""


class Content(NamedTuple):
    """What a panel shows.

    Attributes:
        lines: Its lines.
        title: Its title.
        note: What stands beside the title.
    """

    lines: list[Line]
    title: str
    note: str = ""


# -- devices


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
    busy = sum(1 for device in wholes if (device.busy or 0.0) >= _IDLE)
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
    is_held = (ratio(device.used, device.total) or 0.0) >= _HELD
    style = "busy" if device.busy >= _IDLE or not is_held else WARNING
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
    return [(f"{device.temperature:.0f}°C", _heat(device.temperature, device.temperature_limit))]


def _heat(value: Number, limit: Number | None) -> str:
    warning, bad = HOT if limit is None else (limit - _NEAR, limit)
    style = level(value, warning, bad)
    return "" if style == GOOD else style


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


# -- processor


def cpu(view: View, history: History, width: int, height: int) -> Content:
    """Return total utilization with its modes, its history, and the cores."""
    busy, modes, cores = figures.cpu_busy(view), figures.cpu_modes(view), figures.cores(view)
    if busy is None:
        return Content([[("no CPU utilization", DIM)]], "CPU")
    style = level(busy, *BUSY)
    words = [f"{name} {percent(modes.get(mode, 0.0))}" for name, mode in _MODES if modes.get(mode, 0.0) >= 0.005]
    lines = [_gauge("", busy, width, style, f"{percent(busy):>4}"), [("  ".join(words), DIM)]]
    grid = _core_lines(cores, width, max(1, (height - len(lines)) // 2))
    space = height - len(lines) - len(grid)
    lines[2:] = graph(history.of("cpu"), width, space) if space > 0 else []
    count = figures.total(view, c.SYSTEM_CPU_LOGICAL_COUNT) or len(cores)
    load = figures.total(view, c.SYSTEM_CPU_LOAD_1M)
    return Content(
        [*lines, *grid], f"CPU {count} threads" if count else "CPU", f"load {load:.2f}" if load is not None else ""
    )


_MODES = (("user", "user"), ("nice", "nice"), ("system", "system"), ("iowait", "iowait"), ("steal", "steal"))


def _core_lines(cores: Mapping[int, float], width: int, height: int) -> list[Line]:
    """Return a bar for each core, or a column of one character if there is no room for bars."""
    if not cores:
        return []
    digits = len(str(max(cores)))
    for least in (12, 7):  # the bar and its number, or only the number
        cell = digits + 1 + least
        per_line = max(1, (width + 2) // (cell + 2))
        if -(-len(cores) // per_line) <= height:
            wide = (width + 2) // per_line - 2 - digits - 1
            return _rows_of([_core(number, share, digits, wide) for number, share in cores.items()], per_line)
    lines: list[Line] = []
    shares = [*cores.values()]
    groups = [shares[start : start + width] for start in range(0, len(shares), width)]
    tall = max(1, min(_TALLEST, (height + 1) // 2 // len(groups)))
    for group in groups:
        for row in reversed(range(tall)):
            lines.append([(_column(share * tall - row, row), level(share, *BUSY)) for share in group])
    return lines


def _column(height: float, row: int) -> str:
    """Return a character of a column that has this height above the lower end of a row."""
    return " " if row and height <= 0 else column(height)


def _core(number: int, share: float, digits: int, width: int) -> Line:
    return [(f"{number:{digits}} ", DIM), *bar(share, width - 5, level(share, *BUSY)), (f"{percent(share):>5}", "")]


def _rows_of(cells: Sequence[Line], per_line: int) -> list[Line]:
    rows = -(-len(cells) // per_line)
    lines: list[Line] = []
    for row in range(rows):
        line: Line = []
        for cell in cells[row::rows]:  # consecutive cores are in one column
            line += [*cell, ("  ", "")]
        lines.append(line[:-1])
    return lines


def _gauge(label: str, share: float | None, width: int, style: str, text: str) -> Line:
    start = f"{label:<10}" if label else ""
    return [
        (start, DIM),
        *bar(share, max(4, width - len(start) - len(text) - 1), style),
        (f" {text}", "" if style == GOOD else style),
    ]


# -- memory


def memory(view: View, history: History, width: int, height: int) -> Content:
    """Return memory, swap, the limit of the container, pressure, and the history of memory."""
    used, limit = figures.used_memory(view), figures.total(view, c.SYSTEM_MEMORY_LIMIT)
    lines = [
        _gauge(
            label, ratio(amount, whole), width, level(ratio(amount, whole) or 0.0, *FULL), f"{part(amount, whole):>11}"
        )
        for label, amount, whole in _memories(view)
    ]
    pressures = [*_pressure(view)]
    space = height - len(lines) - len(pressures)
    if space > 0:
        lines += graph(history.of("memory"), width, space, "memory")
    kills = view.rates.get(Series(c.SYSTEM_MEMORY_OOM_KILLS), 0.0)
    title = f"Memory {percent(ratio(used, limit))}"
    return Content([*lines, *pressures], title, "processes killed: out of memory" if kills else "")


def _memories(view: View) -> Iterator[tuple[str, Number | None, Number | None]]:
    yield "used", figures.used_memory(view), figures.total(view, c.SYSTEM_MEMORY_LIMIT)
    swap = figures.total(view, c.SYSTEM_PAGING_USAGE)
    if swap:
        yield "swap", figures.of_state(view, c.SYSTEM_PAGING_USAGE, c.PAGING_STATE, "used"), swap
    limit = figures.total(view, c.CONTAINER_MEMORY_LIMIT)
    if limit:
        working = figures.total(view, c.CONTAINER_MEMORY_WORKING_SET, c.CONTAINER_MEMORY_USAGE)
        yield "container", working, limit


def _pressure(view: View) -> Iterator[Line]:
    shares = figures.pressure(view)
    if shares:
        line: Line = [("pressure  ", DIM)]
        for name, (some, _) in shares.items():
            style = level(some, *WAITING)
            line += [(f"{name} ", DIM), (percent(some), "" if style == GOOD else style), ("  ", "")]
        yield line


# -- disks and network


def traffic(view: View, history: History, width: int, height: int) -> Content:
    """Return the rates of disks and network interfaces, with the history of their sums if there is room."""
    flows = {"disk": figures.disks(view), "network": figures.networks(view)}
    name = max(8, width - 26)
    lines: list[Line] = [[(f"{'':{name}} {'READ/IN':>9} {'WRITE/OUT':>9} BUSY", DIM)]] if any(flows.values()) else []
    lines += [_flow(flow, name) for each in flows.values() for flow in each]
    shown = [kind for kind, each in flows.items() if each]
    tall = (height - len(lines)) // len(shown) if shown else 0
    for kind in shown if tall >= _FLOW_GRAPH else ():
        values = history.of(kind)[-2 * width :]
        highest = max((value for value in values if value is not None), default=0.0)
        lines.append([(f"{kind} ", DIM), (f"highest {size(highest)}/s", DIM)])
        lines += graph([value and value / highest for value in values], width, tall - 1, kind)
    return Content(lines or [[("none", DIM)]], "Disks and network")


def _flow(flow: Flow, width: int) -> Line:
    line: Line = [*fitted([(flow.name, STRONG)], width), (" ", "")]
    for rate in (flow.inward, flow.outward):
        line.append((f"{size(rate) + '/s':>9} ", DIM if rate < 1 else ""))
    if flow.busy is not None:
        style = level(flow.busy, *BUSY)
        line.append((f"{percent(flow.busy):>4}", "" if style == GOOD else style))
    elif flow.troubles >= 0.5:
        line.append((f"{flow.troubles:.0f}err"[:4].rjust(4), WARNING))
    return line


# -- file systems and sensors


def storage(view: View, width: int) -> Content:
    """Return the file systems and the temperatures of the host."""
    spaces = sorted(figures.filesystems(view), key=_fullness, reverse=True)
    sensors = sorted(figures.sensors(view), key=lambda sensor: sensor.value, reverse=True)
    lines = [_space(space, width) for space in spaces]
    if sensors:
        lines.append([("TEMPERATURES", DIM)])
        per_line = max(1, (width + 2) // 26)
        lines += _rows_of([_sensor(sensor, (width + 2) // per_line - 2) for sensor in sensors], per_line)
    return Content(lines or [[("none", DIM)]], "File systems" if not sensors else "File systems and temperatures")


def _fullness(space: Space) -> float:
    return ratio(space.used, space.total) or 0.0


def _space(space: Space, width: int) -> Line:
    share = ratio(space.used, space.total)
    style = level(share or 0.0, 0.85, 0.95)
    name = max(8, width // 3)
    text = f"{part(space.used, space.total):>11} {percent(share):>4}"
    return [
        *fitted([(space.mountpoint, STRONG)], name),
        (" ", ""),
        *bar(share, max(4, width - name - len(text) - 2), style),
        (f" {text}", "" if style == GOOD else style),
    ]


def _sensor(sensor: Sensor, width: int) -> Line:
    return [
        *fitted([(sensor.name, "")], width - 6),
        (f"{sensor.value:.0f}°C".rjust(6), _heat(sensor.value, sensor.limit) or GOOD),
    ]


def header(host: str, view: View | None, note: str, clock: str, width: int) -> Line:
    """Return the first line of the screen."""
    uptime = figures.total(view, c.SYSTEM_UPTIME) if view else None
    name: Line = [(" otel-hardware ", "brand"), (f" {host}  ", STRONG)]
    age: Line = [] if uptime is None else [(f"up {duration(uptime)}  ", DIM)]
    time: Line = [(f"  {clock} ", "")]
    space = width - width_of(name) - width_of(time)
    if len(note) + width_of(age) > space:  # what is exported is more important
        age = []
    middle = fitted([(note, DIM)], max(0, space - width_of(age)), right=True)
    return [*name, *age, *middle, *time]
