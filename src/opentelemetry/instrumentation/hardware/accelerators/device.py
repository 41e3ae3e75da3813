"""Device: one accelerator, or a part of one.

A vendor's ``device.py`` has a subclass with ``open``, ``read`` and ``read_slow``, which yield ``self.points({field:
value, ...})`` for the driver's values. Peaks, busy time, ratios and energy are derived from them here, so that they
mean the same for every vendor.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from math import inf
from typing import ClassVar, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Event, Kind, Metric, Number, Point, Rate, Series
from opentelemetry.instrumentation.hardware.settings.log import logger
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice, Holder

STATES: Final = ("ok", "degraded", "failed")  # values of ``hw.state``

# GPU tasks with a utilization that is a share of time, so that its integral is busy time.
TIMED: Final = ("general", "memory", "encoder", "decoder", "jpeg", "ofa", "video")

_POWER: Final = Series(c.HW_POWER)
_POWER_INSTANT: Final = Series(c.HW_POWER_INSTANT)
_POWER_LIMIT: Final = Series(c.HW_POWER_LIMIT, {c.HW_LIMIT_TYPE: "enforced"})
_POWER_MOST: Final = Series(c.HW_POWER_LIMIT, {c.HW_LIMIT_TYPE: "max"})
_POWER_UTILIZATION: Final = Series(c.HW_POWER_UTILIZATION)
_PLAUSIBLE_SHARE: Final = Field(c.HW_POWER_UTILIZATION)

# Multiple of the highest limit above which a power is not plausible. For a moment it may be above the limit.
_MOST_POWER: Final = 3

# Metrics of used memory, total memory, and their ratio.
_MEMORY: Final = (
    (Series(c.HW_GPU_MEMORY_USAGE), Series(c.HW_GPU_MEMORY_LIMIT), Series(c.HW_GPU_MEMORY_UTILIZATION)),
    (Series(c.HW_NPU_MEMORY_USAGE), Series(c.HW_NPU_MEMORY_LIMIT), Series(c.HW_NPU_MEMORY_UTILIZATION)),
)

_PEAKS: Final[Mapping[Metric, Metric]] = {
    c.HW_POWER: c.HW_POWER_PEAK,
    c.HW_TEMPERATURE: c.HW_TEMPERATURE_PEAK,
    c.HW_GPU_MEMORY_USAGE: c.HW_GPU_MEMORY_PEAK,
}
_RATIOS: Final = (*_MEMORY, (_POWER, _POWER_LIMIT, _POWER_UTILIZATION))

_MOST_EVENTS: Final = 64  # events of a device that are kept until they are emitted, at its next reading

_LOG = logger(__name__)


@cache
def _peak_and_integral(series: Series) -> tuple[Series | None, Series | None]:
    """Return the peak and the time integral that are derived from a series, if it has them."""
    metric, attributes = series.metric, series.attributes
    peak = Series(_PEAKS[metric], attributes) if metric in _PEAKS else None
    if series == _POWER:
        return peak, Series(c.HW_ENERGY)
    task = attributes.get(c.GPU_TASK)
    if metric is not c.HW_GPU_UTILIZATION or task not in TIMED:
        return peak, None
    return Series(c.HW_GPU_UTILIZATION_PEAK) if task == "general" else None, Series(c.HW_GPU_TIME, attributes)


class DeviceFailed(Exception):  # noqa: N818 - a state of the device
    """A device does not respond. It is retried with backoff; the other devices are not affected."""


class Device:
    """One device. Opening and reading it raise :class:`DeviceFailed` if it does not respond.

    Args:
        id: ``hw.id``.
        name: ``hw.name``.
        type: ``hw.type``.
        parent: ``hw.id`` of the device that contains it.
        index: Its index among the devices of the driver.
        address: PCI address, ``0000:1a:00.0``.

    Attributes:
        aliases: Other names for ``DEVICES`` and visibility variables.
        facts: Attributes of the info metric.
        state: ``ok`` or ``degraded``; "" if the driver does not report it.
        trouble: Why the device does not respond; "" while it responds.
        is_suspended: Whether it is suspended, and not read because reading would wake it.
        is_divided: Whether programs use only its parts.
        parts: Its parts by slot, which are selected and read like devices.
        is_unidentified: Whether its aliases are not known yet, so that any name in a variable may mean it.
        counters: Series that the device counts itself: no integral takes their place, not even while the counter
            cannot be read. The first value decides: a series that was integrated must not become a counter later.
        integrated: Series that are integrated. Their counters are left out.
        remedies: What to do while the device does not respond, by beginning of the reason.
        unsupported: Reasons by series. A text in place of a series is printed unchanged.
        memory_used: Bytes of its memory in use, as of the newest reading; None if unknown.
        updated: When the energy counter was updated, in seconds since the epoch; None if the driver does not report it.
        events: What happened to it and has not been emitted yet.
    """

    remedies: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        id: str,  # noqa: A002
        name: str,
        type: str = "gpu",  # noqa: A002
        parent: str = "",
        *,
        index: int = 0,
        address: str = "",
    ) -> None:
        self.id = id
        self.name = name
        self.type = type
        self.parent = parent
        self.index = index
        self.address = address
        self.aliases: tuple[str, ...] = ()
        self.facts: dict[str, str | int] = {}
        self.state = ""
        self.trouble = ""
        self.is_suspended = self.is_divided = self.is_unidentified = False
        self.parts: dict[int, Device] = {}
        self.counters: set[Series] = set()
        self.integrated: set[Series] = set()
        self.unsupported: dict[Series | str, str] = {}
        self.updated: float | None = None
        self.events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self.backoff = Backoff(2, 33)  # a failed device is not read for at most 32 readings
        self.readings = 0
        self.memory_used: Number | None = None
        self._series: dict[Series, Series] = {}
        self._limits: dict[Series, Number] = {}

    # -- what a vendor implements

    def open(self) -> None:
        """Identify the device and read constant values. Also called before a failed device is read again."""

    def read(self) -> Iterable[Point]:
        """Read the values that are sampled."""
        return ()

    def read_slow(self) -> Iterable[Point]:
        """Read values that are expensive or seldom change. The source adds info and status."""
        return ()

    def read_energy(self) -> Iterable[Point]:
        """Read energy and busy time, for spans: ten times per second while one is open."""
        return ()

    def read_memory(self) -> Iterable[Point]:
        """Read used memory and throttling, for spans: once per second."""
        return ()

    def check_suspended(self) -> bool:
        """Whether it is suspended now. The check must not wake it."""
        return False

    def new_fan(self, number: int) -> Device:
        """Return a fan of the device. What it does not support is listed with the device."""
        fan = Device(f"{self.id}/fan{number}", f"{self.name} fan {number}", "fan", self.id)
        fan.unsupported = self.unsupported
        return fan

    # -- points

    def set_id(self, id: str) -> None:  # noqa: A002
        """Change ``hw.id``, for a device that could not be identified at first."""
        self.id = id
        self._series.clear()

    def series(self, series: Series) -> Series:
        """Return a series with the attributes of this device."""
        found = self._series.get(series)
        if found is None:
            metric = series.metric
            own = {c.HW_ID: self.id, c.HW_NAME: self.name, c.HW_TYPE: self.type, c.HW_PARENT: self.parent}
            identity = {name: value for name, value in own.items() if value and name in metric.attributes}
            found = self._series[series] = Series(metric, {**identity, **series.attributes})
        return found

    def points(self, values: Mapping[Field, object]) -> Iterator[Point]:
        """Return points for the driver's values and for the values derived from them.

        A value that is not plausible is left out, with the reason in :attr:`unsupported`.
        """
        known = self.parse(values)
        for series in known.keys() & self.integrated:
            if not isinstance(known[series], Rate):
                del known[series]
        derived: dict[Series, Number | Rate] = {}  # unless the driver reports it
        for series, value in known.items():
            if not isinstance(value, Rate):
                peak, integral = _peak_and_integral(series)
                if peak is not None:
                    derived[peak] = value
                if integral is not None:
                    derived[integral] = Rate(value)
        for part, whole, ratio in _RATIOS:
            amount = known.get(part)
            if isinstance(amount, (int, float)) and whole in self._limits:
                share = amount / self._limits[whole]
                if _PLAUSIBLE_SHARE.is_plausible(share):
                    derived[ratio] = share
        for series, value in (derived | known).items():
            if isinstance(value, Rate) and series in self.counters:
                continue
            if series.metric.kind is Kind.COUNTER:
                (self.integrated if isinstance(value, Rate) else self.counters).add(series)
            self.unsupported.pop(series, None)
            yield self.series(series), value

    def parse(self, values: Mapping[Field, object]) -> dict[Series, Number | Rate]:
        """Return the plausible values, and store the limits. A usage that exceeds its limit is not plausible.

        A power is not plausible if it is a multiple of the highest limit.
        """
        known: dict[Series, Number | Rate] = {}
        for field, raw in values.items():
            try:
                known[field.series] = field.value(raw)
            except ValueError as error:
                self.unsupported[field.series] = str(error)
        for limit in (_POWER_LIMIT, _POWER_MOST, *(total for _, total, _ in _MEMORY)):
            value = known.get(limit)
            if isinstance(value, (int, float)):
                self._limits[limit] = value
        most = self._limits.get(_POWER_MOST, inf)
        for series in (_POWER, _POWER_INSTANT):
            power = known.get(series)
            if isinstance(power, (int, float)) and power > _MOST_POWER * most:
                del known[series]
                self.unsupported[series] = f"the driver reports {power} W, and {most:g} W as the most that it allows"
        for used, total, _ in _MEMORY:
            usage = known.get(used)
            if not isinstance(usage, (int, float)):
                continue
            if usage > self._limits.get(total, inf):
                del known[used]
                self.unsupported[used] = f"the driver reports {usage} of {self._limits[total]} bytes in use"
            self.memory_used = usage if used in known else None
        return known

    def condition(self) -> str:
        """Return one of :data:`STATES`; "" if unknown."""
        return "failed" if self.trouble else self.state

    def identity_points(self) -> Iterator[Point]:
        """Yield info and status."""
        if self.facts:
            info = c.HW_NPU_INFO if self.type == "npu" else c.HW_GPU_INFO
            yield self.series(Series(info, self.facts))(1)
        condition = self.condition()
        for state in STATES if condition else ():
            yield self.series(Series(c.HW_STATUS, {c.HW_STATE: state}))(int(state == condition))

    def held(self, vendor: str, users: Sequence[Holder] | None) -> HeldDevice:
        """Return who uses the device. ``users`` is None if the driver does not list the processes."""
        names = {name.lower() for name in (self.id, self.address, *self.aliases) if name}
        attributes = self.series(Series(c.HW_HOLDER_INFO)).attributes
        memory = None if self.trouble or self.memory_used is None else int(self.memory_used)
        return HeldDevice(vendor, names, -1 if self.parent else self.index, attributes, memory, users)

    # -- failures

    def fail(self, reason: str) -> None:
        """Record that the device does not respond. This is logged once."""
        if not self.trouble:
            _LOG.warning("%s (%s): %s; its metrics are missing until it responds", self.name, self.id, reason)
            self.trouble = reason
            self.add_event(c.DEVICE_LOST, True, reason, {c.FAULT_REMEDY: self.remedy()})
        self.trouble = reason
        self.backoff.fail(self.readings)

    def recover(self) -> None:
        """Record that the device responds."""
        if self.trouble:
            _LOG.info("%s (%s) responds again", self.name, self.id)
            self.add_event(c.DEVICE_RECOVERED, False, "responds again", {})
        self.trouble = ""
        self.backoff.succeed()

    def add_event(self, name: str, is_error: bool, text: str, facts: Mapping[str, str]) -> None:
        """Add an event, which is emitted if the device is reported. Attributes without a value are left out."""
        device = {c.HW_ID: self.id, c.HW_NAME: self.name, c.HW_TYPE: self.type, c.HW_PARENT: self.parent}
        attributes = {key: value for key, value in {**device, **facts}.items() if value}
        self.events.append(Event(time.time_ns(), name, is_error, f"{self.name}: {text}", attributes))

    def remedy(self) -> str:
        """Return what to do while the device does not respond; "" if unknown."""
        return next((text for beginning, text in self.remedies.items() if self.trouble.startswith(beginning)), "")

    @property
    def selection_id(self) -> str:
        """The id of the device in the selection. Unlike ``hw.id``, it is known while the device is suspended."""
        return self.id

    @property
    def selectable(self) -> Mapping[int, Device]:
        """The parts by slot that can be selected."""
        return self.parts

    @property
    def selection_ids(self) -> frozenset[str]:
        """The ids of the device and its parts in the selection."""
        return frozenset({self.selection_id, *(part.selection_id for part in self.selectable.values())})
