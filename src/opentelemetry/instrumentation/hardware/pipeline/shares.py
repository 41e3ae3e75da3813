"""Shares: divides the energy of the accelerators among the spans that run at the same time.

Each joule belongs to one span, or to none: the shares of all spans and what is unattributed add up to the energy. It
is divided among the leaf spans that run, which are those without an open child.

In equal parts, one number is enough: the sum of the joules per leaf. A share is its increase while the span is a leaf.
By tokens, which are known when a span ends, the time is cut into slots where spans begin and end, at most ten per
second. A slot has the energy that is not claimed yet, and how long the spans ran in it that have not claimed yet. A
span that ends claims its part of each slot; the last one takes the rest.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from math import isnan
from typing import Any, Final

from opentelemetry.instrumentation.hardware.pipeline.ledger import INTERVAL
from opentelemetry.instrumentation.hardware.pipeline.rows import ENERGY, HasRows, Rows
from opentelemetry.instrumentation.hardware.settings import Config

_MAX_SLOTS: Final = 600
"""If there are more slots, each two become one, so that the end of a span takes at most 0.2 ms."""

_MIN_PRESENCE: Final = 1e-6
"""Seconds. If all other spans ran less in a slot, they have claimed already, and this is a rounding error."""


class Share:
    """The share of one span.

    Attributes:
        parent: The share of its parent, if that was open; None after the end.
        children: How many of its children are open.
        since: When it became a leaf; None if it is none.
        per_leaf: The sum of the joules per leaf then.
        seconds: How long it was a leaf before that.
        energy: What it has claimed, in joules.
        is_weighted: Whether it was weighted by its tokens.
        owner: The span.
    """

    __slots__ = ("children", "energy", "is_weighted", "owner", "parent", "per_leaf", "seconds", "since")

    def __init__(self, parent: Share | None) -> None:
        self.parent = parent
        self.children = 0
        self.since: float | None = None
        self.per_leaf = 0.0
        self.seconds = self.energy = 0.0
        self.is_weighted = False
        self.owner: weakref.ref[object] | None = None


class _Slot:
    """A part of the time, in monotonic seconds; energy in joules; time that spans ran in it, summed over them."""

    __slots__ = ("begin", "end", "energy", "presence")

    def __init__(self, begin: float) -> None:
        self.begin = self.end = begin
        self.energy = self.presence = 0.0


class Shares:
    """The shares of the spans of this process.

    Args:
        ledgers: Returns the ledgers of all sources.
        by_tokens: Whether shares are in proportion to tokens; else they are equal.
        clock: Monotonic seconds.
        wall_clock: Seconds since the epoch.

    Attributes:
        unattributed: Joules that no span has claimed or can claim any more.
    """

    def __init__(
        self,
        ledgers: Callable[[], Iterable[HasRows]],
        by_tokens: bool,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.unattributed = 0.0
        self._energy = _Energy(ledgers, wall_clock)
        self._by_tokens = by_tokens
        self._clock = clock
        self._pid = os.getpid()
        self._lock: Any = threading.RLock()  # Any: typeshed has no _is_owned()
        self._open: dict[int, Share] = {}  # by the ID of the span
        self._leaves = 0
        self._per_leaf = 0.0
        self._lost: deque[int] = deque()
        self._slots = deque([_Slot(clock())])
        self._tokens = self._seconds = 0.0  # of the spans that ended

    @classmethod
    def of(
        cls, config: Config, ledgers: Callable[[], Iterable[HasRows]], clock: Callable[[], float] = time.monotonic
    ) -> Shares | None:
        """Return the shares that the settings want; None if they want none."""
        method = config.spans_shares or "off"
        return None if method == "off" else cls(ledgers, method == "tokens", clock)

    def begin(self, span: object, span_id: int, parent_id: int | None) -> None:
        """Begin the share of a span. It is released if the span is forgotten without an end.

        A span that a signal handler or a finalizer begins in the middle of this has none.
        """
        if self._is_lock_lost() or self._lock._is_owned():
            return
        with self._lock:
            self._release_lost()
            now = self._advance()
            parent = None if parent_id is None else self._open.get(parent_id)
            if parent is not None:
                if not parent.children:
                    self._claim(parent, now)
                parent.children += 1
            share = self._open[span_id] = Share(parent)
            share.owner = weakref.ref(span, lambda _: self._lost.append(span_id))  # no lock: any thread may collect it
            self._become_leaf(share, now)
            self._cut(now)

    def end(self, span_id: int, tokens: float = 0.0, is_kept: bool = True) -> Share | None:
        """End the share of a span.

        Args:
            span_id: Its ID.
            tokens: How many tokens it processed; 0 if unknown: then it counts as one with the mean tokens per second.
            is_kept: Otherwise, the share is given to the parent, or is unattributed if there is none.

        Returns:
            The share; None if it was not begun, or if a signal handler or a finalizer ends it in the middle of this.
        """
        if self._is_lock_lost():
            return None
        if self._lock._is_owned():
            self._lost.append(span_id)
            return None
        with self._lock:
            return self._end(span_id, tokens, is_kept)

    def _end(self, span_id: int, tokens: float, is_kept: bool) -> Share | None:
        share = self._open.pop(span_id, None)
        if share is None:
            return None
        now = self._advance()
        share.owner = None
        if share.since is not None:
            self._claim(share, now, tokens)
        parent, share.parent = share.parent, None  # else a child that is open would keep all its ancestors
        if parent is not None:
            parent.children -= 1
            if not parent.children and parent.owner is not None:
                self._become_leaf(parent, now)
        if not is_kept and parent is not None and parent.owner is not None:
            parent.energy += share.energy
        elif not is_kept:
            self.unattributed += share.energy
        self._cut(now)
        return share

    def advance(self) -> None:
        """Take over the energy up to now. Called by our threads."""
        if self._pid == os.getpid():
            with self._lock:
                self._release_lost()
                self._advance()

    def _is_lock_lost(self) -> bool:
        """Whether a thread that has ended may hold the lock: in a forked child, and at the end of the interpreter."""
        return self._pid != os.getpid() or sys.is_finalizing()

    def _release_lost(self) -> None:
        while self._lost:
            self._end(self._lost.popleft(), 0.0, is_kept=False)

    def _advance(self) -> float:
        now, slot = self._clock(), self._slots[-1]
        energy = self._energy.increase()
        if not self._leaves:
            self.unattributed += energy
        elif self._by_tokens:
            slot.energy += energy
            slot.presence += self._leaves * (now - slot.end)
        else:
            self._per_leaf += energy / self._leaves
        slot.end = now
        return now

    def _cut(self, now: float) -> None:
        """Begin another slot, if the last one is long enough, and drop those of which everything is claimed."""
        slots = self._slots
        if not self._by_tokens:
            return
        if now - slots[-1].begin >= INTERVAL:
            slots.append(_Slot(now))
        while len(slots) > 1 and slots[0].presence <= _MIN_PRESENCE:
            self.unattributed += slots.popleft().energy
        if len(slots) > _MAX_SLOTS:
            self._slots = deque(_merged(slots))

    def _become_leaf(self, share: Share, now: float) -> None:
        share.since, share.per_leaf = now, self._per_leaf
        self._leaves += 1

    def _claim(self, share: Share, now: float, tokens: float = 0.0) -> None:
        """Add to a share what belongs to the time since it became a leaf."""
        since, share.since = share.since, None
        assert since is not None
        self._leaves -= 1
        share.seconds += now - since
        if self._by_tokens:
            self._claim_slots(share, since, tokens)
        else:
            share.energy += self._per_leaf - share.per_leaf

    def _claim_slots(self, share: Share, since: float, tokens: float) -> None:
        rate = expected = 1.0
        if self._tokens:
            rate = expected = self._tokens / self._seconds
        if tokens and share.seconds:
            rate = tokens / share.seconds
            expected = expected if self._tokens else rate
            share.is_weighted = True
            self._tokens += tokens
            self._seconds += share.seconds
        for slot in reversed(self._slots):
            if slot.end <= since:
                break
            present = slot.end - (slot.begin if slot.begin > since else since)
            others = slot.presence - present
            if others <= _MIN_PRESENCE:
                part = slot.energy
            else:
                part = slot.energy * present * rate / (present * rate + others * expected)
            share.energy += part
            slot.energy -= part
            slot.presence -= present


class _Energy:
    """The energy of the accelerators in use."""

    def __init__(self, ledgers: Callable[[], Iterable[HasRows]], wall_clock: Callable[[], float]) -> None:
        self._ledgers = ledgers
        self._wall_clock = wall_clock
        self._last: dict[HasRows, tuple[Rows, float, float]] = {}  # the rows, the total and its time

    def increase(self) -> float:
        """Return the joules since the last call. What is unknown now is counted when it is known."""
        now, increase = self._wall_clock(), 0.0
        for ledger in self._ledgers():
            rows = ledger.rows
            place = rows.place(now) if rows is not None and rows.devices else None
            if rows is None or place is None:
                continue
            total = rows.total(ENERGY, place)
            if isnan(total):
                continue
            known, last, before = self._last.get(ledger, (rows, total, now))
            if known is not rows:  # other devices are in use, or the clock was set
                place = rows.place(before)
                last = total if place is None else rows.total(ENERGY, place)
            if total >= last:
                increase += total - last
                self._last[ledger] = rows, total, now
            else:  # the last total was extrapolated, and is too high; or it is unknown in these rows
                self._last[ledger] = rows, total if isnan(last) else last, now
        return increase


def _merged(slots: deque[_Slot]) -> Iterable[_Slot]:
    """Return half as many slots, each in place of two."""
    pairs = iter(slots)
    for first in pairs:
        second = next(pairs, None)
        if second is not None:
            first.end = second.end
            first.energy += second.energy
            first.presence += second.presence
        yield first
