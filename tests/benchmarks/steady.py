"""Compare CPU times on a machine with varying speed.

Alternatives are measured in turn, round after round. A fixed computation, the yardstick, is timed before, between and
after the measurements of a round. A round in which it took much longer than its best time is noisy. A figure is the
median of the quiet rounds. It is marked as noisy if fewer than half of the rounds were quiet, or fewer than five; with
fewer than five quiet rounds it is the median of all rounds.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.benchmarks.figure import Figure

REFERENCE = "BENCHMARK_YARDSTICK"
"""The environment variable with the best time of the yardstick at the start of the run, in milliseconds."""

STICK = 10_000
"""Turns of the yardstick."""

TOLERANCE = 1.15
"""A round is noisy when the yardstick took longer than this multiple of its best."""

ENOUGH = 5
"""Quiet rounds that a figure needs."""

_MOST = 25
"""Quiet rounds after which nothing more is measured."""

_PAUSE = 0.1
"""Seconds to wait after a noisy round."""


@dataclass(frozen=True)
class Measured:
    """The result of :func:`in_turn`.

    Attributes:
        medians: Of each run, over the quiet rounds, or over all rounds when there are not enough of them.
        quiet: The number of quiet rounds.
        rounds: The number of all rounds.
    """

    medians: Mapping[str, float]
    quiet: int
    rounds: int

    def __getitem__(self, run: str) -> float:
        return self.medians[run]

    @property
    def noisy(self) -> bool:
        return self.quiet < max(ENOUGH, self.rounds / 2)

    def marked(self, *figures: Figure) -> list[Figure]:
        """The figures, marked as noisy if the measurement is."""
        return [figure._replace(noisy=self.noisy) for figure in figures]


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


def slow(sticks: Iterable[float], best: float) -> bool:
    """Whether one of these times of the yardstick makes a round noisy."""
    return max(sticks) > TOLERANCE * best


def in_turn(
    runs: Mapping[str, Callable[[], float]],
    seconds: float,
    stick: Callable[[], float] = yardstick,
    most: float | None = _MOST,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """Make each run once per round, until there are enough quiet rounds or the time is over; at least one round.

    Args:
        runs: What to measure; each returns its number.
        seconds: No round begins after this time.
        stick: Times the yardstick on the CPU that does the work.
        most: Quiet rounds after which to stop; None to use all of the time.
        clock: In seconds.
    """
    best, end = reference(), clock() + seconds
    rounds: list[tuple[list[float], dict[str, float]]] = []
    quiet: list[dict[str, float]] = []
    while not rounds or (clock() < end and (most is None or len(quiet) < most)):
        sticks, values = [stick()], {}
        for name, run in runs.items():
            values[name] = run()
            sticks.append(stick())
        best = min(best, *sticks)
        rounds.append((sticks, values))
        quiet = [values for sticks, values in rounds if not slow(sticks, best)]
        if slow(sticks, best) and clock() < end:
            threading.Event().wait(_PAUSE)
    used = quiet if len(quiet) >= ENOUGH else [values for _, values in rounds]
    medians = {name: statistics.median(values[name] for values in used) for name in runs}
    return Measured(medians, len(quiet), len(rounds))


def milliseconds(call: Callable[[], object], times: int = 1) -> float:
    """CPU milliseconds of this thread for one of so many calls."""
    begun = time.thread_time_ns()
    for _ in range(times):
        call()
    return (time.thread_time_ns() - begun) / 1e6 / times
