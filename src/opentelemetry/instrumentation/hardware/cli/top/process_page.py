"""The page of a process: its command, its place in the tree, its devices, and its history."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.instrumentation.hardware.cli.layout import wrap
from opentelemetry.instrumentation.hardware.cli.quantity import fraction, quantity
from opentelemetry.instrumentation.hardware.cli.top.feed import Readout
from opentelemetry.instrumentation.hardware.cli.top.history import History
from opentelemetry.instrumentation.hardware.cli.top.process_table import age, as_tree, command
from opentelemetry.instrumentation.hardware.cli.top.processes import Process
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    DIM,
    LABEL,
    STRONG,
    WARNING,
    Line,
    axis,
    fitted,
    graph,
    item,
    labelled,
    peak,
    percent,
    size,
    whole,
    width_of,
)
from opentelemetry.instrumentation.hardware.cli.top.widgets import Drawn

_TALL, _LOW = 12, 4  # the most and the least lines of the graph


def process_page(readout: Readout, history: History, pid: int, width: int, height: int) -> Drawn:
    """Return the page. The graph of its CPU utilization fills what is left of the screen."""
    rows = [each for each in readout.processes if each.pid == pid]
    if not rows:
        return Drawn([[(f"process {pid} has ended", WARNING)]], f"Process {pid}", "esc back")
    process = rows[0]
    lines: list[Line] = []
    for at, line in enumerate(wrap(process.command or "-", max(width - LABEL, 20))):
        lines.append([(f"{'' if at else 'command':<{LABEL}}", DIM), (line, STRONG)])
    cpu = item("CPU", percent(process.cpu))
    facts = [item("user", process.user or "-", ""), cpu, item("memory", size(process.memory))]
    facts += [] if process.age is None else [item("age", age(process.age), "")]
    lines += labelled("", facts, width)
    lines += labelled("devices", [*_devices(readout, rows)], width)
    lines += [[], *_tree(readout, process, width)]
    tall = min(height - len(lines) - 3, _TALL)
    if tall >= _LOW:
        values = history.of("process", str(pid))
        chart = graph(values, width, tall - 1, highest=max(1.0, peak(values)))
        lines += [[], cpu, *chart, axis(history.seconds(width), width)]
    return Drawn(lines, f"Process {pid}", "esc back · k kill")


def _devices(readout: Readout, rows: list[Process]) -> Iterator[Line]:
    """Yield what it uses of each device. The energy is that of the device, whoever uses it."""
    by_name = {device.name: device for device in readout.devices}
    for row in rows:
        device = by_name.get(row.device)
        if device is None:
            continue
        others = len({each.pid for each in readout.processes if each.device == row.device} - {row.pid})
        yield item(row.device, fraction(row.device_memory, device.total, "By") or "-")
        yield item("busy", percent(device.busy))
        if device.power is not None:
            yield item("", quantity(device.power, "W"))
        joules = readout.energy.get(device.id)
        if joules is not None:
            yield item("", quantity(joules, "J"))
            yield [("since the start of this view", DIM)]
        if others:
            yield [(f"shared with {others} other{'s' if others > 1 else ''}", WARNING)]


def _tree(readout: Readout, process: Process, width: int) -> Iterator[Line]:
    """Yield its ancestors, itself and its descendants."""
    by_pid = {each.pid: each for each in readout.processes if each.is_known}
    shown = {process.pid}
    ancestor = by_pid.get(process.parent or 0)
    while ancestor is not None and ancestor.pid not in shown:
        shown.add(ancestor.pid)
        ancestor = by_pid.get(ancestor.parent or 0)
    below = {process.pid}
    for _ in range(len(by_pid)):
        more = {each.pid for each in by_pid.values() if each.parent in below} - below
        if not more:
            break
        below |= more
    family = [each for pid, each in sorted(by_pid.items()) if pid in shown | below]
    for each, prefix in as_tree(family):
        style = STRONG if each.pid == process.pid else DIM
        numbers: list[Line] = [[(f"{each.pid:>{LABEL - 1}}", style)], [(f"{percent(each.cpu):>6}", DIM)]]
        start = [*whole([*numbers, [(f"{size(each.memory):>6}", DIM)]], width), ("  ", "")]
        room = width - width_of(start) - len(prefix)
        if room > 0:
            yield [*start, (prefix, DIM), *fitted(command(each, room), room)]
        else:
            yield start[:-1]
