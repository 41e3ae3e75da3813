"""View: all numbers of one moment, with what a person wants beside them: rates, and what is missing and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware.catalog import CATALOG, HW_GPU_INFO, HW_ID
from opentelemetry.instrumentation.hardware.model import Attributes, Kind, Metric, Number, Snapshot
from opentelemetry.instrumentation.hardware.pipeline.collector import Marks
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session

_FIRST, _NEXT = 2.0, 0.5
"""Seconds that the first and every further reading may take; a source that hangs is then shown as what it is."""

Line: TypeAlias = "tuple[Metric, frozenset[tuple[str, str | int]]]"


class View(NamedTuple):
    """What was seen.

    Attributes:
        time: Unix seconds.
        window: seconds that means, shares and rates are about.
        snapshot: the numbers.
        rates: of each counter that moved, its increase per second.
        unsupported: what this machine does not say and what fails, a sentence each.
        pid: the observed process.
    """

    time: float
    window: float
    snapshot: Snapshot
    rates: Mapping[Line, float]
    unsupported: tuple[str, ...]
    pid: int

    def of_process(self) -> View:
        """The same with the numbers of the process alone, what the GPUs are that it uses, and why it says nothing."""
        values = self.snapshot.values
        kept = {metric: points for metric, points in values.items() if metric.name.startswith("process.")}
        used = {attributes[HW_ID] for points in kept.values() for _, attributes in points if HW_ID in attributes}
        gpus = [point for point in values.get(HW_GPU_INFO, ()) if point[1][HW_ID] in used]
        missing = tuple(sentence for sentence in self.unsupported if sentence.startswith("process: "))
        return self._replace(snapshot=Snapshot({HW_GPU_INFO: gpus, **kept} if gpus else kept), unsupported=missing)

    def rows(self) -> list[tuple[Metric, list[tuple[Number, Attributes]]]]:
        """The metrics in the order of the catalogue, others behind."""
        order = {metric: at for at, metric in enumerate(CATALOG)}
        return sorted(self.snapshot.values.items(), key=lambda row: order.get(row[0], len(order)))


def line(metric: Metric, attributes: Attributes) -> Line:
    """What tells a series from all others."""
    return metric, frozenset(attributes.items())


def told(sentence: str, most: int) -> tuple[str, str]:
    """What is missing and why, as a subject and what is said of it.

    Args:
        sentence: as sources say it: ``rows of devices: reason``.
        most: letters that a subject may have. A longer list of rows stands behind the reason, and its devices, where
            they are named, are the subject; else there is none.
    """
    subject, _, why = sentence.partition(": ")
    if why and len(subject) <= most:
        return subject, why
    if not why or not subject.startswith(("hw.", "process.", "system.")):
        return "", sentence
    rows, _, devices = subject.rpartition(" of ")
    short = len(devices) <= most
    where = f"{devices}: " if rows and not short else ""
    return devices if rows and short else "", f"{where}{why}: {rows or subject}"


class Viewer:
    """Looks at a Session now and then; each look is about the time since the one before.

    Args:
        session: a started session. Its other readers are not disturbed.
        pid: the process that the session observes.
    """

    def __init__(self, session: Session, pid: int) -> None:
        self._session = session
        self._pid = pid
        self._marks: Marks = {}
        session.read_now(_FIRST)
        self._before = session.collector.collect(self._marks)

    def look(self) -> View:
        """Read everything once more and see."""
        self._session.read_now(_NEXT)
        snapshot = self._session.collector.collect(self._marks)
        self.stay()
        before, self._before = self._before, snapshot
        elapsed = _elapsed(before, snapshot)
        return View(time.time(), elapsed, snapshot, _rates(before, snapshot), _missing(self._session), self._pid)

    def stay(self) -> None:
        """Keep the sources sampling while nobody looks."""
        self._session.schedule.note(threading.get_ident(), self._session.clock())


def _elapsed(before: Snapshot, after: Snapshot) -> float:
    spans = [
        after.read[name] - start for name, start in before.read.items() if start and after.read.get(name, 0.0) > start
    ]
    return sum(spans) / len(spans) if spans else 0.0


def _rates(before: Snapshot, after: Snapshot) -> dict[Line, float]:
    """The increase per second of each counter that moved: of the time between its own two readings."""
    old = dict(_counters(before))
    found = {}
    for key, (at, value) in _counters(after):
        begin, start = old.get(key, (at, value))
        if at > begin and value > start:
            found[key] = (value - start) / (at - begin)
    return found


def _counters(snapshot: Snapshot) -> Iterator[tuple[Line, tuple[float, Number]]]:
    """The counters, each with the time of its reading."""
    for at, values in snapshot.parts:
        for metric, points in values.items():
            if metric.kind is Kind.COUNTER:
                for value, attributes in points:
                    yield line(metric, attributes), (at, value)


def _missing(session: Session) -> tuple[str, ...]:
    found = []
    for runner in session.runners:
        problem, source = runner.health(session.clock()), runner.source
        if problem is not None:
            fix = f"; {problem.fix}" if problem.fix else ""
            found.append(f"{runner.name}: {problem.reason}{fix}")
        elif runner.state is State.STARTING:
            found.append(f"{runner.name}: it has not answered yet")
        if source is not None:
            found += source.unsupported
    return tuple(found)
