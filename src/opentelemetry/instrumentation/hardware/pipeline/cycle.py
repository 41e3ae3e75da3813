"""Cycle: one Snapshot per collection, shared by every instrument of a MeterProvider."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from opentelemetry.instrumentation.hardware.model import Metric, Snapshot, Values
from opentelemetry.instrumentation.hardware.pipeline.collector import Collector, Marks
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_READERS = 64
"""Readers whose windows are remembered; those that did not come for the longest are forgotten first."""


class Cycle(Generic[T]):
    """Hands every instrument its part of the same Snapshot, until one comes back for the next.

    An instrument that was served already means that a new collection has begun: no clock, no hook. The SDK runs the
    collections of one provider one after the other, each from the first instrument on, so no lock is needed either.
    All that is costly is done when a collection begins.

    Args:
        make: what the instruments are handed of a Snapshot, by metric.
        clock: monotonic seconds.
    """

    def __init__(
        self, make: Callable[[Snapshot], Mapping[Metric, Sequence[T]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._opened: tuple[Collector, CollectionSchedule] | None = None
        self._begun: tuple[Collector, CollectionSchedule] | None = None
        self._readers: dict[int, Marks] = {}
        self._nothing: dict[Metric, Sequence[T]] = {}
        self._parts: dict[Metric, Sequence[T]] = {}
        self._snapshot = Snapshot({})
        self._complained = False

    def open(self, board: Collector, rhythm: CollectionSchedule) -> None:
        """From the next collection on, hand out what this board collects."""
        self._opened, self._complained = (board, rhythm), False

    def close(self) -> None:
        """From now on, hand out nothing."""
        self._opened = None

    def __contains__(self, metric: Metric) -> bool:
        """Whether a metric has an instrument."""
        return metric in self._nothing

    def callback(self, metric: Metric) -> Callable[[object], Sequence[T]]:
        """The callback of a metric's instrument: what the metric has in the collection that the call belongs to. It
        never raises.
        """
        self._nothing[metric] = ()
        return partial(self._part, metric)

    def _part(self, metric: Metric, _: object) -> Sequence[T]:
        try:
            part = self._parts.pop(metric)
        except KeyError:  # it was served already
            self._begin(threading.get_ident())
            part = self._parts.pop(metric, ())
        return part if self._opened is self._begun else ()  # else the next collection would begin where this one was

    def _begin(self, reader: int) -> None:
        self._parts = dict(self._nothing)
        opened = self._begun = self._opened
        if opened is None:
            return
        board, rhythm = opened
        try:
            self._snapshot = board.collect(self._marks(reader))
            rhythm.note(reader, self._clock())
            self._parts.update(self._make(self._snapshot))
        except Exception:
            if not self._complained:
                self._complained = True
                _LOG.exception("Hardware telemetry failed to collect; it is said once")

    def newest(self) -> Values:
        """The values of the newest collection."""
        return self._snapshot.values

    def _marks(self, reader: int) -> Marks:
        """Where the windows of a reader ended; the newest reader is the last in the dict."""
        marks = self._readers.pop(reader, None)
        if marks is None:  # a scrape may have a new thread each time: it goes on where the newest collection ended
            marks = dict(next(reversed(self._readers.values()), {}))
        self._readers[reader] = marks
        if len(self._readers) > _READERS:
            del self._readers[next(iter(self._readers))]
        return marks
