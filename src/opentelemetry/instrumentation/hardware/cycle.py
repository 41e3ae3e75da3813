"""Cycle: one Snapshot per collection, shared by every instrument of a MeterProvider."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from opentelemetry.instrumentation.hardware.board import Board, Marks
from opentelemetry.instrumentation.hardware.model import Metric, Snapshot, Values
from opentelemetry.instrumentation.hardware.rhythm import Rhythm

_READERS = 64
"""Readers whose windows are remembered; those that did not come for the longest are forgotten first."""


class Cycle:
    """Hands every instrument the same Snapshot, until one comes back for the next.

    An instrument that was served already, or another thread, means that a new collection has begun: no clock, no
    hook. The SDK runs the collections of one provider one after the other, so no lock is needed either.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readers: dict[int, Marks] = {}
        self._served: set[Metric] = set()
        self._reader = 0
        self._snapshot = Snapshot()

    def snapshot(self, metric: Metric, board: Board, rhythm: Rhythm) -> Snapshot:
        """The Snapshot of the collection that this call belongs to."""
        reader = threading.get_ident()
        if metric in self._served or reader != self._reader or not self._served:
            self._served.clear()
            self._reader = reader
            self._snapshot = board.collect(self._marks(reader))
            rhythm.note(reader, self._clock())
        self._served.add(metric)
        return self._snapshot

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
