"""Cycle: one Snapshot per collection, shared by every instrument of a MeterProvider."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from opentelemetry.instrumentation.hardware.board import Board, Marks
from opentelemetry.instrumentation.hardware.model import Metric, Snapshot, Values
from opentelemetry.instrumentation.hardware.rhythm import Rhythm

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

_READERS = 64
"""Readers whose windows are remembered; those that did not come for the longest are forgotten first."""


class Cycle(Generic[T]):
    """Hands every instrument its part of the same Snapshot, until one comes back for the next.

    An instrument that was served already, or another thread, means that a new collection has begun: no clock, no
    hook. The SDK runs the collections of one provider one after the other, so no lock is needed either. All that is
    costly is done when a collection begins.

    Args:
        make: what the instruments are handed of a Snapshot, by metric.
        clock: monotonic seconds.
    """

    def __init__(
        self, make: Callable[[Snapshot], Mapping[Metric, Sequence[T]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._clock = clock
        self._opened: tuple[Board, Rhythm] | None = None
        self._readers: dict[int, Marks] = {}
        self._served: set[Metric] = set()
        self._reader: int | None = None
        self._snapshot = Snapshot({})
        self._parts: Mapping[Metric, Sequence[T]] = {}
        self._complained = False

    def open(self, board: Board, rhythm: Rhythm) -> None:
        """From the next collection on, hand out what this board collects."""
        self._opened, self._reader, self._complained = (board, rhythm), None, False

    def close(self) -> None:
        """From the next collection on, hand out nothing."""
        self._opened, self._reader = None, None

    def part(self, metric: Metric, _: object = None) -> Sequence[T]:
        """What a metric has in the collection that this call belongs to; what the SDK calls. Never raises."""
        reader = threading.get_ident()
        if metric in self._served or reader != self._reader:
            self._begin(reader)
        self._served.add(metric)
        return self._parts.get(metric, ())

    def _begin(self, reader: int) -> None:
        self._served.clear()
        self._parts = {}
        opened, self._reader = self._opened, reader
        if opened is None:
            return
        board, rhythm = opened
        try:
            self._snapshot = board.collect(self._marks(reader))
            rhythm.note(reader, self._clock())
            self._parts = self._make(self._snapshot)
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
