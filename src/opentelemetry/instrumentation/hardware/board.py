"""Board: all sources into one frozen Snapshot, and who of them is ill."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.model import Metric, Problem, Series, Snapshot, Values
from opentelemetry.instrumentation.hardware.poller import Poller, State
from opentelemetry.instrumentation.hardware.vocabulary import OWN_CPU_TIME, SOURCE, SOURCE_READ_DURATION, SOURCE_UP

Marks: TypeAlias = "dict[str, tuple[float, float]]"
"""Where each source's last window ended, for one reader."""


class Board:
    """What all sources say. Nothing here waits, but :meth:`fresh`.

    Args:
        pollers: one for each source.
        config: which rows are wanted.
        clock: monotonic seconds.
    """

    def __init__(self, pollers: Sequence[Poller], config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self.pollers = pollers
        self._config = config
        self._clock = clock
        self._wanted: dict[Metric, bool] = {}

    def collect(self, marks: Marks) -> Snapshot:
        """All values since the marks, which are moved on. The first of two sources that claim a series has it."""
        now = self._clock()
        values: Values = defaultdict(list)
        seen: set[Series] = set()
        problems: list[Problem] = []
        for poller in self.pollers:
            points, marks[poller.name] = poller.window(marks.get(poller.name), now)
            problem = poller.health(now)
            if problem is not None and poller.state is not State.ABSENT:
                problems.append(problem)
            for series, value in points:
                known = len(seen)
                seen.add(series)
                if len(seen) == known:
                    problems.append(Problem(poller.name, f"{series!r} is reported by another source already"))
                else:
                    values[series.metric].append((value, series.attributes))
            self._vital(values, poller, problem)
        values[OWN_CPU_TIME].append((sum(poller.cpu_time for poller in self.pollers), {}))
        wanted = {metric: found for metric, found in values.items() if self._wants(metric)}
        return Snapshot(wanted, tuple(problems), {name: end[0] for name, end in marks.items()})

    def _vital(self, values: Values, poller: Poller, problem: Problem | None) -> None:
        which = {SOURCE: poller.name}
        if poller.state is State.UP or (problem is not None and poller.state is not State.ABSENT):
            values[SOURCE_UP].append((int(problem is None), which))
        if poller.duration is not None and poller.state is State.UP:
            values[SOURCE_READ_DURATION].append((poller.duration, which))

    def _wants(self, metric: Metric) -> bool:
        wanted = self._wanted.get(metric)
        if wanted is None:
            wanted = self._wanted[metric] = self._config.wants(metric)
        return wanted

    def watch(self) -> None:
        """Notice who hangs; called from a poller's own thread, never from a callback."""
        now = self._clock()
        for poller in self.pollers:
            poller.watch(now)

    def fresh(self, seconds: float) -> None:
        """Have every source read now, and wait for all of them together at most so long. Never called from a
        callback.
        """
        deadline = self._clock() + seconds
        for poller in self.pollers:
            poller.ask()
        for poller in self.pollers:
            poller.answered(deadline - self._clock())
