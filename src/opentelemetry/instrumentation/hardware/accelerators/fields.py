"""Field: the conversion of a driver's value to a value of a metric.

A vendor's ``fields.py`` has tables only: the driver's own name -> Field. It names this module ``a``::

    FIELDS = {
        "average die temp": a.temperature("die", unit="C"),
        "ipu power": a.power(unit="W"),
        "new counter": a.Field(c.HW_ERRORS, {c.ERROR_TYPE: "new"}),
    }

    points = device.points({field: answer[name] for name, field in FIELDS.items() if name in answer})

A field parses the value (a number, or text with a unit), converts it to the unit of the metric, and refuses it with a
ValueError if it is not plausible. The plausible ranges are here, once for all drivers; ``least`` and ``most`` of a
field override them. For a quantity without a function below, write a Field with its metric and attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers.number import number
from opentelemetry.instrumentation.hardware.model import NONE, Attributes, Kind, Metric, Number, Rate, Series

# By unit of a driver, the factor to the base unit, as numerator and denominator.
SCALES: Final[Mapping[str, tuple[int, int]]] = {
    "": (1, 1),
    "%": (1, 100),
    "C": (1, 1),
    "m°C": (1, 1000),
    "W": (1, 1),
    "mW": (1, 1000),
    "µW": (1, 10**6),
    "J": (1, 1),
    "mJ": (1, 1000),
    "V": (1, 1),
    "mV": (1, 1000),
    "Hz": (1, 1),
    "MHz": (10**6, 1),
    "GT/s": (10**9, 1),
    "RPM": (1, 1),
    "x": (1, 1),
    "B": (1, 1),
    "KiB": (1 << 10, 1),
    "MiB": (1 << 20, 1),
    "GiB": (1 << 30, 1),
    "MiB/s": (1 << 20, 1),
    "s": (1, 1),
    "us": (1, 10**6),
    "ns": (1, 10**9),
    "s/s": (1, 1),
}

# A device that is awake is above freezing and draws power, so 0 means that the value could not be read.
POSITIVE: Final = 0.001

# Plausible ranges in base units: that of the metric, else that of its unit, else 0 to 2**53.
_RANGES: Final[Mapping[Metric, tuple[float, float]]] = {
    c.HW_TEMPERATURE: (POSITIVE, 150),
    c.HW_POWER: (POSITIVE, 20_000),
    c.HW_POWER_INSTANT: (POSITIVE, 20_000),
    c.HW_VOLTAGE: (POSITIVE, 100),
    c.HW_TEMPERATURE_LIMIT: (20, 150),
    c.HW_POWER_LIMIT: (1, 100_000),
    c.HW_POWER_UTILIZATION: (0, 10),
    c.HW_GPU_MEMORY_LIMIT: (1, 1 << 50),
    c.HW_NPU_MEMORY_LIMIT: (1, 1 << 50),
    c.HW_GPU_FREQUENCY_LIMIT: (1, 50e9),
    c.HW_GPU_PERFORMANCE_STATE: (0, 15),
    c.HW_FAN_SPEED: (0, (1 << 16) - 2),  # all ones: amdgpu does not know it
    c.HW_FAN_SPEED_RATIO: (0, 2),
}
_RANGES_BY_UNIT: Final[Mapping[str, tuple[float, float]]] = {
    "1": (0, 1),
    "W": (0, 100_000),
    "Hz": (0, 50e9),
    "By": (0, 1 << 50),
    "{transfer}/s": (1, 10**13),
}

# Plausible totals of a counter: 900 GB/s over NVLink is a petabyte in twenty minutes.
_TOTALS: Final = (0, 1 << 62)

_OVERSHOOT: Final = 1.001  # ratios up to this are rounding errors of the driver, and clamped to 1


class Field:
    """One value of a driver.

    Args:
        metric: The metric of the value.
        attributes: The attributes of its series, in addition to those of the device.
        unit: The driver's unit, one of :data:`SCALES`, with its spellings in text separated by ``|`` (``MiB|MB``), or a
            factor to the base unit as numerator and denominator. A counter with a unit per second (``MiB/s``, ``s/s``)
            is a rate, and its time integral is exported.
        least: The lowest plausible value in base units.
        most: The highest plausible value in base units.

    Attributes:
        series: Metric and attributes, without those of a device.
    """

    __slots__ = ("_denominator", "_is_rate", "_is_whole", "_least", "_most", "_numerator", "_spelled", "series")

    def __init__(
        self,
        metric: Metric,
        attributes: Attributes = NONE,
        unit: str | tuple[int, int] = "",
        least: float | None = None,
        most: float | None = None,
    ) -> None:
        self.series = Series(metric, attributes)
        self._spelled = unit if isinstance(unit, str) else ""
        self._numerator, self._denominator = SCALES[unit.partition("|")[0]] if isinstance(unit, str) else unit
        is_counter = metric.kind is Kind.COUNTER
        self._is_rate = is_counter and self._spelled.partition("|")[0].endswith("/s")
        by_unit = _TOTALS if is_counter and not self._is_rate else _RANGES_BY_UNIT.get(metric.unit, (0, 1 << 53))
        plausible = _RANGES.get(metric, by_unit)
        self._least = plausible[0] if least is None else least
        self._most = plausible[1] if most is None else most
        self._is_whole = metric.unit == "{error}"

    def __repr__(self) -> str:
        return f"Field({self.series!r})"

    def value(self, raw: object) -> Number | Rate:
        """Convert a value to the unit of the metric.

        Args:
            raw: A number, text with or without the unit, or a Rate in base units.

        Raises:
            ValueError: The value is not a number, or not plausible.
        """
        if type(raw) is Rate:
            return Rate(self._plausible(raw.per_second, raw))
        value = number(raw, self._spelled)
        if self._denominator > 1:
            value = value * self._numerator / self._denominator
        elif self._numerator > 1:
            value *= self._numerator
            value = int(value) if isinstance(value, float) and value.is_integer() else value
        value = self._plausible(value, raw)
        return Rate(value) if self._is_rate else value

    def is_plausible(self, raw: object) -> bool:
        """Whether :meth:`value` accepts a value."""
        try:
            self.value(raw)
        except ValueError:
            return False
        return True

    def _plausible(self, value: Any, raw: object) -> Any:
        if self._most == 1 < value <= _OVERSHOOT:
            return 1.0
        is_in_range = self._least <= value <= self._most and value < inf
        if not is_in_range or (self._is_whole and value != int(value)):
            text = raw.decode("utf-8", "replace").strip() if isinstance(raw, bytes) else str(raw)
            raise ValueError(f"the driver reports {text[:60]}, which is not plausible")
        return value


# -- the families


def utilization(task: str, unit: str | tuple[int, int] = "%", **limits: float) -> Field:
    """Utilization of a GPU by task: ``general``, ``memory``, ``encoder``, ``sm`` ..."""
    return Field(c.HW_GPU_UTILIZATION, {c.GPU_TASK: task}, unit, **limits)


def npu_utilization(task: str = "general", unit: str = "%", **limits: float) -> Field:
    """Utilization of an NPU by task."""
    return Field(c.HW_NPU_UTILIZATION, {c.NPU_TASK: task}, unit, **limits)


def temperature(sensor: str, unit: str = "C", **limits: float) -> Field:
    """Temperature at a sensor: ``gpu``, ``memory``, ``board``, ``die`` ..."""
    return Field(c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: sensor}, unit, **limits)


def temperature_limit(sensor: str, limit: str, unit: str = "C", **limits: float) -> Field:
    """Threshold of a sensor: ``high.degraded``, ``high.critical``, ``max``."""
    return Field(c.HW_TEMPERATURE_LIMIT, {c.HW_SENSOR_LOCATION: sensor, c.HW_LIMIT_TYPE: limit}, unit, **limits)


def memory_used(unit: str = "B", **limits: float) -> Field:
    """Used memory of a GPU."""
    return Field(c.HW_GPU_MEMORY_USAGE, NONE, unit, **limits)


def memory_total(unit: str = "B", **limits: float) -> Field:
    """Size of the memory of a GPU."""
    return Field(c.HW_GPU_MEMORY_LIMIT, NONE, unit, **limits)


def power(unit: str = "W", **limits: float) -> Field:
    """Power that the device draws."""
    return Field(c.HW_POWER, NONE, unit, **limits)


def power_limit(limit: str, unit: str = "W", **limits: float) -> Field:
    """Power limit: ``enforced``, ``max``, ``default``."""
    return Field(c.HW_POWER_LIMIT, {c.HW_LIMIT_TYPE: limit}, unit, **limits)


def energy(unit: str = "J", **limits: float) -> Field:
    """Energy counter of the device; see :attr:`.device.Device.counters`."""
    return Field(c.HW_ENERGY, NONE, unit, **limits)


def frequency(domain: str, unit: str = "MHz", **limits: float) -> Field:
    """Clock frequency of a GPU: ``graphics``, ``sm``, ``memory``, ``video``."""
    return Field(c.HW_GPU_FREQUENCY, {c.FREQUENCY_DOMAIN: domain}, unit, **limits)


def frequency_limit(domain: str, unit: str = "MHz", **limits: float) -> Field:
    """Highest clock frequency of a GPU."""
    return Field(c.HW_GPU_FREQUENCY_LIMIT, {c.FREQUENCY_DOMAIN: domain}, unit, **limits)


def voltage(rail: str, unit: str = "mV", **limits: float) -> Field:
    """Voltage: ``gpu``, ``soc``, ``memory``."""
    return Field(c.HW_VOLTAGE, {c.HW_SENSOR_LOCATION: rail}, unit, **limits)


def throttle(reason: str, unit: str = "s/s", **limits: float) -> Field:
    """Throttling by reason: 0 or 1 (``s/s``), or a counter of time (``ns``, ``us``)."""
    return Field(c.HW_GPU_THROTTLE_TIME, {c.THROTTLE_REASON: reason}, unit, **limits)


def link(name: str, direction: str, unit: str = "B", **limits: float) -> Field:
    """Bytes over a link (``pcie``, ``nvlink``, ``xgmi``): a counter, or a rate (``MiB/s``)."""
    return Field(c.HW_GPU_IO, {c.GPU_LINK: name, c.NETWORK_DIRECTION: direction}, unit, **limits)


def errors(kind: str, **limits: float) -> Field:
    """Counter of errors by ``error.type``, one of :data:`~.catalog.errors.ERROR_TYPES`."""
    if kind not in c.ERROR_TYPES:
        raise ValueError(f"{kind} is not among the types of errors in the catalog")
    return Field(c.HW_ERRORS, {c.ERROR_TYPE: kind}, "", **limits)
