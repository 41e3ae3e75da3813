"""Compare CPU times on a machine with varying speed.

Alternatives are measured in turn, round after round. A fixed computation, the yardstick, is timed before and after each
measurement, and a time counts in multiples of it: it becomes what it would be at the machine's best speed. A figure and
its alternative are compared within each round. The figure is the median of the rounds, beside the interval in which
this median lies with 95 % probability. If the bound is inside, the figure is noisy: it may be on either side.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from tests.slow.benchmarks.figure import Figure

# The environment variable with the best time of the yardstick at the start of the run, in milliseconds.
REFERENCE = "BENCHMARK_YARDSTICK"

STICK = 10_000  # turns of the yardstick

ENOUGH = 5  # rounds that a figure needs

MOST_NOISE = 0.2  # width of the interval, as a share of the figure, above which one without a bound is noisy

Round: TypeAlias = Mapping[str, float]  # the numbers of a round, by run

# A number of a round: that of a run, or computed from several.
Value: TypeAlias = "str | Callable[[Round], float]"


class Rounds(list[dict[str, float]]):
    """The rounds that :func:`in_turn` made."""

    def figure(self, name: str, ours: Value, unit: str, alternative: str = "", beside: Value = "", **of: Any) -> Figure:
        """The figure of a number, beside that of an alternative if there is one. `of` are further fields of it."""
        own = self._values(ours)
        figure = Figure(name, statistics.median(own), unit, alternative, **of)
        if alternative:
            other = self._values(beside)
            ratios = [one / two for one, two in zip(own, other) if two]
            figure = figure._replace(
                beside=statistics.median(other), paired=statistics.median(ratios) if ratios else None
            )
            if figure.relative or figure.bound is None:
                own = ratios or own
        return judged(figure, own)

    def _values(self, value: Value) -> list[float]:
        return [each[value] if isinstance(value, str) else value(each) for each in self]


def judged(figure: Figure, values: Sequence[float]) -> Figure:
    """The figure with the interval of the median of these values, and whether it is noisy."""
    least, most = interval(values)
    if figure.bound is None:
        is_noisy = most - least > MOST_NOISE * statistics.median(values)
    else:
        is_noisy = least <= figure.bound <= most and least < most
    return figure._replace(least=least, most=most, noisy=is_noisy or len(values) < ENOUGH)


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Where the median of many more such values lies with 95 % probability."""
    ordered, count = sorted(values), len(values)
    margin = 0.98 * math.sqrt(count)  # of the rank, by the binomial distribution
    return ordered[max(0, round(count / 2 - margin))], ordered[min(count - 1, round(count / 2 + margin))]


def work(turns: int) -> int:
    """A computation that takes time in proportion to the number of turns."""
    number = 0
    for turn in range(turns):
        number = (number * 31 + turn) & 0xFFFFFF
    return number


def yardstick() -> float:
    """Milliseconds of CPU time that the fixed computation takes now."""
    work(1_000)  # warms the caches
    begun = time.thread_time_ns()
    work(STICK)
    return (time.thread_time_ns() - begun) / 1e6


def calibrate(seconds: float) -> float:
    """The best time of the yardstick within so many seconds."""
    best, end = yardstick(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, yardstick())
    return best


def reference() -> float:
    """The best time of the yardstick: measured at the start of the run, else within one second."""
    if not os.environ.get(REFERENCE):
        os.environ[REFERENCE] = f"{calibrate(1.0):.4f}"
    return float(os.environ[REFERENCE])


def in_turn(
    runs: Mapping[str, Callable[[], float]],
    seconds: float,
    stick: Callable[[], float] = yardstick,
    plain: Collection[str] = (),
    clock: Callable[[], float] = time.monotonic,
) -> Rounds:
    """Make each run once per round, until the time is over; at least one round.

    Args:
        runs: What to measure; each returns its number.
        seconds: No round begins after this time.
        stick: Times the yardstick on the CPU that does the work.
        plain: Runs whose numbers do not depend on the machine's speed.
        clock: In seconds.
    """
    best, end = reference(), clock() + seconds
    rounds, before = Rounds(), stick()
    while not rounds or clock() < end:
        values = {}
        for name, run in runs.items():
            number, after = run(), stick()
            values[name] = number if name in plain else number * best / ((before + after) / 2)
            before = after
        rounds.append(values)
    return rounds


def milliseconds(call: Callable[[], object], times: int = 1) -> float:
    """CPU milliseconds of this thread for one of so many calls."""
    begun = time.thread_time_ns()
    for _ in range(times):
        call()
    return (time.thread_time_ns() - begun) / 1e6 / times
