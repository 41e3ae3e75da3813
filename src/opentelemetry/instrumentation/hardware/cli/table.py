"""A View as a table for people: families of metrics, a line for each thing, units that suit, and no line too wide."""

from __future__ import annotations

import math
import os
import socket
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.cli.gpus import Gpu, gpus, place
from opentelemetry.instrumentation.hardware.cli.view import View, line, told
from opentelemetry.instrumentation.hardware.model import Attributes, Kind, Metric, Number, Window

WHO = (
    c.FILESYSTEM_MOUNTPOINT,
    c.INTERFACE,
    c.HW_NAME,
    c.HW_ID,
    c.DEVICE,
    c.CPU_NUMBER,
    c.PRESSURE_RESOURCE,
    c.NETWORK_TRANSPORT,
    c.GC_GENERATION,
    c.OPENMETRICS_ENDPOINT,
    c.SOURCE,
)
"""Attributes that name a thing rather than an aspect of it: each thing has a line of its own."""

_PLACES = frozenset({c.OPENMETRICS_ENDPOINT, c.SERVER_ADDRESS, c.SERVER_PORT})

_HIDDEN = frozenset({c.FILESYSTEM_TYPE, c.HW_TYPE, c.DEVICE, c.HW_ID, c.HW_NAME, c.HW_PARENT}) | _PLACES
"""Attributes that say nothing new beside the thing's name."""

_FACTS = {
    c.HW_DRIVER_VERSION: "driver",
    c.PCI_BDF: "address",
    c.HW_SERIAL_NUMBER: "serial",
    c.HW_FIRMWARE_VERSION: "firmware",
    c.GPU_TYPE: "type",
}
"""What is shown of what a GPU is, beside its model in the heading."""

_ORDER = {c.HW_GPU_INFO: 0, c.HW_STATUS: 1, None: 2, c.HW_ENERGY: 3, c.HW_ERRORS: 4}
"""Where rows stand among those of a GPU; the others stand at None."""

_BEHIND = ("container", "process", "cpython", "otel_hardware")
"""Families that follow the GPUs, which follow the host."""

_LARGE = 8
"""Rows that a family may have before it is split by its second word; a process stays together."""

_FEW = 3
"""Numbers on a line that stand below those of its neighbours; where there are more, a line is a grid of its own."""

_NAME_WIDTH = 22
"""Columns of the names; a longer one pushes its numbers aside instead of those of all others."""

_WHO_WIDTH = 24

_SUBJECT = 40
"""Letters that may stand before the reason why something is missing."""

_GAP = 2

_Points: TypeAlias = "Sequence[tuple[Number, Attributes]]"


class _Cell(NamedTuple):
    """One number: what it is of (user, read, free, or nothing), and how it is said."""

    label: str
    value: str

    def __str__(self) -> str:
        return f"{self.label} {self.value}" if self.label else self.value


class _Line(NamedTuple):
    """The numbers of one metric and one thing, and in words which of many are 0."""

    name: str
    who: str
    cells: list[_Cell]
    zeros: str = ""


def draw(view: View, width: int, bold: bool = False, first: Sequence[str] = ()) -> str:
    """The table.

    Args:
        view: what was seen.
        width: columns of the terminal.
        bold: whether headings are set off by the terminal's own means.
        first: lines that stand above the families, under the title.
    """
    mark = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    lines = [f"{mark[0]}{clip(_title(view), width)}{mark[1]}"]
    lines += ["", *first] if first else []
    families = _families(view)
    name_width = min(max((len(each.name) for rows in families.values() for each in rows), default=0), _NAME_WIDTH)
    for heading, rows in families.items():
        lines += ["", f"{mark[0]}{clip(heading, width)}{mark[1]}"]
        lines += _family(rows, name_width, width)
    if view.unsupported:
        lines += ["", f"{mark[0]}not here{mark[1]}"]
        for sentence in view.unsupported:
            lines += _wrapped(": ".join(filter(None, told(sentence, _SUBJECT))), width)
    return "\n".join(lines) + "\n"


def _title(view: View) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.time))
    return f"{socket.gethostname()}   {when}   shares, means and rates of the last {duration(view.window)}"


def _heading(family: str, view: View) -> str:
    if not family.startswith("process"):
        return family
    whose = "this command itself; --pid chooses another" if view.pid == os.getpid() else _command(view.pid)
    return f"{family}   pid {view.pid}{f' ({whose})' if whose else ''}"


def _gpu_heading(id: str, gpu: Gpu) -> str:  # noqa: A002
    words = (gpu.name, gpu.model, f"part of {gpu.whole.name}" if gpu.whole else "", id)
    return "   ".join(word for word in words if word)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(file.read().decode(errors="replace").split("\0")).strip()
    except OSError:
        return ""


