"""Lines of styled text, and what they are made of: bars, graphs, numbers, tables, and colours for warnings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from opentelemetry.instrumentation.hardware.cli.text import clip, quantity
from opentelemetry.instrumentation.hardware.model import Number

Line = list[tuple[str, str]]  # pieces of text, each with the name of its style

GOOD, WARNING, BAD, DIM, STRONG, TRACK = "good", "warning", "bad", "dim", "strong", "track"

UNKNOWN: Line = [("-", DIM)]

SIMULATED = " simulated"  # the end of the name of a simulated GPU

_GRADIENT = 8  # the number of styles from ``level0`` to ``level7``, from good to bad

# The dots of a Braille character up to a height of 0 to 4, in both of its columns.
_LEFT, _RIGHT = (0, 0x40, 0x44, 0x46, 0x47), (0, 0x80, 0xA0, 0xB0, 0xB8)

# The character of two heights.
_CELLS = [[chr(0x2800 + left + right) if left + right else " " for right in _RIGHT] for left in _LEFT]


LABEL = 11  # columns of the words at the left of a page


def item(name: str, value: str, style: str = STRONG) -> Line:
    """Return a value after a word."""
    return [(f"{name} ", DIM), (value, style)] if name else [(value, style)]


def width_of(line: Line) -> int:
    return sum(len(text) for text, _ in line)


def whole(items: Sequence[Line], width: int, gap: str = "  ") -> Line:
    """Return those of the first items that have room, side by side. A number is never cut."""
    line: Line = []
    for item in items:
        start: Line = [(gap, "")] if line else []
        if width_of(line) + width_of(start) + width_of(item) > width:
            break
        line += [*start, *item]
    return line


def flowed(items: Sequence[Line], width: int) -> list[Line]:
    """Return the items in as many lines as they need, without those that are wider."""
    lines: list[Line] = []
    for item in items:
        if width_of(item) > width:
            continue
        if lines and width_of(lines[-1]) + 2 + width_of(item) <= width:
            lines[-1] += [("  ", ""), *item]
        else:
            lines.append([*item])
    return lines


def labelled(name: str, items: Sequence[Line], width: int) -> list[Line]:
    """Return items beside a word, in as many lines as they need; nothing without items."""
    return [[(f"{'' if at else name:<{LABEL}}", DIM), *line] for at, line in enumerate(flowed(items, width - LABEL))]


def beside(blocks: Sequence[Sequence[Line]], width: int) -> list[Line]:
    """Return blocks of equally many lines side by side, each in so many columns."""
    return [[piece for line in lines for piece in fitted(line, width + 2)] for lines in zip(*blocks)]


def fitted(line: Line, width: int, right: bool = False) -> Line:
    """Return a line of exactly this width."""
    missing = width - width_of(line)
    if missing >= 0:
        space: Line = [(" " * missing, "")] if missing else []
        return [*space, *line] if right else [*line, *space]
    cut: Line = []
    for text, style in line:
        left = width - width_of(cut)
        if left > 0:
            cut.append((clip(text, left), style))
    return cut


def bar(share: float | None, width: int, style: str) -> Line:
    """Return a horizontal bar, in steps of half a column."""
    if share is None:
        return [("━" * width, TRACK)]
    halves = round(2 * width * min(max(share, 0.0), 1.0))
    full, half = "━" * (halves // 2), "╸" * (halves % 2)
    return [(full + half, style), ("━" * (width - len(full + half)), TRACK)]


def graph(values: Sequence[float | None], width: int, height: int, style: str = "", highest: float = 1.0) -> list[Line]:
    """Return an area chart of the newest values, two in each column and the last one at the right. None leaves a gap.

    The highest value fills the height. Without a style, each line is coloured by its height.
    """
    newest = [None] * max(0, 2 * width - len(values)) + [*values[-2 * width :]]
    steps = 4 * height
    heights = [0 if value is None else max(1, round(steps * min(value / (highest or 1.0), 1.0))) for value in newest]
    lines: list[Line] = []
    for row in range(height):
        below = 4 * (height - 1 - row)
        cells = [
            _CELLS[min(max(left - below, 0), 4)][min(max(right - below, 0), 4)]
            for left, right in zip(heights[::2], heights[1::2])
        ]
        name = style or f"level{round((_GRADIENT - 1) * (height - 1 - row) / max(height - 1, 1))}"
        lines.append([("".join(cells), name)])
    return lines


def timed(
    values: Sequence[float | None], width: int, height: int, style: str, seconds: float, highest: float = 1.0
) -> list[Line]:
    """Return a graph of so many lines, with a time axis if there is room; see :func:`graph` and :func:`axis`."""
    if height < _AXIS:
        return graph(values, width, height, style, highest)
    return [*graph(values, width, height - 1, style, highest), axis(seconds, width)]


def peak(values: Sequence[float | None]) -> float:
    """Return the highest value; 0 if none is known."""
    return max((value for value in values if value is not None), default=0.0)


def axis(seconds: float, width: int) -> Line:
    """Return the time axis of a graph that covers so many seconds, with now at the right."""
    if not seconds or width < _TICK:
        return []
    step = next((each for each in _STEPS if each * width / seconds >= _TICK), _STEPS[-1])
    text = f"{'now':>{width}}"
    for time in range(step, int(seconds) + 1, step):
        label = f"-{time // 3600}h" if not time % 3600 else f"-{time // 60}m" if not time % 60 else f"-{time}s"
        at = round(width * (1 - time / seconds))
        if not text[at : at + len(label) + 1].strip():
            text = text[:at] + label + text[at + len(label) :]
    return [(text, DIM)]


_AXIS = 5  # the lines from which a graph has a time axis

_TICK = 10  # the least columns between two marks of a time axis

_STEPS = (5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600)  # seconds between two marks


def spark(values: Sequence[float | None], width: int, style: str) -> Line:
    """Return a chart of one line with the newest values, shares of its height. The lines of a table do not touch."""
    newest = [None] * max(0, width - len(values)) + [*values[-width:]]
    return [("".join(" " if value is None else column(0.85 * value) for value in newest), style)]


def column(height: float) -> str:
    """Return a column of at most one line."""
    return "▁▂▃▄▅▆▇█"[min(max(int(8 * height), 0), 7)]


def percent(share: float | None) -> str:
    """Format a share in at most four columns."""
    return "-" if share is None else f"{100 * share:.0f}%"


def size(value: Number | None) -> str:
    """Format bytes in at most six columns: ``48.8G``."""
    return "-" if value is None else quantity(value, "By").replace(" ", "").replace("iB", "")


def short(device: str) -> str:
    """Return the name of a device. The title of the table of devices says whether it is simulated."""
    return device.removesuffix(SIMULATED)


def part(used: Number | None, total: Number | None) -> str:
    """Format ``48.8/79.6G``."""
    text, limit = size(used), size(total)
    if total is None or used is None:
        return text
    return f"{text[:-1] if text[-1] == limit[-1] else text}/{limit}"


# -- thresholds

# A warning and an alarm: of memory in use, of file systems, of CPUs and disks, and of the time in which tasks waited.
FULL, FULL_DISK, BUSY, WAITING = (0.90, 0.97), (0.85, 0.95), (0.80, 0.95), (0.10, 0.40)

IDLE, HELD = 0.05, 0.10  # a device is idle below this utilization, and held from this share of its memory

_HOT = (80.0, 90.0)  # of temperatures without a known limit, in degrees Celsius

_NEAR = 10.0  # degrees below a limit from which a temperature is a warning


def alarm(value: float, warning: float, bad: float) -> str:
    """Return the style of a number by two thresholds; "" if it is normal."""
    return BAD if value >= bad else WARNING if value >= warning else ""


def heat(value: Number, limit: Number | None) -> str:
    """Return the style of a temperature; "" if it is normal."""
    return alarm(value, *(_HOT if limit is None else (limit - _NEAR, limit)))


# -- tables

_SPACIOUS = 110  # the width from which there are two columns of space between the columns of a table

Row = TypeVar("Row")


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    Attributes:
        title: Its title.
        width: Its least width.
        cell: Returns the cell of a row for a width.
        order: Returns what rows are sorted by.
        grows: Its share of the columns that are left.
        rank: Columns with the highest rank are left out first if they do not fit.
        right: Whether it is aligned to the right.
        descending: Whether the highest comes first, unless the order is reversed.
    """

    title: str
    width: int
    cell: Callable[[Row, int], Line]
    order: Callable[[Row], Any] = str
    grows: int = 0
    rank: int = 0
    right: bool = False
    descending: bool = False


