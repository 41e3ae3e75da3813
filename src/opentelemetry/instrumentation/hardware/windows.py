"""Windows: how the readings between two collections become one value for each series.

Nothing is drained. A :class:`Track` keeps, for the last ten minutes, running integrals of every gauge and the
extremes of its peaks; a window is the difference of two frames. Windows of one reader lie end to end, so that their
means, each times its length, add up to the integral; windows of two readers do not disturb each other.

Each reading stands for the interval that it ends. So the first reading of a track is a baseline: it has no weight in
a mean, unless it is all there is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from opentelemetry.instrumentation.hardware.model import Kind, Number, Point, Series, Share, Window

KEPT = 600.0
"""Seconds of history. A reader that asks more seldom gets the mean of the last ten minutes."""

_INT64 = 1 << 63

_HUGE = 1e100
"""No quantity is that large."""

_HUGE_MEAN = 1e15
"""Nor a mean: once it is in a running integral, what is added later would be lost in the rounding."""


class Frame(NamedTuple):
    """The running totals as of one reading."""

    time: float
    area: array[float]
    weight: array[float]
    peaks: array[float]


class _Slot:
    """What is kept for one series: the place of its running totals, or what makes its counter steady."""

    __slots__ = ("base", "index", "last", "offset", "rule", "series", "totals", "turn")

    def __init__(self, series: Series, rule: Window | None, index: int) -> None:
        self.series = series
        self.rule = rule
        self.index = index
        self.turn = -1
        self.last: Number = 0
        self.offset: Number = 0
        self.base: Number | None = None
        self.totals = Share(0.0, 0.0)


class _Published(NamedTuple):
    """One reading, complete and never changed again: what other threads look at."""

    time: float
    lasts: list[tuple[Series, Number]]
    means: list[tuple[Series, int, Number | None]]
    peaks: list[tuple[Series, int]]
    frames: list[Frame]
    length: int


class Track:
    """The readings of one read of a source, in time. One thread takes, any thread looks.

    Args:
        from_start: counters count from their first reading instead of the device's own start.
    """

    def __init__(self, from_start: bool = False) -> None:
        self._from_start = from_start
        self._slots: dict[Series, _Slot] = {}
        self._area: array[float] = array("d")
        self._weight: array[float] = array("d")
        self._peaks: array[float] = array("d")
        self._frames: list[Frame] = []
        self._turn = 0
        self._broken = True
        self._published: _Published | None = None

    @property
    def time(self) -> float | None:
        """When the newest reading was taken."""
        published = self._published
        return None if published is None else published.time

    def interrupt(self) -> None:
        """Forget the newest reading, and give the next one no weight: what lay between them is not known."""
        self._broken = True
        self._published = None

    def take(self, now: float, points: Iterable[Point]) -> list[str]:
        """Add a reading.

        Points that cannot be exported are left out: a value that is no int64 and no finite float, a series that
        appears twice.

        Returns:
            What was wrong with the points, a sentence each.
        """
        wrong: list[str] = []
        lasts: list[tuple[Series, Number]] = []
        means: list[tuple[Series, int, Number | None]] = []
        peaks: list[tuple[Series, int]] = []
        self._turn += 1
        elapsed = 0.0 if self._broken else now - self._frames[-1].time
        broken, self._broken = self._broken, False
        slots, turn = self._slots, self._turn
        self._peaks = array("d", [-inf]) * len(self._peaks)
        for series, value in points:
            slot = slots.get(series)
            if slot is None:
                slot = self._slot(series)
            if slot.turn == turn:
                wrong.append(f"{series!r} was read twice")
                continue
            if not _sound(value, slot.rule):
                wrong.append(f"{series!r} was read as {value!r}, which no backend takes")
                continue
            seen, slot.turn = slot.turn == turn - 1 and not broken, turn
            rule, index = slot.rule, slot.index
            if rule is None:
                lasts.append((slot.series, self._counted(slot, value)))  # type: ignore[arg-type]
            elif rule is Window.LAST:
                lasts.append((slot.series, value))  # type: ignore[arg-type]
            elif rule is Window.SHARE:
                part, whole = value  # type: ignore[misc]
                if seen:
                    part, whole = _waited(slot.totals.part, part), _waited(slot.totals.whole, whole)
                    self._area[index] += max(0.0, part - slot.totals.part)
                    self._weight[index] += max(0.0, whole - slot.totals.whole)
                slot.totals = Share(part, whole)
                means.append((slot.series, index, None))
            elif rule is Window.MEAN:
                if seen:
                    self._area[index] += value * elapsed  # type: ignore[operator]
                    self._weight[index] += elapsed
                means.append((slot.series, index, value))  # type: ignore[arg-type]
            else:
                self._peaks[index] = value  # type: ignore[assignment]
                peaks.append((slot.series, index))
        self._publish(now, lasts, means, peaks)
        return wrong

    def _publish(
        self,
        now: float,
        lasts: list[tuple[Series, Number]],
        means: list[tuple[Series, int, Number | None]],
        peaks: list[tuple[Series, int]],
    ) -> None:
        if len(self._frames) > 8 and self._frames[len(self._frames) // 2].time < now - KEPT:
            self._frames = self._frames[len(self._frames) // 2 :]  # a new list: others may be looking at the old one
        self._frames.append(Frame(now, self._area[:], self._weight[:], self._peaks[:]))
        self._published = _Published(now, lasts, means, peaks, self._frames, len(self._frames))

    def _slot(self, series: Series) -> _Slot:
        metric = series.metric
        rule = None if metric.kind is Kind.COUNTER else metric.window
        index = -1
        if rule in (Window.MEAN, Window.SHARE):
            index = len(self._area)
            self._area.append(0.0)
            self._weight.append(0.0)
        elif rule is Window.PEAK:
            index = len(self._peaks)
            self._peaks.append(-inf)
        slot = self._slots[series] = _Slot(series, rule, index)
        return slot

    def _counted(self, slot: _Slot, value: Number) -> Number:
        """A counter that never falls: a device that starts anew goes on where it was, a small dip is waited out."""
        if slot.base is None:
            slot.base = value if self._from_start else 0
        value = _waited(slot.last, value)
        if value < slot.last:
            slot.offset += slot.last
        slot.last = value
        total = value + slot.offset - slot.base
        return min(total, _INT64 - 1) if type(total) is int else total

    def window(self, since: float | None, shortest: float) -> tuple[list[tuple[Series, Number]], float] | None:
        """The value of every series over a window that ends with the newest reading.

        Args:
            since: the end of the window before, as this method gave it; None for all that is kept.
            shortest: seconds that the window has at least, as far as there are readings.

        Returns:
            The series with their values, and the end of the window; None before the first reading.
        """
        published = self._published
        if published is None:
            return None
        frames, length = published.frames, published.length
        latest = -inf if since is None else min(since, published.time - shortest + 1e-3)
        after = bisect_right(frames, latest, 0, length, key=lambda frame: frame.time)
        first, last = frames[max(0, after - 1)], frames[length - 1]
        values = list(published.lasts)
        known = len(first.area)
        for series, index, value in published.means:
            weight = last.weight[index] - (first.weight[index] if index < known else 0.0)
            if weight > 0:
                values.append((series, (last.area[index] - (first.area[index] if index < known else 0.0)) / weight))
            elif value is not None:
                values.append((series, value))
        within = frames[min(after, length - 1) : length]
        for series, index in published.peaks:
            values.append((series, max(frame.peaks[index] for frame in within if index < len(frame.peaks))))
        return values, published.time

    def integral(self, series: Series) -> float:
        """The time integral of a mean series since it was first read, in its unit times seconds; exact at readings."""
        slot = self._slots[series]
        return self._area[slot.index]


def _waited(last: Number, value: Number) -> Number:
    """A running total, or the one before where it went back a little: the kernel's iowait does. Less is a new start."""
    return last if last / 2 < value < last else value


def _sound(value: object, rule: Window | None) -> bool:
    """Whether an exporter takes the value: one int beyond int64, one bool or one NaN can cost a whole batch.

    Counters (no rule) are not negative, and only they that are taken the ratio of are shares.
    """
    kind = type(value)
    if rule is Window.SHARE:
        return kind is Share and _sound(value.part, None) and _sound(value.whole, None)  # type: ignore[attr-defined]
    most: Number = _HUGE_MEAN if rule is Window.MEAN else _INT64 if kind is int else _HUGE
    return kind in (int, float) and (-most if rule else 0) <= value < most  # type: ignore[operator]