def _families(view: View) -> dict[str, list[_Line]]:
    """Lines by heading: the host's, each GPU's, the program's, and ours."""
    known = gpus(view)
    blocks: dict[str, list[_Line]] = {_gpu_heading(gpu, each): [] for gpu, each in known.items()}
    headings = dict(zip(known, blocks))
    others: list[tuple[Metric, _Points]] = []
    for metric, points in sorted(view.rows(), key=lambda row: _ORDER.get(row[0], _ORDER[None])):
        places = [place(attributes, known) for _, attributes in points]
        for gpu in dict.fromkeys(places):
            own = [point for point, where in zip(points, places) if where == gpu]
            if gpu:
                blocks[headings[gpu]] += _lines(view, metric, own, metric.name.removeprefix("hw."), known)
            else:
                others.append((metric, own))
    found = _by_name(view, others, known)
    behind = [family for family in found if family.startswith(_BEHIND)]
    host = {family: rows for family, rows in found.items() if family not in behind}
    return {**host, **blocks, **{_heading(family, view): found[family] for family in behind}}


def _by_name(view: View, rows: Sequence[tuple[Metric, _Points]], known: Mapping[str, Gpu]) -> dict[str, list[_Line]]:
    """Lines by the beginning of their metric's name: its first word, and its second where there are many."""
    words = [_parts(metric) for metric, _ in rows]
    large = {first for first in {each[0] for each in words} if sum(each[0] == first for each in words) > _LARGE} - {
        "process"
    }
    pairs = [(each[0], each[1]) for each in words if len(each) > 2]
    found: dict[str, list[_Line]] = {}
    for (metric, points), parts in zip(rows, words):
        depth = 2 if parts[0] in large and len(parts) > 2 and pairs.count((parts[0], parts[1])) > 1 else 1
        family = ".".join(parts[:depth])
        found.setdefault(family, []).extend(_lines(view, metric, points, ".".join(parts[depth:]), known))
    return dict(sorted(found.items(), key=lambda item: item[0] == "otel_hardware"))


def _parts(metric: Metric) -> list[str]:
    """The words of a name; the rows of a scraped page stand together, each under its whole name."""
    return [f"openmetrics {metric.endpoint}", metric.name] if metric.endpoint else metric.name.split(".")


def _alike(metric: Metric, points: _Points) -> frozenset[str]:
    """The labels of a scraped row that say nothing, because all of its series have them alike."""
    series = [set(attributes.items()) for _, attributes in points] if metric.endpoint else []
    return frozenset(key for key, _ in set.intersection(*series)) if series else frozenset()


def _lines(view: View, metric: Metric, points: _Points, name: str, known: Mapping[str, Gpu]) -> Iterator[_Line]:
    who = next((key for key in WHO if key in metric.attributes), "")
    things: dict[str, list[_Cell]] = {}
    hidden = _HIDDEN | _alike(metric, points)
    for value, attributes in points:
        part = _part(attributes, known)
        aspects = [str(word) for key, word in attributes.items() if key != who and key not in hidden]
        label = " ".join([part, *aspects] if part else aspects)
        rate = view.rates.get(line(metric, attributes))
        things.setdefault(_thing(who, attributes, known), []).extend(_cells(metric, value, rate, attributes, label))
    for thing, cells in things.items():
        yield _Line(name, thing, *(_sorted_out(cells) if metric.kind is Kind.COUNTER else (cells,)))
        name = ""


def _sorted_out(cells: list[_Cell]) -> tuple[list[_Cell], str]:
    """The numbers of a counter that there are many of, less those that never moved; and these, in words."""
    idle = [cell for cell in cells if cell.label and cell.value in ("0", "0 s")]
    if len(cells) <= _FEW or len(idle) < _FEW:
        return cells, ""
    return [cell for cell in cells if cell not in idle], f"{idle[0].value}: {', '.join(cell.label for cell in idle)}"


def _cells(metric: Metric, value: Number, rate: float | None, attributes: Attributes, label: str) -> list[_Cell]:
    """A number; of facts their words, and of states the one that holds."""
    if metric is c.HW_GPU_INFO:
        return [_Cell(word, str(attributes[key])) for key, word in _FACTS.items() if key in attributes]
    if metric is c.HW_STATUS:
        return [_Cell("", f"{label.rpartition(' ')[0]} {attributes[c.HW_STATE]}".strip())] if value else []
    if metric is c.HW_GPU_PERFORMANCE_STATE:
        return [_Cell("", f"P{value}")]
    return [_Cell(label, said(metric, value, rate))]


