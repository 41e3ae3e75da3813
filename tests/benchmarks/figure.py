"""Figure: one measured number, the alternative's number, and its bound."""

from __future__ import annotations

from collections.abc import Iterable
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
        noisy: Whether too few quiet rounds were left to rely on the number.
        minimum: Whether the bound is a minimum.
        least: The smallest number of a round; with `most`, shown where there is no alternative.
        most: The largest number of a round.
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

    def over(self, rounds: Iterable[float]) -> Figure:
        """The figure with the smallest and the largest number of its rounds."""
        numbers = sorted(rounds)
        return self._replace(least=numbers[0], most=numbers[-1])

    @property
    def key(self) -> tuple[str, str]:
        """What is the same in every run."""
        return self.name, self.alternative

    @property
    def ratio(self) -> float | None:
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
        """Whether the bound is missed in quiet rounds."""
        return self.holds is False and not self.noisy

    def document(self) -> dict[str, Any]:
        """For the JSON file."""
        return {**self._asdict(), "ratio": self.ratio, "holds": self.holds}
