"""Windows: how the readings between two collections become one value for each series.

Nothing is drained. A :class:`SeriesAggregator` keeps, for the last ten minutes, running integrals of every gauge
and the extremes of its peaks; a window is the difference of two frames. Windows of one reader lie end to end, so that
their means, each times its length, add up to the integral; windows of two readers do not disturb each other.

Each reading stands for the interval that it ends. So the first reading of a track is a baseline: it has no weight in
a mean, unless it is all there is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import repeat
from math import inf
from typing import Any, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware.model import (
    Attributes,
    CounterRatio,
    Kind,
    Metric,
    Number,
    Point,
    Rate,
    Series,
    Value,
    Values,
    Window,
)

KEPT = 600.0
"""Seconds of history. A reader that asks more seldom gets the mean of the last ten minutes."""

_MOST = 1 << 13
"""Half of the frames that are kept at most, however short the sampling interval is."""

_INT64 = 1 << 63

_PLAIN = (int, float)
"""What most values are: they are looked at here, without a call, where that is enough."""

_HUGE = 1e100
"""No quantity is that large."""

_HUGE_MEAN = 1e15
"""Nor a mean: once it is in a running integral, what is added later would be lost in the rounding."""

_Means: TypeAlias = "dict[Metric, list[tuple[Number | None, Attributes, int]]]"
"""By metric, of each of its series: the newest value, if one has a meaning by itself, and where its totals are."""

_Peaks: TypeAlias = "dict[Metric, list[tuple[array[float], Attributes]]]"
"""By metric, of each of its series: its value in every frame."""


class Frame(NamedTuple):
    """The running totals as of one reading."""

    area: array[float]
    weight: array[float]


class _Reading:
    """A reading in the making: what its points say, and the running totals that they are added to."""

    __slots__ = ("area", "elapsed", "lasts", "means", "number", "peaks", "weight")

    def __init__(self, number: int, elapsed: float, area: array[float], weight: array[float]) -> None:
        self.number = number
        self.elapsed = elapsed
        self.area = area
        self.weight = weight
        self.lasts: Values = defaultdict(list)
        self.means: _Means = defaultdict(list)
        self.peaks: _Peaks = defaultdict(list)


class _Slot(ABC):
    """What is kept for one series; each way of making a window into a value has a class of its own.

    ``take`` adds a value to the reading in the making. It refuses, by saying False, what no exporter takes: one int
    beyond int64, one bool or one NaN can cost a whole batch.
    """

    __slots__ = ("attributes", "index", "metric", "turn")

    def __init__(self, series: Series, index: int = -1) -> None:
        self.metric = series.metric
        self.attributes = series.attributes
        self.index = index
        self.turn = -1

    @abstractmethod
    def take(self, value: Any, seen: bool, reading: _Reading) -> bool:
        """Add a value; ``seen`` says that the reading before had one, so that the interval between counts."""


class _Last(_Slot):
    """The newest reading."""

    __slots__ = ()

    def take(self, value: Any, seen: bool, reading: _Reading) -> bool:
        if not (type(value) in _PLAIN and -_INT64 <= value < _INT64) and not _sound(value):
            return False
        reading.lasts[self.metric].append((value, self.attributes))
        return True


class _Counter(_Slot):
    """A counter that never falls: a device that starts anew goes on where it was, a small dip is waited out.

    What was a counter at first does not go on as an integral, nor the other way round: such a value is left out.
    """

    __slots__ = ("_last", "_plain", "_shift")

    def __init__(self, series: Series, from_start: bool) -> None:
        super().__init__(series)
        self._last: Number = 0
        self._plain: Number = inf if from_start else 0
        """The least value that is the count itself."""
        self._shift: Number | None = None if from_start else 0

    def take(self, value: Any, seen: bool, reading: _Reading) -> bool:
        if type(value) in _PLAIN and self._plain <= value < _INT64:
            self._last = self._plain = value
        elif _sound(value, 0):
            value = self._gone_on(value)
        else:
            return type(value) is Rate
        reading.lasts[self.metric].append((value, self.attributes))
        return True

    def _gone_on(self, value: Number) -> Number:
        """The count, whatever the device has done to its own."""
        if self._shift is None:
            self._shift = -value
        if not self.metric.endpoint:  # those of a page never dip: less is a new start
            value = _waited(self._last, value)
        if value < self._last:
            self._shift += self._last
        self._last = value
        self._plain = inf if self._shift else value
        value += self._shift
        return min(value, _INT64 - 1) if type(value) is int else value


class _Integral(_Slot):
    """A counter made of a rate: each reading stands for the interval that it ends, as in a mean."""

    __slots__ = ("_total",)

    def __init__(self, series: Series) -> None:
        super().__init__(series)
        self._total = 0.0

    def take(self, value: Any, seen: bool, reading: _Reading) -> bool:
        if type(value) is not Rate:
            return _sound(value, 0)
        if not _sound(value.per_second, 0, _HUGE_MEAN):
            return False
        if seen:
            self._total += value.per_second * reading.elapsed
        reading.lasts[self.metric].append((self._total, self.attributes))
        return True


class _Mean(_Slot):
    """The mean over time: a value times the interval that its reading ends."""

    __slots__ = ()

    def take(self, value: Any, seen: bool, reading: _Reading) -> bool:
        if not (type(value) in _PLAIN and -_HUGE_MEAN <= value < _HUGE_MEAN):
            return False
        if seen:
            reading.area[self.index] += value * reading.elapsed
            reading.weight[self.index] += reading.elapsed
        reading.means[self.metric].append((value, self.attributes, self.index))
        return True


class _Ratio(_Slot):
    """The increase of one running total over the increase of another."""

    __slots__ = ("_part", "_whole")

    def __init__(self, series: Series, index: int) -> None:
        super().__init__(series, index)
        self._part = self._whole = 0.0

    def take(self, value: Any, seen: bool, reading: _Reading) -> bool:
        if type(value) is not CounterRatio:
            return False
        part, whole = value
        if not (type(part) is type(whole) is float and self._part <= part < _HUGE and self._whole <= whole < _HUGE):
            if not (_sound(part, 0) and _sound(whole, 0)):
                return False
            if seen:
                part, whole = _waited(self._part, part), _waited(self._whole, whole)
            self._part, self._whole = min(part, self._part), min(whole, self._whole)
        if seen:
            at = self.index
            reading.area[at] += part - self._part
            reading.weight[at] += whole - self._whole
        self._part, self._whole = part, whole
        reading.means[self.metric].append((None, self.attributes, self.index))
        return True


class _Peak(_Slot):
    """The highest reading: all of them are kept, one for each frame."""

    __slots__ = ("highs",)

    def __init__(self, series: Series) -> None:
        super().__init__(series)
        self.highs: array[float] = array("d")

    def take(self, value: Any, seen: bool, reading: _Reading) -> bool:
        if not _sound(value):
            return False
        highs = self.highs
        del highs[reading.number :]  # of a reading that failed before it was complete
        highs.extend(repeat(-inf, reading.number - len(highs)))  # readings in which it was missing
        highs.append(value)
        reading.peaks[self.metric].append((highs, self.attributes))
        return True


class _Published(NamedTuple):
    """One reading, complete and never changed again: what other threads look at."""

    time: float
    lasts: Values
    means: _Means
    peaks: _Peaks
    times: array[float]
    frames: list[Frame]
    length: int


def _nothing(now: float) -> _Published:
    """The reading of a source that has nothing of the kind."""
    return _Published(now, {}, {}, {}, array("d"), [], 0)


class SeriesAggregator:
    """The readings of one read of a source, in time. One thread takes, any thread looks.

    Args:
        rows: the rows that were read, which it adds its own to.
        from_start: counters count from their first reading instead of the device's own start.

    Attributes:
        time: when the newest reading was taken.
    """

    def __init__(self, rows: dict[Metric, None] | None = None, from_start: bool = False) -> None:
        self.time: float | None = None
        self._rows = {} if rows is None else rows
        self._from_start = from_start
        self._slots: dict[Series, _Slot] = {}
        self._area: array[float] = array("d")
        self._weight: array[float] = array("d")
        self._peaks: list[_Peak] = []
        self._times: array[float] = array("d")
        self._frames: list[Frame] = []
        self._turn = 0
        self._broken = True
        self._published: _Published | None = None

    def interrupt(self) -> None:
        """Forget the newest reading, and give the next one no weight: what lay between them is not known."""
        self._broken = True
        self._published = self.time = None

    def take(self, now: float, points: Iterable[Point]) -> list[str]:
        """Add a reading.

        Points that cannot be exported are left out: a value that is no int64 and no finite float, a series that
        appears twice.

        Returns:
            What was wrong with the points, a sentence each.
        """
        wrong: list[str] = []
        if points == () and not self._slots:
            self._published, self.time = _nothing(now), now
            return wrong
        self._turn += 1
        broken, self._broken = self._broken, False
        elapsed = 0.0 if broken else now - self._times[-1]
        self._forget(now)
        reading = _Reading(len(self._times), elapsed, self._area, self._weight)
        known, turn = self._slots.get, self._turn
        before = 0 if broken else turn - 1  # of no slot: new ones have -1
        for series, value in points:
            slot = known(series) or self._slot(series, value, reading)
            last = slot.turn
            if last == turn:
                wrong.append(f"{series!r} was read twice")
            elif slot.take(value, last == before, reading):
                slot.turn = turn
            else:
                wrong.append(f"{series!r} was read as {value!r}, which no backend takes")
        self._publish(now, reading)
        return wrong

    def _forget(self, now: float) -> None:
        """Let go of the older half of the frames, where nobody needs it; others may still look at what is replaced."""
        half = len(self._times) // 2
        if half > _MOST or (half > 4 and self._times[half] < now - KEPT):
            self._times, self._frames = self._times[half:], self._frames[half:]
            for slot in self._peaks:
                slot.highs = slot.highs[half:]

    def _publish(self, now: float, reading: _Reading) -> None:
        self._times.append(now)
        self._frames.append(Frame(self._area[:], self._weight[:]))
        self._published = _Published(
            now, reading.lasts, reading.means, reading.peaks, self._times, self._frames, len(self._times)
        )
        self.time = now

    def _slot(self, series: Series, value: Value, reading: _Reading) -> _Slot:
        metric = series.metric
        slot: _Slot = _Last(series)
        if metric.kind is Kind.COUNTER:
            slot = _Integral(series) if type(value) is Rate else _Counter(series, self._from_start)
        elif metric.window in (Window.MEAN, Window.RATIO):
            slot = (_Mean if metric.window is Window.MEAN else _Ratio)(series, len(self._area))
            self._area.append(0.0)
            self._weight.append(0.0)
        elif metric.window is Window.PEAK:
            slot = _Peak(series)
            self._peaks.append(slot)
        self._slots[series] = slot
        self._rows[metric] = None
        return slot

    def window(self, since: float | None, shortest: float) -> tuple[Values, float] | None:
        """The value of every series over a window that ends with the newest reading.

        Args:
            since: the end of the window before, as this method gave it; None for all that is kept.
            shortest: seconds that the window has at least, as far as there are readings.

        Returns:
            The values by metric, which are not to be changed, and the end of the window; None before the first reading.
        """
        published = self._published
        if published is None:
            return None
        values = dict(published.lasts)
        if not published.means and not published.peaks:
            return values, published.time
        length = published.length
        latest = min(published.time - KEPT if since is None else since, published.time - shortest + 1e-3)
        after = bisect_right(published.times, latest, 0, length)
        first, last = published.frames[max(0, after - 1)], published.frames[length - 1]
        known = len(first.area)
        for metric, means in published.means.items():
            points = []
            for newest, attributes, index in means:
                area, weight = last.area[index], last.weight[index]
                if index < known:
                    area -= first.area[index]
                    weight -= first.weight[index]
                value = area / weight if weight > 0 else newest
                if value is not None:
                    points.append((value, attributes))
            if points:
                values[metric] = points
        begin = min(after, length - 1)
        for metric, peaks in published.peaks.items():
            values[metric] = [(max(highs[begin:length]), attributes) for highs, attributes in peaks]
        return values, published.time

    def integral(self, series: Series) -> float:
        """The time integral of a mean series since it was first read, in its unit times seconds; exact at readings."""
        slot = self._slots[series]
        return self._area[slot.index]


def _sound(value: Any, least: float = -_HUGE, most: float = _HUGE) -> bool:
    """Whether an exporter takes the value, and it lies in the range."""
    kind = type(value)
    return (kind is float or (kind is int and -_INT64 <= value < _INT64)) and least <= value < most


def _waited(last: Number, value: Number) -> Number:
    """A running total, or the one before where it went back a little: the kernel's iowait does. Less is a new start."""
    return last if last / 2 < value < last else value
