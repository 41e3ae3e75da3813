"""The panels of the host: processor, memory, disks and network, file systems and temperatures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import shorten

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli import figures, host_figures
from opentelemetry.instrumentation.hardware.cli.host_figures import Flow, Space
from opentelemetry.instrumentation.hardware.cli.text import duration
from opentelemetry.instrumentation.hardware.cli.top.history import History, ratio
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    BUSY,
    DIM,
    FULL,
    FULL_DISK,
    GOOD,
    STRONG,
    WAITING,
    WARNING,
    Column,
    Layout,
    Line,
    alarm,
    bar,
    column,
    fitted,
    graph,
    heat,
    item,
    part,
    peak,
    percent,
    size,
    timed,
    whole,
    width_of,
)
from opentelemetry.instrumentation.hardware.cli.top.widgets import Drawn
from opentelemetry.instrumentation.hardware.model import NONE, Number
from opentelemetry.instrumentation.hardware.pipeline.view import View

_FLOW_GRAPH = 3  # the least lines of a graph of disks or network, with its title

_TALLEST = 3  # lines of the columns of cores

_NOTE = 10  # the least columns for the note of the first line

_MODES = ("user", "nice", "system", "iowait", "steal")


# -- processor


def cpu(view: View, history: History, width: int, height: int) -> Drawn:
    """Return total utilization with its modes, its history, and the cores."""
    busy, modes, cores = host_figures.cpu_busy(view), host_figures.cpu_modes(view), host_figures.cores(view)
    if busy is None:
        return Drawn([[("no CPU utilization", DIM)]], "CPU")
    words: list[Line] = [[(f"{mode} {percent(modes[mode])}", DIM)] for mode in _MODES if modes.get(mode, 0.0) >= 0.005]
    lines = [_gauge("", busy, width, BUSY, f"{percent(busy):>4}"), whole(words, width)]
    grid = _core_lines(cores, width, max(1, (height - len(lines)) // 2))
    lines += timed(history.of("cpu"), width, height - len(lines) - len(grid), "", history.seconds(width))
    count = figures.total(view, c.SYSTEM_CPU_LOGICAL_COUNT) or len(cores)
    load = figures.total(view, c.SYSTEM_CPU_LOAD_1M)
    return Drawn(
        [*lines, *grid], f"CPU {count} threads" if count else "CPU", f"load {load:.2f}" if load is not None else ""
    )


def _core_lines(cores: Mapping[int, float], width: int, height: int) -> list[Line]:
    """Return a bar for each core, or a column of one character if bars do not fit."""
    if not cores:
        return []
    digits = len(str(max(cores)))
    for least in (12, 7):  # the bar and its number, or only the number
        cell = digits + 1 + least
        per_line = max(1, (width + 2) // (cell + 2))
        if -(-len(cores) // per_line) <= height:
            wide = (width + 2) // per_line - 2 - digits - 1
            cells = [
                [
                    (f"{number:{digits}} ", DIM),
                    *bar(share, wide - 5, alarm(share, *BUSY) or GOOD),
                    (f"{percent(share):>5}", ""),
                ]
                for number, share in cores.items()
            ]
            return _rows_of(cells, per_line)
    lines: list[Line] = []
    shares = [*cores.values()]
    groups = [shares[start : start + width] for start in range(0, len(shares), width)]
    tall = max(1, min(_TALLEST, (height + 1) // 2 // len(groups)))
    for group in groups:
        for row in reversed(range(tall)):
            heights = [(share, share * tall - row) for share in group]  # above the lower end of the row
            lines.append(
                [(" " if row and high <= 0 else column(high), alarm(share, *BUSY) or GOOD) for share, high in heights]
            )
    return lines


def _rows_of(cells: Sequence[Line], per_line: int) -> list[Line]:
    rows = -(-len(cells) // per_line)
    lines: list[Line] = []
    for row in range(rows):
        line: Line = []
        for cell in cells[row::rows]:  # consecutive cores are in one column
            line += [*cell, ("  ", "")]
        lines.append(line[:-1])
    return lines


def _gauge(label: str, share: float | None, width: int, limits: tuple[float, float], text: str) -> Line:
    """Return a word, a bar and a number. Without room, the bar is left out, and then the word."""
    color = alarm(share or 0.0, *limits)
    start = f"{label:<10}" if label else ""
    room = width - len(start) - len(text) - 1
    if room >= 4:
        return [(start, DIM), *bar(share, room, color or GOOD), (f" {text}", color)]
    items: list[Line] = [[(text.strip(), color)], *([[(label, DIM)]] if label else [])]
    return whole(items, width)


# -- memory


def memory(view: View, history: History, width: int, height: int) -> Drawn:
    """Return memory, swap, the limit of the container, pressure, and the history of memory."""
    used, limit = host_figures.used_memory(view), figures.total(view, c.SYSTEM_MEMORY_LIMIT)
    lines = [
        _gauge(label, ratio(amount, total), width, FULL, f"{part(amount, total):>11}")
        for label, amount, total in _memories(view)
    ]
    waits = [item(name, percent(share), alarm(share, *WAITING)) for name, share in host_figures.pressure(view).items()]
    pressures = [whole([[("pressure", DIM)], *waits], width)] if waits else []
    tall = height - len(lines) - len(pressures)
    lines += timed(history.of("memory"), width, tall, "memory", history.seconds(width))
    kills = figures.rate(view, c.SYSTEM_MEMORY_OOM_KILLS, NONE)
    title = f"Memory {percent(ratio(used, limit))}"
    return Drawn([*lines, *pressures], title, "processes killed: out of memory" if kills else "")


def _memories(view: View) -> Iterator[tuple[str, Number | None, Number | None]]:
    yield "used", host_figures.used_memory(view), figures.total(view, c.SYSTEM_MEMORY_LIMIT)
    swap = figures.total(view, c.SYSTEM_PAGING_USAGE)
    if swap:
        yield "swap", figures.used(view, c.SYSTEM_PAGING_USAGE, c.PAGING_STATE), swap
    limit = figures.total(view, c.CONTAINER_MEMORY_LIMIT)
    if limit:
        working = figures.total(view, c.CONTAINER_MEMORY_WORKING_SET, c.CONTAINER_MEMORY_USAGE)
        yield "container", working, limit


# -- disks and network


def traffic(view: View, history: History, width: int, height: int) -> Drawn:
    """Return the rates of disks and network interfaces, with the history of their sums if there is room."""
    flows = {"disk": host_figures.disks(view), "network": host_figures.networks(view)}
    rows = [flow for each in flows.values() for flow in each]
    busy = max((width_of(_busy(flow, 0)) for flow in rows), default=4)
    columns: list[Column[Flow]] = [
        Column("", 5, lambda flow, _: [(flow.name, STRONG)], grows=1),
        Column("READ/IN", 8, lambda flow, _: _rate(flow.inward), rank=1, right=True),
        Column("WRITE/OUT", 9, lambda flow, _: _rate(flow.outward), rank=2, right=True),
        Column("BUSY", max(busy, 4), _busy, rank=3, right=True),
    ]
    layout = Layout(columns, width)
    lines: list[Line] = [layout.heading("-", False), *map(layout.row, rows)] if rows else []
    shown = [kind for kind, each in flows.items() if each]
    tall = (height - len(lines)) // len(shown) if shown else 0
    for kind in shown if tall >= _FLOW_GRAPH else ():
        values = history.of(kind)[-2 * width :]
        highest = peak(values)
        lines.append(whole([[(kind, DIM)], [(f"highest {size(highest)}/s", DIM)]], width))
        if kind == shown[-1]:
            lines += timed(values, width, tall - 1, kind, history.seconds(width), highest)
        else:
            lines += graph(values, width, tall - 1, kind, highest)
    return Drawn(lines or [[("none", DIM)]], "Disks and network")


def _rate(rate: float) -> Line:
    return [(f"{size(rate)}/s", DIM if rate < 1 else "")]


def _busy(flow: Flow, _: int) -> Line:
    if flow.busy is not None:
        return [(percent(flow.busy), alarm(flow.busy, *BUSY))]
    return [(f"{flow.troubles:.0f}err", WARNING)] if flow.troubles >= 0.5 else []


# -- file systems and sensors


def storage(view: View, width: int) -> Drawn:
    """Return the file systems and the temperatures of the host."""
    spaces = sorted(host_figures.filesystems(view), key=_fullness, reverse=True)
    sensors = sorted(host_figures.sensors(view), key=lambda sensor: sensor.value, reverse=True)
    used = max((len(part(space.used, space.total)) for space in spaces), default=0)
    columns: list[Column[Space]] = [
        Column("", 5, lambda space, _: [(space.mountpoint, STRONG)], grows=1),
        Column("", 4, lambda space, wide: bar(_fullness(space), wide, _space_style(space) or GOOD), grows=1, rank=3),
        Column("", used, lambda space, _: [(part(space.used, space.total), _space_style(space))], rank=2, right=True),
        Column("", 4, lambda space, _: [(percent(_fullness(space)), _space_style(space))], rank=1, right=True),
    ]
    lines = [*map(Layout(columns, width).row, spaces)]
    if sensors:
        lines.append([("TEMPERATURES", DIM)])
        per_line = max(1, (width + 2) // 26)
        cell = (width + 2) // per_line - 2
        cells: list[Line] = [
            [
                *fitted([(sensor.name, "")], cell - 6),
                (f"{sensor.value:.0f}°C".rjust(6), heat(sensor.value, sensor.limit) or GOOD),
            ]
            for sensor in sensors
        ]
        lines += _rows_of(cells, per_line)
    return Drawn(lines or [[("none", DIM)]], "File systems" if not sensors else "File systems and temperatures")


def _fullness(space: Space) -> float:
    return ratio(space.used, space.total) or 0.0


def _space_style(space: Space) -> str:
    return alarm(_fullness(space), *FULL_DISK)


def header(host: str, view: View | None, note: str, clock: str, width: int) -> Line:
    """Return the first line of the screen. What does not fit is left out: first the uptime, then words of the note."""
    uptime = figures.total(view, c.SYSTEM_UPTIME) if view else None
    name = whole([[(" otel-hardware ", "brand")], [(host, STRONG)]], width, " ")
    time: Line = [(f"  {clock} ", "")]
    space = width - width_of(name) - width_of(time)
    if space < 0:
        return fitted(name, width)
    age: Line = [] if uptime is None else [(f"  up {duration(uptime)}", DIM)]
    if len(note) + width_of(age) + 2 > space:  # what is exported is more important
        age = []
    text = shorten(note, space - width_of(age) - 2, placeholder=" …") if note and space > _NOTE else ""
    return [*name, *age, *fitted([(text, DIM)], max(0, space - width_of(age)), right=True), *time]
