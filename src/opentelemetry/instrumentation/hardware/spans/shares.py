"""Shares: divides the energy of the accelerators among the spans that run at the same time.

The energy of an instant belongs to the leaf spans that run then, which are those without an open child, in equal parts.
The presence of a leaf is its time divided by the number of leaves, so the presences of all add up to the time in which
there was one. The time is cut into slots of a constant power, also where spans begin and end. A span claims its
presence in each slot; its share is the part of its own energy that its claims have in the energy of the slots. So a
share never exceeds the span's energy, and equals it if the span was alone. What no span claims is unattributed.

By tokens, which are known when a span ends, a span claims more or less than its presence, and those that end later
divide the rest.

Spans only note when they begin and end. The notes are taken over when a share is read, and by our threads, which wait
until the energy of that time has been read: what is extrapolated may be wrong.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Final, TypeAlias

from opentelemetry.instrumentation.hardware.spans.demand import INTERVAL
from opentelemetry.instrumentation.hardware.spans.rows import Rows
from opentelemetry.instrumentation.hardware.spans.timeline import Slot, Timeline

# If there are more notes, because our threads wait for a driver, a span takes them over, which takes 5 ms.
_MAX_NOTES: Final = 2000

# Seconds of the shortest slot that ends where a span begins or ends; of others, INTERVAL.
_EDGE: Final = 0.02

_has_interpreter_lock: Final[Callable[[], bool]] = getattr(sys, "_is_gil_enabled", lambda: True)  # since Python 3.13

# The end of a span: its own energy if it is known, its tokens, and whether it keeps its share.
_End: TypeAlias = "tuple[float | None, float, bool]"

# What happened to a span: when, in monotonic seconds; its ID; at its begin, the ID of its parent; its end. It is small,
# because each span makes two, and the garbage collector counts them.
_Note: TypeAlias = "tuple[float, int, int | None, _End | None]"

# Ends of spans without tokens.
_KEPT: Final[_End] = (None, 0.0, True)
_GIVEN: Final[_End] = (None, 0.0, False)
_LOST: Final[_End] = (0.0, 0.0, True)  # its energy stays unattributed


class Share:
    """The share of one span.

    Attributes:
        parent: The share of its parent, if that is open; None after the end.
        children: How many of its children are open.
        begin: When it began, in monotonic seconds.
        since: The presence of a leaf when it became one; None if it is none.
        leaf_begin: When it became a leaf.
        seconds: How long it was a leaf before that.
        energy: What it has claimed, in joules.
        given: The energy of children that are too short for values of their own.
        is_weighted: Whether it was weighted by its tokens.
        is_open: Whether it has not ended.
    """

    __slots__ = (
        "begin",
        "children",
        "energy",
        "given",
        "is_open",
        "is_weighted",
        "leaf_begin",
        "parent",
        "seconds",
        "since",
    )

    def __init__(self, parent: Share | None, slot: Slot) -> None:
        self.parent = parent
        self.children = 0
        self.begin = self.leaf_begin = slot.end
        self.since: float | None = slot.last
        self.seconds = self.energy = self.given = 0.0
        self.is_weighted = False
        self.is_open = True


class Shares:
    """The shares of the spans of this process.

    Args:
        rows: Returns the rows of all devices.
        by_tokens: Whether shares are in proportion to tokens; else they are equal.
        clock: Monotonic seconds.
        wall_clock: Seconds since the epoch.

    Attributes:
        unattributed: Joules that no span has claimed or can claim any more. They never fall.
        has_energy: Whether any energy has been read.
    """

    def __init__(
        self,
        rows: Callable[[], Iterable[Rows]],
        by_tokens: bool,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.unattributed = 0.0
        self.has_energy = False
        self.by_tokens = by_tokens
        self._clock = clock
        self._pid = os.getpid()
        self._lock: Any = threading.RLock()  # Any: typeshed has no _is_owned()
        self._notes: deque[_Note] = deque()
        self._open: dict[int, Share] = {}  # by the ID of the span, oldest first
        self._leaves = 0
        self._timeline = Timeline(rows, clock, wall_clock)
        self._claimed = 0.0
        self._tokens = self._seconds = 0.0  # of the spans that ended

    # -- any thread, also in a signal handler or a finalizer

    def begin(self, span_id: int, parent_id: int | None) -> None:
        """Note that a span began. No lock, no wait."""
        self._notes.append((self._clock(), span_id, parent_id, None))
        if len(self._notes) > _MAX_NOTES and not self._is_busy() and self._lock.acquire(False):
            try:
                self._take_over()
            finally:
                self._lock.release()

    def lose(self, span_id: int) -> None:
        """Note that a span ended and that its share is lost. No lock, no wait."""
        self._notes.append((self._clock(), span_id, None, _LOST))

    def forget(self, span_id: int, tokens: float = 0.0, is_kept: bool = True) -> None:
        """Note that a span ended, and that its share is not requested. No lock, no wait.

        Args:
            span_id: Its ID.
            tokens: As in :meth:`end`.
            is_kept: Otherwise the share is given to the parent. Without an open parent, it is unattributed.
        """
        end = (None, tokens, is_kept) if tokens else _KEPT if is_kept else _GIVEN
        self._notes.append((self._clock(), span_id, None, end))

    def end(self, span_id: int, energy: float | None = None, tokens: float = 0.0, is_kept: bool = True) -> Share | None:
        """End the share of a span.

        Args:
            span_id: Its ID.
            energy: Its own energy in joules; None if it is unknown: then that of the slots is used.
            tokens: How many tokens it processed; 0 if unknown: then it counts as one with the mean tokens per second.
            is_kept: Otherwise the share is also given to the parent.

        Returns:
            The share; None if it is unknown, if it was not begun, or if a signal handler or a finalizer ends it in the
            middle of this.
        """
        if self._is_busy():
            self.lose(span_id)
            return None
        self._acquire()
        try:
            self._take_over()
            self._advance(self._clock(), _EDGE)
            return self._end(span_id, energy, tokens, is_kept, is_requested=True)
        finally:
            self._lock.release()

    def _is_busy(self) -> bool:
        """Whether this thread is in the middle of this already, or one that had the lock has ended with the program."""
        return sys.is_finalizing() or bool(self._lock._is_owned())

    def _acquire(self) -> None:
        """Take the lock. A blocking lock is handed to a thread that waits for the interpreter lock as well.

        Then each thread of a program that computes without pause would wait for it at every span. Without an
        interpreter lock, threads that do not block would take the CPUs from the one that has the lock.
        """
        while not self._lock.acquire(not _has_interpreter_lock()):
            time.sleep(0.0)

    # -- our threads

    def advance(self) -> None:
        """Take over the notes and the energy, up to the newest reading. Called by our threads."""
        if self._pid != os.getpid():
            return
        self._acquire()
        try:
            read = self._timeline.read_until(self._clock())
            self._take_over(read)
            self._advance(read)
            pending = sum(share.energy for share in self._open.values())
            pending += sum(slot.open * slot.power for slot in self._timeline.slots)
            used = self._timeline.joules(self._timeline.slots[-1].end)
            self.unattributed = max(self.unattributed, used - self._claimed - pending)
            self.has_energy = self._timeline.slots[-1].joules > 0.0
        finally:
            self._lock.release()

    # -- with the lock

    def _take_over(self, until: float = inf) -> None:
        notes = self._notes
        while notes and notes[0][0] <= until:
            instant, span_id, parent_id, end = notes.popleft()
            parent = None if parent_id is None else self._open.get(parent_id)
            is_leaf = parent is not None and parent.since is not None
            if is_leaf and not self.by_tokens and notes and notes[0][1] == span_id and notes[0][3] is _GIVEN:
                notes.popleft()  # without this child, the parent claims the same
                continue
            self._advance(instant, _EDGE)
            if end is None:
                if parent is not None:
                    if parent.since is not None:
                        self._claim(parent, 0.0)
                    parent.children += 1
                self._open[span_id] = Share(parent, self._timeline.slots[-1])
                self._leaves += 1
            else:
                self._end(span_id, *end)

    def _end(
        self, span_id: int, energy: float | None, tokens: float, is_kept: bool, is_requested: bool = False
    ) -> Share | None:
        share = self._open.pop(span_id, None)
        if share is None:
            return None
        if share.since is not None:
            self._claim(share, tokens)
        is_known = self._timeline.is_known
        if energy is not None:
            whole = self._timeline.joules(self._timeline.slots[-1].end) - self._timeline.joules(share.begin)
            is_known = whole > 0.0
            share.energy = energy * min(1.0, share.energy / whole) if is_known else 0.0
        self._claimed += share.energy
        share.is_open = False
        parent, share.parent = share.parent, None  # else a child that is open would keep all its ancestors
        given = 0.0 if is_kept else share.energy + share.given
        if parent is None or not parent.is_open:
            if not is_requested:  # no span and no metric has it
                self._claimed -= given
        else:
            parent.children -= 1
            parent.given += given
            if not parent.children:
                slot = self._timeline.slots[-1]
                parent.since, parent.leaf_begin = slot.last, slot.end
                self._leaves += 1
        return share if is_known else None

    def _advance(self, now: float, shortest: float = INTERVAL) -> None:
        """Extend the newest slot to now, and begin another one if it is that long."""
        if self._timeline.advance(now, self._leaves, shortest):
            self._timeline.forget(next(iter(self._open.values())).begin if self._open else now)

    def _claim(self, share: Share, tokens: float) -> None:
        """Claim for a leaf its presence since it became one."""
        since, share.since = share.since, None
        assert since is not None
        self._leaves -= 1
        share.seconds += self._timeline.slots[-1].end - share.leaf_begin
        rate = expected = 1.0
        if self.by_tokens:
            rate = expected = self._tokens / self._seconds if self._tokens else 1.0
            if tokens and share.seconds:
                rate = tokens / share.seconds
                expected = expected if self._tokens else rate
                share.is_weighted = True
                self._tokens += tokens
                self._seconds += share.seconds
        for slot in reversed(self._timeline.slots):
            if slot.last <= since:
                break
            present = claim = slot.last - (slot.first if slot.first > since else since)
            if self.by_tokens and present:
                others = max(0.0, slot.open - present)
                claim = slot.free * present * rate / (present * rate + others * expected)
            share.energy += claim * slot.power
            slot.free -= claim
            slot.open -= present