def _thing(who: str, attributes: Attributes, known: Mapping[str, Gpu]) -> str:
    """What a line is about; nothing where its heading says it."""
    if place(attributes, known):
        return ""
    value = str(attributes.get(who, ""))
    if value in known:
        return known[value].name
    return f"cpu {value}" if who == c.CPU_NUMBER and value else value


def _part(attributes: Attributes, known: Mapping[str, Gpu]) -> str:
    """What a number is of that belongs to a GPU and is none, such as "fan 0"."""
    whole = known.get(str(attributes.get(c.HW_PARENT, "")))
    if whole is None or attributes.get(c.HW_ID) in known:
        return ""
    return str(attributes.get(c.HW_NAME, "")).removeprefix(f"{whole.name} ")


def _family(rows: list[_Line], name_width: int, width: int) -> Iterator[str]:
    who_width = min(max(len(row.who) for row in rows), _WHO_WIDTH)
    left = _GAP + name_width + _GAP + (who_width + _GAP if who_width else 0)
    room = max(width - left, 10)
    pairs = [len(str(cell)) for row in rows for cell in row.cells if 1 < len(row.cells) <= _FEW]
    for row in rows:
        start = f"{'':{_GAP}}{row.name:{name_width}}{'':{_GAP}}"
        if who_width:
            start += f"{clip(row.who, who_width):{who_width}}{'':{_GAP}}"
        column = min(max(pairs, default=0), room)
        if len(row.cells) > _FEW or len(row.cells) * (column + _GAP) > room + _GAP:
            column = min(max((len(str(cell)) for cell in row.cells), default=0), room)
        fit = max(1, (room + _GAP) // (column + _GAP))
        for at in range(0, len(row.cells), fit):
            cells = (" " * _GAP).join(f"{clip(str(cell), room):{column}}" for cell in row.cells[at : at + fit])
            yield (start + cells).rstrip()
            start = " " * left
        for words in textwrap.wrap(row.zeros, room):
            yield start + words
            start = " " * left


def _wrapped(sentence: str, width: int) -> list[str]:
    return textwrap.wrap(
        sentence, max(width, 20), initial_indent=" " * _GAP, subsequent_indent=" " * 2 * _GAP, break_on_hyphens=False
    )


def clip(text: str, width: int) -> str:
    """Text that fits; of a path the end says more than the middle."""
    if len(text) <= width:
        return text
    if text.startswith("/"):
        return "…" + text[len(text) - width + 1 :]
    return text[: width - 1] + "…"


# -- numbers


def said(metric: Metric, value: Number, rate: float | None = None) -> str:
    """A number in words: with a unit that suits its size, and of a counter that moves its rate."""
    if metric.kind is not Kind.COUNTER:
        return quantity(value, "%" if _is_ratio(metric) else metric.unit)
    text = quantity(value, metric.unit)
    if rate is None:
        return text
    return (
        f"{text} +{_digits(rate)} CPU"
        if metric.name.endswith("cpu.time")
        else f"{text} +{_per_second(rate, metric.unit)}"
    )


def _is_ratio(metric: Metric) -> bool:
    return metric.unit == "1" and (metric.window is not Window.LAST or metric.name.endswith(("utilization", "ratio")))


def _per_second(rate: float, unit: str) -> str:
    if unit == "s":  # seconds per second
        return quantity(rate, "%")
    if unit == "J":
        return quantity(rate, "W")
    return quantity(rate, unit) + "/s"


def quantity(value: Number, unit: str) -> str:
    """A number with its unit; binary prefixes for bytes, decimal ones for the rest."""
    if unit == "%":
        return f"{_digits(100 * value)} %"
    if unit == "s":
        return duration(value)
    if unit == "By":
        return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    if unit == "Cel":
        return f"{_digits(value)} °C"
    if unit in ("Hz", "J", "W", "V"):
        return _scaled(value, 1000, tuple(prefix + unit for prefix in ("", "k", "M", "G", "T")))
    if unit == "rpm":
        return f"{value:,.0f} rpm"
    return f"{value:,}" if isinstance(value, int) else _digits(value)


def _scaled(value: Number, step: int, units: Sequence[str]) -> str:
    size, power = float(value), 0
    while abs(size) >= step * 0.9995 and power < len(units) - 1:
        size, power = size / step, power + 1
    return f"{_digits(size)} {units[power]}"


def _digits(value: float) -> str:
    """Three digits that count, and no more."""
    if value == 0:
        return "0"
    if abs(value) < 0.01:
        return "<0.01" if value > 0 else ">-0.01"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(places, 2)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def duration(seconds: Number) -> str:
    """A span of time in the two units that suit it."""
    if seconds < 59.95:
        return f"{_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s"
