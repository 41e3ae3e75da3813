"""The panels of the host: processor, memory, disks and network, file systems and temperatures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import figures
from opentelemetry.instrumentation.hardware.cli.figures import Flow, Sensor, Space
from opentelemetry.instrumentation.hardware.cli.quantity import duration
from opentelemetry.instrumentation.hardware.cli.top.history import History, ratio
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    DIM,
    GOOD,
    STRONG,
    WARNING,
    Line,
    bar,
    column,
    fitted,
    graph,
    level,
    part,
    percent,
    size,
    width_of,
)
from opentelemetry.instrumentation.hardware.cli.top.thresholds import BUSY, FULL, FULL_DISK, WAITING, heat
from opentelemetry.instrumentation.hardware.model import Number, Series
from opentelemetry.instrumentation.hardware.pipeline.view import View

_FLOW_GRAPH = 3
"""The least lines of a graph of disks or network, with its title."""

_TALLEST = 3
"""Lines of the columns of cores."""


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
    style = level(share or 0.0, *FULL_DISK)
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
        (f"{sensor.value:.0f}°C".rjust(6), heat(sensor.value, sensor.limit) or GOOD),
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
