"""Aggregator: adds each reading of a source to running totals; the window of a reader is the difference of two totals.

Every reading publishes an immutable :class:`Published`, which any thread may use without a lock. A reader keeps the
totals that it saw last as its mark. Nothing is drained, so any number of readers at any interval get exact windows:
windows are contiguous, and the mean times the length of a window is the increase of the integral.

A reading stands for the interval that it ends. So the first reading has no weight in a mean, unless it is the only one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.instrumentation.hardware.catalog import GPU_XID
from opentelemetry.instrumentation.hardware.model import (
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
from opentelemetry.instrumentation.hardware.pipeline.counters import Counter, CounterStore, is_dip

# Seconds without a value after which a series is dropped, at the next reading of its source.
KEPT: Final = 600.0

# Readings kept for the peaks of one series. On a longer steady fall, the one that differs least from those around it is
# dropped, so that a window loses at most a thirtieth of the range of the values.
_PEAKS = 64

_INT64 = 2**63

_MAX_VALUE = 1e100  # an upper bound of all measured quantities

# Limit of values in a running integral; a larger one would swallow later ones by rounding.
_MAX_MEAN = 2.0**53

# Times and values: the newest reading, and before it each reading that is higher than all later ones.
_Peaks: TypeAlias = "tuple[tuple[float, Number], ...]"


class Sum(NamedTuple):
    """The running totals of one series.

    Attributes:
        area: For a mean, the sum of value times interval; for a ratio, the increase of its part.
        weight: For a mean, the sum of the intervals; for a ratio, the increase of its whole.
        since: When the series was first read. Totals with another ``since`` cannot be subtracted.
        time: When it was read last.
        level: For a mean, the newest value that has a weight; None if there is none.
        steady: The weight before the series took this level. The mean of a window that began later is the level itself:
            the quotient of the totals is rounded, which would make the mean of a constant waver.
    """

    area: float
    weight: float
    since: float
    time: float
    level: float | None = None
    steady: float = 0.0


class Totals(NamedTuple):
    """The running totals as of one reading; the mark of a reader."""

    time: float
    sums: Mapping[Series, Sum]


class Published(NamedTuple):
    """The state that a reading published.

    Attributes:
        totals: The running totals including this reading.
        earlier: The totals as of the reading before: where a window begins if its reader has seen this one already.
        latest: Counters, up-down counters and facts, ready to be exported.
        newest: The value of each series that has running totals, as it was read.
        peaks: See :data:`_Peaks`.
        events: The counts of events. A kind of event has a series from its first one on.
    """

    totals: Totals
    earlier: Totals
    latest: Values
    newest: Mapping[Series, Value]
    peaks: Mapping[Series, _Peaks]
    events: Mapping[Series, Number]

    @property
    def time(self) -> float:
        """When the reading was made."""
        return self.totals.time

    def window(self, mark: Totals | None, is_last: bool = False) -> Values:
        """Return the value of every series of this reading since the mark; None means since the first reading.

        A kind of event that is new since the mark has the count 0, as it had before: a database sees an increase only
        from one value to the next. The last collection has the count itself, because no other one follows.
        """
        values = dict(self.latest)
        begin = _NOTHING if mark is None else mark if mark.time < self.totals.time else self.earlier
        sums, before = self.totals.sums, begin.sums
        for series, newest in self.newest.items():
            total = sums[series]
            known = before.get(series)
            area, weight = (known.area, known.weight) if known and known.since == total.since else (0.0, 0.0)
            if total.weight > weight:
                value = (total.area - area) / (total.weight - weight)
                if total.level is not None and weight >= total.steady:
                    value = total.level
            elif isinstance(newest, float):
                value = newest
            else:
                continue  # a ratio without an increase
            values.setdefault(series.metric, []).append((value, series.attributes))
        for series, count in self.events.items():
            is_known = mark is None or is_last or series in before
            values[series.metric] = [*values.get(series.metric, ()), (count if is_known else 0, series.attributes)]
        for series, peaks in self.peaks.items():
            time, value = peaks[-1]
            if time == self.totals.time:  # else it is missing from this reading
                highest = next((value for time, value in peaks if time > begin.time), value)
                values.setdefault(series.metric, []).append((highest, series.attributes))
        return values


_NOTHING = Totals(float("-inf"), MappingProxyType({}))


class Aggregator:
    """The readings of one read of a source. One thread adds them; any thread may use :attr:`published`.

    Counters continue those of the store, or count from the first reading instead of from the device's own start.

    Attributes:
        published: The newest reading; None before the first one and after :meth:`interrupt`.
        metrics: Those that were read since the source was opened.
    """

    def __init__(self, counters: CounterStore, from_start: bool = False) -> None:
        self.published: Published | None = None
        self.metrics: tuple[Metric, ...] = ()
        self._store = counters
        self._from_start = from_start
        self._counters: dict[Series, Counter] = {}
        self._totals = _NOTHING
        self._peaks: dict[Series, _Peaks] = {}
        self._cleaned = float("-inf")

    def interrupt(self) -> None:
        """Drop the newest reading, and give the next one no weight, because the values in between are unknown."""
        self.published = None
        self.metrics = ()

    def add(self, now: float, points: Iterable[Point]) -> list[str]:
        """Add a reading.

        Points that cannot be exported are left out: a value that is no int64 or finite float, and a second point of the
        same series. One such value can fail a whole export batch.

        Returns:
            A sentence for each problem of the points.
        """
        reading = _Reading(now, self.published, self._totals.sums, self._peaks)
        errors: list[str] = []
        read: set[Series] = set()
        for series, value in points:
            if series in read:
                errors.append(f"{series!r} was read twice")
            elif self._add(series, value, reading):
                read.add(series)
            else:
                errors.append(f"{series!r} has the value {value!r}, which cannot be exported")
        new = {series.metric: None for series in read}.keys() - set(self.metrics)
        if new:
            self.metrics = (*self.metrics, *new)
        if now - self._cleaned > KEPT:
            self._cleaned = now
            oldest = now - KEPT
            reading.forget(oldest)
            self._counters = {series: each for series, each in self._counters.items() if each.time >= oldest}
        earlier, self._totals, self._peaks = self._totals, Totals(now, reading.sums), reading.peaks
        self.published = Published(self._totals, earlier, reading.latest, reading.newest, reading.peaks, reading.events)
        return errors

    def _add(self, series: Series, value: Any, reading: _Reading) -> bool:
        """Add a value to a reading. Returns False if it cannot be exported."""
        metric = series.metric
        if metric.kind is Kind.COUNTER:
            return self._count(series, value, reading)
        if metric.window is Window.LAST:
            if not _is_number(value):
                return False
            is_quantity = metric.kind is Kind.GAUGE and not metric.unit.startswith("{")  # of either type, by driver
            reading.latest[metric].append((float(value) if is_quantity else value, series.attributes))
            return True
        if metric.window is Window.MEAN:
            return reading.add_mean(series, value)
        if metric.window is Window.RATIO:
            return reading.add_ratio(series, value)
        return reading.add_peak(series, value)

    def _count(self, series: Series, value: Any, reading: _Reading) -> bool:
        """Add a device's count, or the time integral of a rate. A series may change between the two."""
        rate = value.per_second if type(value) is Rate else None
        if not (_is_number(value, 0) if rate is None else _is_number(rate, 0, _MAX_MEAN)):
            return False
        counter = self._counters.get(series)
        if counter is None:
            counter = self._counters[series] = self._store.resume(series, self._from_start)
        if rate is None:
            counter.set(value)
        else:
            counter.add(rate * reading.elapsed if counter.time == reading.last else 0.0)
        counter.time = reading.time
        # Google Cloud Monitoring refuses a metric with values of two types. The device's counts of bytes are integers.
        total = int(counter.total) if rate is not None and series.metric.unit == "By" else counter.total
        if GPU_XID in series.attributes:
            reading.add_event(series, total)
        else:
            reading.latest[series.metric].append((total, series.attributes))
        return True


