"""Figure: one number that was measured, what it is beside, and how high it may be."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """One row of the table.

    Attributes:
        name: what was measured.
        ours: the number; smaller is better.
        unit: of all numbers of the row.
        beside: what ours is compared with.
        theirs: that one's number.
        bound: what ours may be at most, in the unit; None for a number that is only good to know.
        rule: how the bound comes about, where it is not simply a number.
    """

    name: str
    ours: float
    unit: str
    beside: str = ""
    theirs: float | None = None
    bound: float | None = None
    rule: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.theirs else None

    @property
    def holds(self) -> bool | None:
        return None if self.bound is None else self.ours <= self.bound


HEADINGS = ("figure", "ours", "", "beside", "theirs", "ratio", "bound", "verdict")
_WIDTHS = (52, 9, 9, 46, 9, 6, 28, 7)


def line(*cells: str) -> str:
    """One line of the table; numbers stand to the right."""
    return "  ".join(
        cell.rjust(width) if column in (1, 4, 5) else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, _WIDTHS))
    ).rstrip()


def row(figure: Figure) -> str:
    """The line of a figure."""
    verdict = {True: "holds", False: "MISSED", None: ""}[figure.holds]
    bound = "" if figure.bound is None else f"{figure.bound:.4g}" + (f" ({figure.rule})" if figure.rule else "")
    return line(
        figure.name,
        f"{figure.ours:.4g}",
        figure.unit,
        figure.beside,
        "" if figure.theirs is None else f"{figure.theirs:.4g}",
        "" if figure.ratio is None else f"{figure.ratio:.2f}",
        bound,
        verdict,
    )
