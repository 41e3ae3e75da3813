"""The error of a span's energy by its duration, on a simulated power that jumps at random.

``python -m tests.benchmarks.span_errors`` prints the table in docs/spans.md. A seed fixes its numbers.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Series
from opentelemetry.instrumentation.hardware.pipeline.ledger import INTERVAL, Ledger
from opentelemetry.instrumentation.hardware.pipeline.rows import ENERGY

DURATIONS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0)
"""Seconds."""

_LENGTH = 500.0
_EPOCH = 1e9
_ENERGY = Series(c.HW_ENERGY, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"})


class Power:
    """A power that takes a random level of 100 to 700 W for an exponentially distributed time of 0.3 s."""

    def __init__(self, seed: int) -> None:
        dice = random.Random(seed)
        self.times = [0.0]
        while self.times[-1] < _LENGTH + 1:
            self.times.append(self.times[-1] + dice.expovariate(1 / 0.3))
        self.watts = [dice.uniform(100.0, 700.0) for _ in self.times]
        steps = [watts * (end - begin) for watts, (begin, end) in zip(self.watts, pairwise(self.times))]
        self.energy = [0.0, *accumulate(steps)]

    def joules(self, now: float) -> float:
        """The energy since the beginning."""
        at = bisect_right(self.times, now) - 1
        return self.energy[at] + self.watts[at] * (now - self.times[at])


def errors(seed: int = 1) -> Iterator[tuple[float, float, float]]:
    """Yield durations, and the median and the 95th percentile of the relative error of their energy.

    Each span ends just now: the time since the newest reading is extrapolated.
    """
    power, dice, now = Power(seed), random.Random(seed), [0.0]
    found: dict[float, list[float]] = {duration: [] for duration in DURATIONS}
    ledger = Ledger(lambda: now[0], lambda: _EPOCH + now[0])
    ledger.use(frozenset({"GPU-1"}))
    while now[0] < _LENGTH:
        ledger.add([_ENERGY(power.joules(now[0]))])
        assert ledger.rows is not None
        end = now[0] + dice.uniform(0.0, INTERVAL)
        last = ledger.rows.place(_EPOCH + end)
        for duration in DURATIONS:
            first = ledger.rows.place(_EPOCH + end - duration)
            if first is not None and last is not None:
                exact = power.joules(end) - power.joules(end - duration)
                measured = ledger.rows.increase(ENERGY, first, last)
                found[duration].append(abs(measured / exact - 1.0))
        now[0] += INTERVAL
    for duration, each in found.items():
        each.sort()
        yield duration, each[len(each) // 2], each[int(0.95 * len(each))]


def table() -> str:
    """Return the table of the documentation."""
    rows = [f"| {duration:g} s | {middle:.2%} | {high:.2%} |" for duration, middle, high in errors()]
    return "\n".join(("| duration | median error | 95 % of spans below |", "|---|---|---|", *rows))


if __name__ == "__main__":
    print(table())