class _Reading:
    """A reading that is being added to the totals; it is published when it is complete.

    Attributes:
        last: When the reading before was made, if what happened in between is known.
        elapsed: Seconds since then.
    """

    def __init__(
        self, time: float, last: Published | None, sums: Mapping[Series, Sum], peaks: dict[Series, _Peaks]
    ) -> None:
        self.time = time
        self.last = None if last is None else last.time
        self.elapsed = 0.0 if last is None else time - last.time
        self.sums = dict(sums)
        self.peaks = dict(peaks)
        self.latest: Values = defaultdict(list)
        self.newest: dict[Series, Value] = {}
        self.events: dict[Series, Number] = {}
        self._before: Mapping[Series, Value] = {} if last is None else last.newest

    def add_mean(self, series: Series, value: Any) -> bool:
        """Add a value times the interval that the reading ends."""
        if not _is_number(value, -_MAX_MEAN, _MAX_MEAN):
            return False
        value = float(value)  # as a mean is: Google Cloud Monitoring refuses a metric with values of two types
        if series in self._before:
            self._add_sum(series, value * self.elapsed, self.elapsed, value)
        else:
            self._add_sum(series, 0.0, 0.0)
        self.newest[series] = value
        return True

    def add_ratio(self, series: Series, value: Any) -> bool:
        """Add the increase of two running totals. If one has fallen, neither is added: their quotient is unknown."""
        if type(value) is not CounterRatio or not (_is_number(value.part, 0) and _is_number(value.whole, 0)):
            return False
        before = self._before.get(series)
        part = whole = 0.0
        if isinstance(before, CounterRatio):
            value = CounterRatio(*(old if is_dip(old, new) else new for old, new in zip(before, value)))
            part, whole = value.part - before.part, value.whole - before.whole
        self._add_sum(series, *((part, whole) if min(part, whole) >= 0 else (0.0, 0.0)))
        self.newest[series] = value
        return True

    def add_peak(self, series: Series, value: Any) -> bool:
        """Add a value, and drop those before it that are not higher."""
        if not _is_number(value):
            return False
        peaks = [peak for peak in self.peaks.get(series, ()) if peak[1] > value]
        is_bytes = type(value) is int and series.metric.unit == "By"
        peaks.append((self.time, value if is_bytes else float(value)))
        if len(peaks) > _PEAKS:
            falls = [before[1] - after[1] for before, after in zip(peaks, peaks[2:])]
            del peaks[1 + falls.index(min(falls))]
        self.peaks[series] = tuple(peaks)
        return True

    def add_event(self, series: Series, count: Number) -> None:
        """Add the count of events. The totals remember only that it is known."""
        self.events[series] = count
        self._add_sum(series, 0.0, 0.0)

    def _add_sum(self, series: Series, area: float, weight: float, level: float | None = None) -> None:
        before = self.sums.get(series) or Sum(0.0, 0.0, self.time, self.time)
        steady = before.steady
        if level is None:
            level = before.level
        elif level != before.level:
            steady = before.weight
        self.sums[series] = Sum(before.area + area, before.weight + weight, before.since, self.time, level, steady)

    def forget(self, oldest: float) -> None:
        """Drop the series that were last read before a time."""
        self.sums = {series: each for series, each in self.sums.items() if each.time >= oldest}
        self.peaks = {series: each for series, each in self.peaks.items() if each[-1][0] >= oldest}


def _is_number(value: Any, least: float = -_MAX_VALUE, most: float = _MAX_VALUE) -> bool:
    """Whether a value is an int64 or a finite float, and in a range."""
    kind = type(value)
    return (kind is float or (kind is int and -_INT64 <= value < _INT64)) and least <= value < most
