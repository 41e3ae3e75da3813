"""The error of a span's energy by its duration, on simulated powers and with the periods of real counters.

``python -m tests.slow.benchmarks.span_errors`` prints the tables in docs/spans.md. A seed fixes their numbers.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from tests.support.virtual import Program

from opentelemetry.instrumentation.hardware import catalog as c

# Seconds between two updates of the energy counter. Those of real GPUs are between these.
PERIODS = (0.02, 0.1)

_BEGIN = 1000.0
_SPANS = 200


class Power:
    """A power that takes one level after the other.

    Args:
        levels: Seconds and watts.
    """

    def __init__(self, levels: Sequence[tuple[float, float]]) -> None:
        self.times = [*accumulate((seconds for seconds, _ in levels), initial=_BEGIN)]
        self.watts = [watts for _, watts in levels]
        steps = [watts * (end - begin) for watts, (begin, end) in zip(self.watts, pairwise(self.times))]
        self.energy = [*accumulate(steps, initial=0.0)]

    def joules(self, now: float) -> float:
        """The energy since the beginning."""
        at = min(bisect_right(self.times, now) - 1, len(self.watts) - 1)
        return self.energy[at] + self.watts[at] * (now - self.times[at])


def independent(duration: float, period: float) -> tuple[float, float, float]:
    """Spans at random times on a power that jumps between 100 and 700 W, every 0.3 s on average.

    Returns:
        The share of the spans that have an energy, and of those the median and the 95th percentile of the error.
    """
    dice = random.Random(1)
    number = min(_SPANS, round(600.0 / duration))
    spans, now = [], _BEGIN + 20.0
    for _ in range(number):
        now += dice.uniform(1.0, 2.0)
        spans.append((now, now + _about(duration, dice)))
        now = spans[-1][1]
    levels = [(dice.expovariate(1 / 0.3), dice.uniform(100.0, 700.0)) for _ in range(round(4 * (now - _BEGIN)))]
    power = Power(levels)
    program = Program(power.joules, period)
    errors = []
    for begin, end in spans:
        found = program.attributes(begin, end).get(c.SPAN_ENERGY.name)
        if found is not None:
            errors.append(abs(found / (power.joules(end) - power.joules(begin)) - 1.0))
    errors.sort()
    return len(errors) / number, errors[len(errors) // 2], errors[int(0.95 * len(errors))]


def following(duration: float, period: float) -> tuple[float, float]:
    """Spans that cause the load: 700 W while one runs, 100 W between them.

    Returns:
        The share of the spans that have an energy, and their sum divided by the true one.
    """
    dice = random.Random(1)
    plan = [(_about(duration, dice), dice.uniform(1.0, 3.0) * max(0.2, duration)) for _ in range(_SPANS)]
    levels = [(20.0, 100.0), *(level for length, pause in plan for level in ((length, 700.0), (pause, 100.0)))]
    program = Program(Power(levels).joules, period)
    begin, found = _BEGIN + 20.0, []
    for length, pause in plan:
        energy = program.attributes(begin, begin + length).get(c.SPAN_ENERGY.name)
        if energy is not None:
            found.append(energy / (700.0 * length))
        begin += length + pause
    return len(found) / _SPANS, sum(found) / len(found) if found else 0.0


def _about(duration: float, dice: random.Random) -> float:
    """Return a similar duration: the ends of the spans must not coincide with readings."""
    return duration * dice.uniform(0.9, 1.1)


def tables() -> str:
    """Return the tables of the documentation."""
    rows = ["| duration | median error | 95 % of spans below |", "|---|---|---|"]
    for duration in (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0):
        found = [independent(duration, period) for period in PERIODS]
        middle, high = (" to ".join(f"{each[at]:.2%}" for each in found) for at in (1, 2))
        rows.append(f"| {duration:g} s | {middle} | {high} |")
    rows += ["", "| duration | measured, of the true energy | spans that have an energy |", "|---|---|---|"]
    for duration in (0.12, 0.2, 0.3, 0.5, 1.0, 2.0):
        both = [following(duration, period) for period in PERIODS]
        measured, known = (" to ".join(f"{each[at]:.0%}" for each in both) for at in (1, 0))
        rows.append(f"| {duration:g} s | {measured} | {known} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(tables())
