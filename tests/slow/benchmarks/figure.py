"""Figure: one measured number, the alternative's number, and its bound."""

from __future__ import annotations

from typing import Any, NamedTuple


class Figure(NamedTuple):
    """One row of the table.

    Attributes:
        name: What was measured.
        ours: The number; smaller is better, but where the bound is a minimum.
        unit: Of all numbers of the row.
        alternative: What ours is compared with, if anything.
        beside: The alternative's number; None when the alternative is not installed.
        bound: The maximum or the minimum of ours; None if the number is only informative.
        relative: Whether the bound is a multiple of the alternative's number, not a number in the unit.
        noisy: Whether the rounds leave open on which side of the bound the number is.
        minimum: Whether the bound is a minimum.
        least: The lower end of the interval of the median; with `most`, shown where there is no alternative.
        most: Its upper end.
        paired: The median of the ratios to the alternative's number in each round.
    """

    name: str
    ours: float
    unit: str
    alternative: str = ""
    beside: float | None = None
    bound: float | None = None
    relative: bool = False
    noisy: bool = False
    minimum: bool = False
    least: float | None = None
    most: float | None = None
    paired: float | None = None

    @property
    def ratio(self) -> float | None:
        if self.paired is not None:
            return self.paired
        return self.ours / self.beside if self.beside else None

    @property
    def holds(self) -> bool | None:
        """Whether the number is within its bound, be it noisy or not."""
        value = self.ratio if self.relative else self.ours
        if self.bound is None or value is None:
            return None
        return value >= self.bound if self.minimum else value <= self.bound

    @property
    def missed(self) -> bool:
        """Whether the bound is missed beyond doubt."""
        return self.holds is False and not self.noisy

    def document(self) -> dict[str, Any]:
        """For the JSON file."""
        return {**self._asdict(), "ratio": self.ratio, "holds": self.holds}
