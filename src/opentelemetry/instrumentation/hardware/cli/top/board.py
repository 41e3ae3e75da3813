"""What each panel shows of a readout, in which order, and where it is."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from opentelemetry.instrumentation.hardware.cli.top import host
from opentelemetry.instrumentation.hardware.cli.top.device_page import device_page
from opentelemetry.instrumentation.hardware.cli.top.devices import device_columns, device_tiles, device_title
from opentelemetry.instrumentation.hardware.cli.top.feed import Readout
from opentelemetry.instrumentation.hardware.cli.top.history import History
from opentelemetry.instrumentation.hardware.cli.top.process_panels import (
    as_tree,
    matches,
    process_columns,
    process_page,
)
from opentelemetry.instrumentation.hardware.cli.top.shapes import DIM, Layout, Line
from opentelemetry.instrumentation.hardware.cli.top.widgets import Draw, Drawn

# The names of the panels. ``page`` is that of a device or a process.
PANELS = ("devices", "processes", "cpu", "memory", "traffic", "storage", "page")

TABLES = ("devices", "processes")  # the panels with rows that can be sorted and selected


class Board:
    """The newest readout, and what of it is shown.

    Attributes:
        readout: The newest readout; None before the first one.
        page: The panel and the key of the row with an open page, or None.
        text: Only processes with this text are shown.
        is_tree: Whether the processes are shown as a tree.
    """

    def __init__(self) -> None:
        self.readout: Readout | None = None
        self.page: tuple[str, Hashable] | None = None
        self.text = ""
        self.is_tree = False
        self._history = History()
        self._orders = dict.fromkeys(TABLES, ("DEVICE", False))

    def add(self, readout: Readout) -> None:
        """Show a readout from now on."""
        self.readout = readout
        cpu = {each.pid: each.cpu for each in readout.processes if each.device or each.pid == self._pid_of_page()}
        more = {("process", str(pid)): share for pid, share in cpu.items()}
        self._history.add(readout.view, readout.devices, more)

    def _pid_of_page(self) -> int | None:
        name, key = self.page or ("", None)
        return key[1] if name == "processes" and isinstance(key, tuple) else None

    # -- what the panels need

    def needs(self, height: int) -> dict[str, int]:
        """Return the lines of each panel with its border, without those that have nothing to show."""
        if self.readout is None:
            return {}
        view, devices = self.readout.view, self.readout.devices
        used = sum(1 for each in self.readout.processes if each.device)
        rows = min(used + height // (5 if devices else 3), len(self.readout.processes))
        needs = {"devices": len(devices) + 3} if devices else {}
        needs |= {"processes": max(rows, 1) + 3} if rows else {}
        traffic, storage = host.traffic(view, self._history, 80, 0).lines, host.storage(view, 40).lines
        return needs | {"cpu": 7, "memory": 7, "traffic": len(traffic) + 2, "storage": len(storage) + 2}

    def graphs(self, width: int) -> dict[str, int]:
        """Return the lines that panels can use for graphs, if there is room."""
        devices = self.readout.devices if self.readout else []
        has_tiles = bool(device_tiles(devices, self._history, width - 4, 3))
        return ({"devices": 8} if has_tiles else {}) | {"cpu": 9}

    # -- what they show

    def draws(self) -> Mapping[str, Draw]:
        if self.readout is None:
            return {}
        view, history = self.readout.view, self._history
        return {
            "devices": self.devices,
            "processes": self.processes,
            "cpu": partial(host.cpu, view, history),
            "memory": partial(host.memory, view, history),
            "traffic": partial(host.traffic, view, history),
            "storage": lambda width, height: host.storage(view, width),
            "page": self._page,
        }

    def devices(self, width: int, height: int) -> Drawn:
        """Return the table of devices, with their graphs if there is room."""
        readout = self.readout
        devices = readout.devices if readout else []
        tiles = device_tiles(devices, self._history, width, height - len(devices) - 2)
        columns = device_columns(self._history, devices, readout.verdicts if readout else {}, bool(tiles))
        layout = Layout(columns, width)
        rows = self._sorted("devices", layout, devices)
        lines = [layout.heading(*self._orders["devices"]), *map(layout.row, rows)]
        lines += [[], *tiles] if tiles else []
        return Drawn(lines, *device_title(devices), 1, layout, [each.id for each in rows])

    def processes(self, width: int, height: int) -> Drawn:
        every = self.readout.processes if self.readout else []
        shown = [each for each in every if matches(each, self.text)] if self.text else every
        layout = Layout(process_columns(shown, {}), width)
        rows = self._sorted("processes", layout, shown)
        if self.is_tree:
            tree = [*as_tree(rows)]
            rows = [each for each, _ in tree]
            layout = Layout(process_columns(rows, {each.key: prefix for each, prefix in tree}), width)
        lines: list[Line] = [layout.heading(*self._orders["processes"]), *map(layout.row, rows)]
        if not rows:
            lines.append([(f"no process has {self.text!r}" if self.text else "none", DIM)])
        note = f"with {self.text!r}" if self.text else ""
        count = f"{len(shown)} of {len(every)}" if self.text else str(len(every))
        return Drawn(lines, f"Processes {count}", note, 1, layout, [each.key for each in rows])

    def _page(self, width: int, height: int) -> Drawn:
        assert self.readout is not None
        _, key = self.page or ("", None)
        pid = self._pid_of_page()
        if pid is not None:
            return process_page(self.readout, self._history, pid, width, height)
        device = next((each for each in self.readout.devices if each.id == key), None)
        if device is None:
            return Drawn([[("the device is not reported any more", DIM)]], str(key), "esc back")
        return device_page(self.readout, self._history, device, width, height)

    # -- order

    def _sorted(self, name: str, layout: Layout[Any], rows: Sequence[Any]) -> Sequence[Any]:
        title, is_reversed = self._orders[name]
        columns = {column.title: column for column, _ in layout.columns}
        by = columns.get(title) or (columns.get("CPU") if name == "processes" else None)  # there is no device
        if by is not None:
            rows = sorted(rows, key=by.order, reverse=by.descending)
            rows = rows[::-1] if is_reversed else rows
        return rows

    def sort(self, name: str, layout: Layout[Any] | None) -> None:
        """Sort a table by its next column."""
        titles = [column.title for column, _ in layout.columns if column.title != "HISTORY"] if layout else []
        title, _ = self._orders[name]
        at = titles.index(title) + 1 if title in titles else 0
        if titles:
            self._orders[name] = (titles[at % len(titles)], False)

    def reverse(self, name: str) -> None:
        title, is_reversed = self._orders[name]
        self._orders[name] = (title, not is_reversed)

    def sort_by(self, name: str, column: str) -> None:
        """Sort a table by a column, or reverse its order."""
        title, is_reversed = self._orders[name]
        self._orders[name] = (column, column == title and not is_reversed)

    def neighbour(self, step: int) -> Hashable:
        """Return the key of the device before or after that of the page."""
        ids = [each.id for each in self.readout.devices] if self.readout else []
        _, key = self.page or ("", None)
        return ids[(ids.index(str(key)) + step) % len(ids)] if key in ids else key


# -- where the panels are

_COLUMNS = 12  # columns of the grid

_WIDE, _NARROW = 118, 60  # the width from which three panels of the host are side by side, and two

# Lines of a panel, with its border, if there is little room.
_LEAST = {"devices": 7, "processes": 5, "cpu": 5, "memory": 5, "traffic": 5, "storage": 5}

_GRAPH = 4  # the least lines of a graph

_ROWS_OF_ONE = (("devices",), ("processes",), ("cpu",), ("memory",), ("traffic",), ("storage",))
_ROWS_OF_TWO = (("devices",), ("processes",), ("cpu", "memory"), ("traffic", "storage"))
_ROWS_OF_THREE = (("devices",), ("cpu", "memory", "traffic"), ("processes", "storage"))


class Row(NamedTuple):
    """Panels side by side.

    Attributes:
        height: Lines, with the border.
        panels: The names of the panels.
        spans: The columns of the grid that each takes.
    """

    height: int
    panels: tuple[str, ...]
    spans: tuple[int, ...]


def arranged(
    width: int, height: int, needs: Mapping[str, int], graphs: Mapping[str, int], zoomed: str = ""
) -> list[Row]:
    """Return the rows of panels for so many columns and lines. They may be higher, and the screen then scrolls.

    Args:
        width: Columns of the screen.
        height: Lines for the panels.
        needs: Lines of each panel with its border; panels that are not shown are missing.
        graphs: By the name of a panel, the lines that its row can use for graphs if there is much room.
        zoomed: The only panel to show.
    """
    if zoomed in needs:
        return [Row(height, (zoomed,), (_COLUMNS,))]
    places: Sequence[Sequence[str]] = (
        _ROWS_OF_THREE if width >= _WIDE else _ROWS_OF_TWO if width >= _NARROW else _ROWS_OF_ONE
    )
    if "devices" not in needs:  # the processes use none, and come last
        places = sorted(places, key=lambda place: "processes" in place)
    rows = [row for place in places if (row := tuple(name for name in place if name in needs))]
    heights = [max(needs[name] for name in row) for row in rows]
    least = [min(wanted, max(_LEAST[name] for name in row)) for wanted, row in zip(heights, rows)]
    for at in sorted(range(len(rows)), key=lambda at: "processes" not in rows[at]):  # the list of processes first
        excess = sum(heights) - height
        heights[at] -= min(max(excess, 0), heights[at] - least[at])
    for name, most in graphs.items():
        place = next((at for at, row in enumerate(rows) if name in row), None)
        if place is not None and height - sum(heights) >= _GRAPH:
            heights[place] += min(height - sum(heights), most)
    largest = next((at for at, row in enumerate(rows) if "processes" in row), -1)
    heights[largest] += max(height - sum(heights), 0)
    return [
        Row(lines, row, (8, 4) if row == ("processes", "storage") else (_COLUMNS // len(row),) * len(row))
        for lines, row in zip(heights, rows)
    ]
