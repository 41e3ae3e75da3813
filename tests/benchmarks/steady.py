"""Measuring CPU time on a machine whose speed changes while one looks.

A fixed piece of work, the yardstick, stands on both sides of everything that is measured. A round during which it was
slower than it can be is thrown away and made again. What is compared is measured in turn within one round, so that what
slowness is left falls on all alike.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping

REFERENCE = "BENCHMARK_YARDSTICK"
"""The environment variable that says how fast the yardstick can be, in milliseconds; "inf": any speed will do."""

PATIENCE = 1.15
"""How much slower than its best the yardstick may be."""

_SPELL = 0.1
"""Seconds to let pass when the machine is slow."""

_ATTEMPTS = 5
"""Rounds that are made at most, for each that is wanted."""


def work(turns: int) -> int:
    """Some arithmetic."""
    number = 0
    for turn in range(turns):
        number = (number * 31 + turn) & 0xFFFFFF
    return number


def yardstick() -> float:
    """Milliseconds of CPU time for the same work as ever."""
    begun = time.thread_time_ns()
    work(10_000)
    return (time.thread_time_ns() - begun) / 1e6


def calibrate(seconds: float) -> float:
    """The best that the yardstick shows in so many seconds."""
    best, end = yardstick(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, yardstick())
    return best


def reference() -> float:
    """How fast the yardstick can be: what the whole run found out, or what a second shows."""
    if REFERENCE not in os.environ:
        os.environ[REFERENCE] = f"{calibrate(1.0):.4f}"
    return float(os.environ[REFERENCE])


def in_turn(
    runs: Mapping[str, Callable[[], float]], rounds: int, stick: Callable[[], float] = yardstick
) -> dict[str, float]:
    """The median of what each run returns, over so many rounds in which the machine was fast.

    Where it never was, over the rounds in which it was fastest.

    Args:
        runs: what to measure, by name.
        rounds: how many count.
        stick: the yardstick, of the CPU that does what is measured.
    """
    best = reference()
    made: list[tuple[float, dict[str, float]]] = []
    for _ in range(_ATTEMPTS * rounds):
        slowest = stick()
        values = {}
        for name, run in runs.items():
            values[name] = run()
            slowest = max(slowest, stick())
        made.append((slowest / best, values))
        if sum(slowness <= PATIENCE for slowness, _ in made) >= rounds:
            break
        if made[-1][0] > PATIENCE:
            threading.Event().wait(_SPELL)
    made.sort(key=lambda each: each[0])
    return {name: statistics.median(values[name] for _, values in made[:rounds]) for name in runs}


def milliseconds(call: Callable[[], object], times: int = 1) -> float:
    """CPU time of this thread for one of so many calls."""
    begun = time.thread_time_ns()
    for _ in range(times):
        call()
    return (time.thread_time_ns() - begun) / 1e6 / times
