"""Where the panels are, for a size of the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

COLUMNS = 12  # columns of the grid

_WIDE, _NARROW = 118, 60  # the width from which three panels of the host are side by side, and two

# Lines of a panel, with its border, if there is little room.
_LEAST = {"devices": 7, "processes": 5, "cpu": 5, "memory": 5, "traffic": 5, "storage": 5}

_GRAPH = 4  # the least lines of a graph


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
    """Return the rows of panels. They may be higher than the screen, which then scrolls.

    Args:
        width: Columns of the screen.
        height: Lines for the panels.
        needs: Lines of each panel with its border; panels that are not shown are missing.
        graphs: By the name of a panel, the lines that its row can use for graphs if there is much room.
        zoomed: The only panel to show.
    """
    if zoomed in needs:
        return [Row(height, (zoomed,), (COLUMNS,))]
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
        Row(lines, row, (8, 4) if row == ("processes", "storage") else (COLUMNS // len(row),) * len(row))
        for lines, row in zip(heights, rows)
    ]


_ROWS_OF_ONE = (("devices",), ("processes",), ("cpu",), ("memory",), ("traffic",), ("storage",))
_ROWS_OF_TWO = (("devices",), ("processes",), ("cpu", "memory"), ("traffic", "storage"))
_ROWS_OF_THREE = (("devices",), ("cpu", "memory", "traffic"), ("processes", "storage"))
