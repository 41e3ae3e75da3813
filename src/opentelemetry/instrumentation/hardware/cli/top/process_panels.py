"""The processes: their table, flat or as a tree, and the page of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware.cli.text import clip, counted, duration, fraction, quantity, wrap
from opentelemetry.instrumentation.hardware.cli.top.feed import Readout
from opentelemetry.instrumentation.hardware.cli.top.history import History
from opentelemetry.instrumentation.hardware.cli.top.processes import Process
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    DIM,
    LABEL,
    STRONG,
    UNKNOWN,
    WARNING,
    Column,
    Line,
    axis,
    fitted,
    graph,
    item,
    labelled,
    peak,
    percent,
    short,
    size,
    whole,
    width_of,
)
from opentelemetry.instrumentation.hardware.cli.top.widgets import Drawn

_LOGIN = 12  # the most columns of a user

_TALL, _LOW = 12, 4  # the most and the least lines of the graph


def process_columns(processes: Sequence[Process], prefixes: Mapping[tuple[str, int], str]) -> list[Column[Process]]:
    """Return the columns of the processes. In a tree, the prefixes precede the commands, by key."""
    name = max((len(short(each.device)) for each in processes), default=0)
    user = max((len(each.user) for each in processes), default=4)
    digits = max((len(str(each.pid)) for each in processes), default=0)
    columns: list[Column[Process]] = [
        Column(
            "DEVICE",
            max(name, 7),
            lambda each, _: [(short(each.device), STRONG)],
            lambda each: (not each.device, len(each.device), each.device, -(each.cpu or 0.0)),
            rank=1,
        ),
        Column("PID", max(digits, 7), lambda each, _: [(str(each.pid), "")], lambda each: each.pid, right=True),
        Column("USER", min(max(user, 5), _LOGIN), _user, lambda each: each.user, rank=5),
        Column("MEMORY", 7, _device_memory, lambda each: each.device_memory or 0, rank=3, right=True, descending=True),
        Column("CPU", 6, _cpu, lambda each: each.cpu or 0.0, rank=2, right=True, descending=True),
        Column("RSS", 6, _memory, lambda each: each.memory or 0, rank=4, right=True, descending=True),
        Column("AGE", 6, _age, lambda each: each.age or 0.0, rank=7, right=True, descending=True),
        Column(
            "COMMAND",
            16,
            lambda each, width: [(prefixes.get(each.key, ""), DIM), *command(each, width)],
            lambda each: each.command,
            1,
            rank=6,
        ),
    ]
    has_devices = any(each.device for each in processes)
    return [column for column in columns if has_devices or column.title not in ("DEVICE", "MEMORY")]


def as_tree(processes: Sequence[Process]) -> Iterator[tuple[Process, str]]:
    """Yield the processes, each below its parent, with what precedes its command. Their order is kept otherwise."""
    pids = {each.pid for each in processes}
    children: dict[int, list[Process]] = {}
    roots: list[Process] = []
    for each in processes:
        if each.parent in pids and each.parent != each.pid:
            children.setdefault(each.parent, []).append(each)
        else:
            roots.append(each)
    pending = [(each, "", "") for each in reversed(roots)]
    shown: set[int] = set()
    while pending:
        each, start, indent = pending.pop()
        yield each, start
        below = children.get(each.pid, []) if each.pid not in shown else []
        shown.add(each.pid)
        for at, child in reversed([*enumerate(below)]):
            is_last = at == len(below) - 1
            pending.append((child, indent + ("└ " if is_last else "├ "), indent + ("  " if is_last else "│ ")))


def matches(process: Process, text: str) -> bool:
    """Whether a process has this text in its device, PID, user or command."""
    words = f"{process.device} {process.pid} {process.user} {process.command}"
    return text.casefold() in words.casefold()


def _user(process: Process, width: int) -> Line:
    return [(clip(process.user, width), "")] if process.user else UNKNOWN


def _device_memory(process: Process, _: int) -> Line:
    if not process.device:
        return []
    return UNKNOWN if process.device_memory is None else [(size(process.device_memory), STRONG)]


def _cpu(process: Process, _: int) -> Line:
    return UNKNOWN if process.cpu is None else [(percent(process.cpu), "" if process.cpu >= 0.005 else DIM)]


def _memory(process: Process, _: int) -> Line:
    return UNKNOWN if process.memory is None else [(size(process.memory), "")]


def _age(process: Process, _: int) -> Line:
    return UNKNOWN if process.age is None else [(age(process.age), DIM)]


def age(seconds: float) -> str:
    """Format an age in at most six columns."""
    return duration(float(round(seconds))).replace(" min", "m").replace(" ", "")


def command(process: Process, width: int) -> Line:
    """Return the command line; without the folder of the program if there is little room."""
    if not process.is_known:
        return [("of another container or user", DIM)]
    program, space, rest = process.command.partition(" ")
    head, slash, base = program.rpartition("/")
    return [(head + slash, DIM), (base, STRONG), (space + rest, "")] if width > 40 else [(base + space + rest, "")]


# -- the page of a process


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
    """Yield what it uses of each device. The energy is that of the device, also if other processes use it."""
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
            yield [(f"shared with {counted(others, 'other')}", WARNING)]


def _tree(readout: Readout, process: Process, width: int) -> Iterator[Line]:
    """Yield its ancestors, itself and its descendants."""
    by_pid = {each.pid: each for each in readout.processes if each.is_known}

    def lineage(pid: int) -> list[int]:
        found: list[int] = []
        while pid in by_pid and pid not in found:
            found.append(pid)
            pid = by_pid[pid].parent or 0
        return found

    above = lineage(process.pid)
    family = [each for pid, each in sorted(by_pid.items()) if pid in above or process.pid in lineage(pid)]
    for each, prefix in as_tree(family):
        style = STRONG if each.pid == process.pid else DIM
        numbers: list[Line] = [[(f"{each.pid:>{LABEL - 1}}", style)], [(f"{percent(each.cpu):>6}", DIM)]]
        start = [*whole([*numbers, [(f"{size(each.memory):>6}", DIM)]], width), ("  ", "")]
        room = width - width_of(start) - len(prefix)
        if room > 0:
            yield [*start, (prefix, DIM), *fitted(command(each, room), room)]
        else:
            yield start[:-1]
