"""The table of processes: flat or as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware.cli.quantity import duration
from opentelemetry.instrumentation.hardware.cli.top.processes import Process
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    DIM,
    STRONG,
    UNKNOWN,
    Column,
    Line,
    percent,
    short,
    size,
)

_LOGIN = 12  # the most columns of a user


def process_columns(processes: Sequence[Process], prefixes: Mapping[tuple[str, int], str]) -> list[Column[Process]]:
    """Return the columns of the processes.

    Args:
        processes: The processes.
        prefixes: What precedes the commands in a tree, by key.
    """
    name = max((len(short(each.device)) for each in processes), default=0)
    user = max((len(each.user) for each in processes), default=4)
    digits = max((len(str(each.pid)) for each in processes), default=0)
    columns = [
        Column[Process](
            "DEVICE",
            max(name, 7),
            lambda each, _: [(short(each.device), STRONG)],
            lambda each: (not each.device, len(each.device), each.device, -(each.cpu or 0.0)),
            rank=1,
        ),
        Column[Process](
            "PID", max(digits, 7), lambda each, _: [(str(each.pid), "")], lambda each: each.pid, right=True
        ),
        Column[Process]("USER", min(max(user, 5), _LOGIN), _user, lambda each: each.user, rank=5),
        Column[Process](
            "MEMORY", 7, _device_memory, lambda each: each.device_memory or 0, rank=3, right=True, descending=True
        ),
        Column[Process](
            "CPU",
            6,
            lambda each, _: UNKNOWN if each.cpu is None else [(percent(each.cpu), "" if each.cpu >= 0.005 else DIM)],
            lambda each: each.cpu or 0.0,
            rank=2,
            right=True,
            descending=True,
        ),
        Column[Process](
            "RSS",
            6,
            lambda each, _: UNKNOWN if each.memory is None else [(size(each.memory), "")],
            lambda each: each.memory or 0,
            rank=4,
            right=True,
            descending=True,
        ),
        Column[Process](
            "AGE",
            6,
            lambda each, _: UNKNOWN if each.age is None else [(age(each.age), DIM)],
            lambda each: each.age or 0.0,
            rank=7,
            right=True,
            descending=True,
        ),
        Column[Process](
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
    if not process.user:
        return UNKNOWN
    return [(process.user if len(process.user) <= width else f"{process.user[: width - 1]}…", "")]


def _device_memory(process: Process, _: int) -> Line:
    if not process.device:
        return []
    return UNKNOWN if process.device_memory is None else [(size(process.device_memory), STRONG)]


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