class Layout(Generic[Row]):
    """The columns of a table in a width. Columns that do not fit are left out.

    Attributes:
        columns: The columns, each with its width.
    """

    def __init__(self, columns: Sequence[Column[Row]], width: int) -> None:
        self._gap = 2 if width >= _SPACIOUS else 1
        shown = [*columns]
        while len(shown) > 1 and self._sum([each.width for each in shown]) > width:
            shown.remove(max(shown, key=lambda each: each.rank))
        left = max(0, width - self._sum([each.width for each in shown]))
        shares = sum(each.grows for each in shown)
        self.columns: list[tuple[Column[Row], int]] = []
        for each in shown:
            more = left * each.grows // shares if each.grows else 0
            left, shares = left - more, shares - each.grows
            self.columns.append((each, each.width + more))

    def _sum(self, widths: Sequence[int]) -> int:
        return sum(widths) + self._gap * (len(widths) - 1)

    def heading(self, sorted_by: str, is_reversed: bool) -> Line:
        """Return the titles, with a mark at the one that the rows are sorted by: ▲ ascending, ▼ descending."""
        cells: list[Line] = []
        for column, _ in self.columns:
            if column.title == sorted_by:
                cells.append([(column.title + ("▲" if column.descending == is_reversed else "▼"), STRONG)])
            else:
                cells.append([(column.title, DIM)])
        return self._line(cells)

    def row(self, row: Row) -> Line:
        return self._line([column.cell(row, width) for column, width in self.columns])

    def _line(self, cells: Sequence[Line]) -> Line:
        line: Line = []
        for cell, (column, width) in zip(cells, self.columns):
            line += [*([(" " * self._gap, "")] if line else []), *fitted(cell, width, column.right)]
        return line

    def column_at(self, x: int) -> Column[Row] | None:
        for column, width in self.columns:
            if x < width + self._gap:
                return column
            x -= width + self._gap
        return None
