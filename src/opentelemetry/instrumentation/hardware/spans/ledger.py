"""Ledger: turns the points of a source into rows for spans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from math import inf, nan
from types import MappingProxyType
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import CounterRatio, Point, Rate, Series, Value
from opentelemetry.instrumentation.hardware.spans.rows import (
    ACCELERATOR,
    BUSY,
    ENERGY,
    LAG,
    MEMORY,
    PACKAGE,
    PROCESS,
    THROTTLED,
    UNUSED,
    USED,
    VISIBLE,
    Rows,
)

# Seconds that the wall clock may lose and gain between two readings. After a larger step all rows are removed, because
# the times of spans are those of the wall clock.
_LARGEST_STEPS: Final = (-0.05, 0.5)

_LONGEST_INTEGRAL: Final = 60.0  # seconds between two readings of a rate after which its integral is unknown

# Seconds. A counter that is equal to the one before within this time was not updated in between.
_UPDATE: Final = 0.5

# Where the value of a metric goes.
_COLUMNS: Final = {
    c.HW_ENERGY: ENERGY,
    c.HW_GPU_TIME: BUSY,
    c.HW_GPU_THROTTLE_TIME: THROTTLED,
    c.HW_GPU_MEMORY_USAGE: MEMORY,
    c.PROCESS_CPU_TIME: ENERGY,
    c.PROCESS_TREE_CPU_UTILIZATION: BUSY,
    c.PROCESS_MEMORY_USAGE: MEMORY,
}

METRICS: Final = tuple(_COLUMNS)  # the metrics that spans need

# What a device is, by ``hw.type``; all others are accelerators. 0: it has no part in spans.
_KINDS: Final = {"cpu": PACKAGE, "": PROCESS, "memory": 0}

_CONFIGURED: Final = frozenset({"application_clocks"})  # reasons of throttling that are a setting of the user


class Ledger:
    """The rows of the devices of one source. The thread of the source fills it; any thread may use the rows.

    Args:
        room: Makes empty rows.
        clock: Monotonic seconds, with those in which the process was stopped.
        wall_clock: Seconds since the epoch, which spans are timed with.

    Attributes:
        rows: The rows of each device. It is replaced, never changed.
    """

    def __init__(
        self,
        room: Callable[[], Rows] = Rows,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.rows: tuple[Rows, ...] = ()
        self._devices: dict[str, _Device] = {}
        self._used: Mapping[str, int] = {}
        self._room = room
        self._clock = clock
        self._wall_clock = wall_clock
        self._offset = wall_clock() - clock()

    def add(self, points: Iterable[Point], updated: Mapping[str, float | None] = MappingProxyType({})) -> None:
        """Add a reading that was made just now.

        Args:
            points: What was read.
            updated: When the energy counters were updated, in seconds since the epoch by ``hw.id``, where the driver
                reports it.
        """
        now, wall = self._clock(), self._wall_clock()
        back, forth = _LARGEST_STEPS
        if not back < wall - now - self._offset < forth:
            for each in self._devices.values():
                each.rows.clear(each.rows.kind)
        self._offset = wall - now
        read: dict[str, list[Point]] = {}
        for point in points:
            series = point[0]
            if series.metric in _COLUMNS and series.attributes.get(c.GPU_TASK, "general") == "general":
                read.setdefault(str(series.attributes.get(c.HW_ID, "")), []).append(point)
        for id_, those in read.items():
            device = self._devices.get(id_)
            if device is None:
                types = (str(series.attributes[c.HW_TYPE]) for series, _ in those if c.HW_TYPE in series.attributes)
                rows = self._room()
                rows.clear(_KINDS.get(next(types, "gpu" if id_ else ""), ACCELERATOR))
                rows.use = self._used.get(id_, UNUSED)
                self.rows = (*self.rows, rows)
                device = self._devices[id_] = _Device(rows)
            if device.rows.kind:
                device.add(now, wall, those, updated.get(id_))

    def use(self, devices: Iterable[str], is_known: bool) -> None:
        """Set the devices that the program has used so far, also for the readings that were made already.

        Args:
            devices: By ``hw.id``.
            is_known: Whether it uses them; else it may use them.
        """
        used = dict.fromkeys(devices, USED if is_known else VISIBLE)
        if used != self._used:
            self._used = used
            for id_, device in self._devices.items():
                device.rows.use = used.get(id_, UNUSED)

    def interrupt(self) -> None:
        """Record that the source was closed: what its rates were until its next reading is unknown."""
        for device in self._devices.values():
            device.read = dict.fromkeys(device.read, -inf)


class _Device:
    """The running totals of one device."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.read: dict[Series, float] = {}  # when each rate was read
        self._counts: dict[Series, float] = {}
        self._totals: dict[int, float] = {}
        self._row = (-inf, nan)  # time and energy of the newest row
        self._memory = -inf

    def add(self, now: float, wall: float, points: Iterable[Point], updated: float | None) -> None:
        """Add a reading."""
        if updated is not None:  # the row is of that instant, and so are its integrals
            now, wall = now + updated - wall, updated
        throttled, has_energy, is_counter = 0.0, False, False
        for series, value in points:
            column = _COLUMNS[series.metric]
            if column == MEMORY:
                self._memory = _number(value)
            elif column == THROTTLED:
                if series.attributes.get(c.THROTTLE_REASON) not in _CONFIGURED:  # several may hold: the longest counts
                    throttled = max(throttled, self._increase(series, value, now))
                self._totals.setdefault(THROTTLED, 0.0)
            else:
                if column == ENERGY:
                    has_energy, is_counter = True, type(value) is not Rate
                self._totals[column] = self._totals.get(column, 0.0) + self._increase(series, value, now)
        if throttled:
            self._totals[THROTTLED] += throttled
        if ENERGY in self._totals and not has_energy:
            return  # the call failed: the row would say that it used nothing
        energy = self._totals.get(ENERGY, nan)
        time, last = self._row
        is_repeated = updated is None and energy == last and wall - time < _UPDATE
        if is_counter and is_repeated and self.rows.kind != PROCESS:
            wall = time
        totals = energy, self._totals.get(BUSY, nan), self._totals.get(THROTTLED, nan)
        lag = LAG if is_counter and updated is None and self.rows.kind == ACCELERATOR else 0.0
        self.rows.add(wall, totals, self._memory, lag)
        self._row = wall, energy

    def _increase(self, series: Series, value: Value, now: float) -> float:
        """Return the increase of a total since the last reading; of a rate, the integral."""
        if type(value) is Rate:
            before, self.read[series] = self.read.get(series), now
            if before is None:
                return 0.0
            if now - before > _LONGEST_INTEGRAL:  # what it was in between is unknown, and so are earlier totals
                self.rows.forget(_COLUMNS[series.metric])
                return 0.0
            return value.per_second * max(0.0, now - before)
        count = _number(value)
        last = self._counts.get(series, count)
        self._counts[series] = count
        return max(0.0, count - last)


def _number(value: Value) -> float:
    if type(value) is CounterRatio:
        return value.part
    return float(value) if isinstance(value, (int, float)) else nan
