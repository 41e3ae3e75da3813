"""Collector: all sources into one frozen Snapshot, and who of them is ill."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import filterfalse
from typing import TypeAlias

from opentelemetry.instrumentation.hardware.catalog import OWN_CPU_TIME, SOURCE, SOURCE_READ_DURATION, SOURCE_UP
from opentelemetry.instrumentation.hardware.model import (
    Attributes,
    Metric,
    Number,
    Problem,
    Series,
    Snapshot,
    Values,
)
from opentelemetry.instrumentation.hardware.pipeline.runner import Ends, SourceRunner, State
from opentelemetry.instrumentation.hardware.settings import Config

_Points: TypeAlias = "list[tuple[Number, Attributes]]"

_OWN = (OWN_CPU_TIME, SOURCE_READ_DURATION, SOURCE_UP)

Marks: TypeAlias = "dict[str, Ends]"
"""Where each source's last window ended, for one reader."""


class Collector:
    """What all sources say. Nothing here waits.

    Args:
        runners: one for each source.
        read: the rows that these have read so far, which they add to.
        config: which rows are wanted.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        runners: Sequence[SourceRunner],
        read: Mapping[Metric, None],
        config: Config,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runners = runners
        self._clock = clock
        self._wants = cache(config.wants)
        self._read = read
        self._count = -1
        self._rows: list[Metric] = []
        self._known: set[Metric] = set()
        self._unwanted: set[Metric] = set()

    def collect(self, marks: Marks) -> Snapshot:
        """All values since the marks, which are moved on. The first of two sources that claim a series has it."""
        now = self._clock()
        values: Values = {}
        own: Values = defaultdict(list)
        problems: list[Problem] = []
        parts: list[tuple[float, Values]] = []
        for runner in self.runners:
            if runner.state is State.ABSENT:
                continue
            found, marks[runner.name] = runner.values(marks.get(runner.name), now)
            problem = runner.health(now)
            if problem is not None:
                problems.append(problem)
            parts += found
            for _, part in found:
                for series in self._add(values, part):
                    problems.append(Problem(runner.name, f"{series!r} is reported by another source already"))
            _vital(own, runner, problem)
        own[OWN_CPU_TIME].append((sum([runner.cpu_time for runner in self.runners]), {}))
        self._add(values, own)
        parts.append((now, own))
        return Snapshot(values, tuple(problems), {name: end[0] for name, end in marks.items()}, parts)

    def _add(self, values: Values, part: Values) -> list[Series]:
        """Add the rows that are wanted. Series that were there already are left out, and returned."""
        twice: list[Series] = []
        if values.keys().isdisjoint(part):
            values.update(part)
        else:
            for metric, points in part.items():
                before = values.get(metric)
                values[metric] = points if before is None else before + _others(metric, points, before, twice)
        if not self._known.issuperset(part):
            self._unwanted.update(filterfalse(self._wants, part))
            self._known.update(part)
        for metric in self._unwanted.intersection(part):
            del values[metric]
        return twice

    def watch(self) -> None:
        """Notice who hangs; called from a runner's own thread, never from a callback."""
        now = self._clock()
        for runner in self.runners:
            if runner.busy_since is not None:
                runner.watch(now)

    def metrics(self) -> list[Metric]:
        """The rows that are wanted and have been read so far, and those about ourselves; the same list until there are
        more.
        """
        count = len(self._read)
        if count != self._count:
            self._count, self._rows = count, [*filter(self._wants, (*self._read, *_OWN))]
        return self._rows


def _others(metric: Metric, points: _Points, before: _Points, twice: list[Series]) -> _Points:
    """The points whose series are not among those before; the others' series are added to ``twice``."""
    known = {Series(metric, attributes) for _, attributes in before}
    found = []
    for value, attributes in points:
        series = Series(metric, attributes)
        if series in known:
            twice.append(series)
        else:
            found.append((value, attributes))
    return found


def _vital(own: Values, runner: SourceRunner, problem: Problem | None) -> None:
    """Whether a source is up, and how long it takes."""
    which = {SOURCE: runner.name}
    if runner.state is State.UP or problem is not None:
        own[SOURCE_UP].append((int(problem is None), which))
    if runner.duration is not None and runner.state is State.UP:
        own[SOURCE_READ_DURATION].append((runner.duration, which))
