"""A View as a table for people: families of metrics, a line for each thing, units that suit, and no line too wide."""

from __future__ import annotations

import math
import os
import socket
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import vocabulary as v
from opentelemetry.instrumentation.hardware.cli.view import View, line
from opentelemetry.instrumentation.hardware.model import Attributes, Kind, Metric, Number, Window

WHO = (
    v.FILESYSTEM_MOUNTPOINT,
    v.INTERFACE,
    v.HW_NAME,
    v.HW_ID,
    v.DEVICE,
    v.CPU_NUMBER,
    v.PRESSURE_RESOURCE,
    v.NETWORK_TRANSPORT,
    v.GC_GENERATION,
    v.SOURCE,
)
"""Attributes that name a thing rather than an aspect of it: each thing has a line of its own."""

_HIDDEN = frozenset({v.FILESYSTEM_TYPE, v.HW_TYPE, v.DEVICE, v.HW_ID})
"""Attributes that say nothing new beside the thing's name."""

_LARGE = 8
"""Rows that a family may have before it is split by its second word; a process stays together."""

_FEW = 3
"""Numbers on a line that stand below those of its neighbours; where there are more, a line is a grid of its own."""

_NAME_WIDTH = 20
"""Columns of the names; a longer one pushes its numbers aside instead of those of all others."""

_WHO_WIDTH = 24
_GAP = 2


class _Cell(NamedTuple):
    """One number: what it is of (user, read, free, or nothing), and how it is said."""

    label: str
    value: str

    def __str__(self) -> str:
        return f"{self.label} {self.value}" if self.label else self.value


class _Line(NamedTuple):
    """The numbers of one metric and one thing."""

    name: str
    who: str
    cells: list[_Cell]


def draw(view: View, width: int, bold: bool = False) -> str:
    """The table.

    Args:
        view: what was seen.
        width: columns of the terminal.
        bold: whether headings are set off by the terminal's own means.
    """
    mark = ("\x1b[1m", "\x1b[0m") if bold else ("", "")
    lines = [f"{mark[0]}{_clip(_title(view), width)}{mark[1]}"]
    families = _families(view)
    name_width = min(max((len(each.name) for rows in families.values() for each in rows), default=0), _NAME_WIDTH)
    for family, rows in families.items():
        lines += ["", f"{mark[0]}{_clip(_heading(family, view), width)}{mark[1]}"]
        lines += _family(rows, name_width, width)
    if view.missing:
        lines += ["", f"{mark[0]}not here{mark[1]}"]
        for sentence in view.missing:
            lines += _wrapped(sentence, width)
    return "\n".join(lines) + "\n"


def _title(view: View) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(view.time))
    return f"{socket.gethostname()}   {when}   shares, means and rates of the last {duration(view.window)}"


def _heading(family: str, view: View) -> str:
    if not family.startswith("process"):
        return family
    whose = "this command itself; --pid chooses another" if view.pid == os.getpid() else _command(view.pid)
    return f"{family}   pid {view.pid}{f' ({whose})' if whose else ''}"


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(file.read().decode(errors="replace").split("\0")).strip()
    except OSError:
        return ""


def _families(view: View) -> dict[str, list[_Line]]:
    """Lines by the beginning of their metric's name: its first word, and its second where there are many."""
    rows = view.rows()
    words = [row[0].name.split(".") for row in rows]
    large = {first for first in {each[0] for each in words} if sum(each[0] == first for each in words) > _LARGE} - {
        "process"
    }
    pairs = [(each[0], each[1]) for each in words if len(each) > 2]
    found: dict[str, list[_Line]] = {}
    for (metric, points), parts in zip(rows, words):
        depth = 2 if parts[0] in large and len(parts) > 2 and pairs.count((parts[0], parts[1])) > 1 else 1
        family = ".".join(parts[:depth])
        found.setdefault(family, []).extend(_lines(view, metric, points, ".".join(parts[depth:])))
    return dict(sorted(found.items(), key=lambda item: item[0] == "otel_hardware"))


def _lines(view: View, metric: Metric, points: Sequence[tuple[Number, Attributes]], name: str) -> Iterator[_Line]:
    who = next((key for key in WHO if key in metric.attributes), "")
    things: dict[str, list[_Cell]] = {}
    for value, attributes in points:
        aspects = [str(word) for key, word in attributes.items() if key != who and key not in _HIDDEN]
        cell = _Cell(" ".join(aspects), said(metric, value, view.rates.get(line(metric, attributes))))
        things.setdefault(_thing(who, attributes), []).append(cell)
    for thing, cells in things.items():
        yield _Line(name, thing, cells)
        name = ""


def _thing(who: str, attributes: Attributes) -> str:
    value = attributes.get(who, "")
    return f"cpu {value}" if who == v.CPU_NUMBER and value != "" else str(value)


def _family(rows: list[_Line], name_width: int, width: int) -> Iterator[str]:
    who_width = min(max(len(row.who) for row in rows), _WHO_WIDTH)
    left = _GAP + name_width + _GAP + (who_width + _GAP if who_width else 0)
    room = max(width - left, 10)
    pairs = [len(str(cell)) for row in rows for cell in row.cells if 1 < len(row.cells) <= _FEW]
    for row in rows:
        start = f"{'':{_GAP}}{row.name:{name_width}}{'':{_GAP}}"
        if who_width:
            start += f"{_clip(row.who, who_width):{who_width}}{'':{_GAP}}"
        widths = pairs if len(row.cells) <= _FEW else [len(str(cell)) for cell in row.cells]
        column = min(max(widths, default=0), room)
        fit = max(1, (room + _GAP) // (column + _GAP))
        for at in range(0, len(row.cells), fit):
            cells = (" " * _GAP).join(f"{_clip(str(cell), room):{column}}" for cell in row.cells[at : at + fit])
            yield (start + cells).rstrip()
            start = " " * left


def _wrapped(sentence: str, width: int) -> list[str]:
    return textwrap.wrap(
        sentence, max(width, 20), initial_indent=" " * _GAP, subsequent_indent=" " * 2 * _GAP, break_on_hyphens=False
    )


def _clip(text: str, width: int) -> str:
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
