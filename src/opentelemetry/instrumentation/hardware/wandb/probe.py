"""The interface of a vendor's W&B keys and of the readings that they are computed from.

A vendor's module has two names: ``KEYS``, its table of keys, and ``Probe``, which returns the reading that they are
computed from.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Generic, TypeAlias, TypeVar

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.model import NONE, Attributes, Metric, Number, Point, Rate, Value
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext

AnySource = TypeVar("AnySource", bound=Source)
Reading = TypeVar("Reading")

NO_VALUES: Mapping[str, Number] = MappingProxyType({})

_IDENTITY = (c.HW_ID, c.HW_NAME, c.HW_TYPE, c.HW_PARENT)
"""The attributes that name a device."""


@dataclass(frozen=True)
class Key(Generic[Reading]):
    """One key of W&B.

    Attributes:
        name: As W&B's pages spell it; ``{i}``, ``{path}`` and the like stand for a number or a word.
        unit: W&B's unit.
        formula: W&B's formula, in words.
        value: Returns the value, or the value of each device by what stands for ``{i}``; None if it is unknown.
        metrics: The metrics of this package that measure the same.
    """

    name: str
    unit: str
    formula: str
    value: Callable[[Reading], Number | Mapping[int, Number | None] | Mapping[str, Number | None] | None]
    metrics: tuple[Metric, ...] = ()

    def values(self, reading: Reading) -> Iterator[tuple[str, Number]]:
        """The key with its value, once for each device."""
        value = self.value(reading)
        parts = re.split(r"\.\{.*\}", self.name)
        for place, number in value.items() if isinstance(value, Mapping) else [("", value)]:
            if number is not None:
                yield ("" if place == "" else f".{place}").join(parts), number


class Probe(ABC, Generic[Reading]):
    """Makes the readings that the keys of one vendor are computed from. One thread uses it.

    Args:
        config: The settings.
        pid: The observed process.

    Attributes:
        timeout: Seconds after which a call of :meth:`read` counts as hung.
        expected: Whether there is any sign of the vendor's driver; if not, it is not read.
        error: Why the last reading is missing or incomplete.
    """

    timeout: ClassVar[float] = 5.0  # nvidia-smi needs seconds where no driver stays loaded

    def __init__(self, config: Config, pid: int) -> None:
        self.config = config
        self.pid = pid
        self.expected = True
        self.error = ""

    @abstractmethod
    def read(self) -> Reading | None:
        """Return the current reading; None if there is none."""

    def close(self) -> None:
        """Release all resources."""


class SourceProbe(Probe[Reading], Generic[AnySource, Reading]):
    """Reads a source. It is opened by the first reading, and again after a failure."""

    source_class: type[AnySource]

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(config, pid)
        self.context = SourceContext(config, Drivers(), pid, environ=_environ(pid))
        self.expected = self.source_class.prepare(config)
        self._source: AnySource | None = None

    def read(self) -> Reading | None:
        """Return the current reading; None if the source cannot be opened or read."""
        try:
            if self._source is None:
                source = self.source_class(self.context)
                self._source = source
                source.open()
            source = self._source
            reading = self.convert(source, [*source.read_all()])
            self.error = "; ".join(source.errors)
        except Exception as error:
            self.close()
            self.error = str(error)
            return None
        return reading

    @abstractmethod
    def convert(self, source: AnySource, points: list[Point]) -> Reading:
        """Return the reading that the keys are computed from.

        Args:
            source: The source.
            points: The points that it has just read.
        """

    def close(self) -> None:
        """Close the source."""
        source, self._source = self._source, None
        if source is not None:
            with suppress(DriverError):  # a driver that failed holds nothing
                source.close()


class Device:
    """One device at one moment.

    Attributes:
        index: The index of a GPU, or of the GPU that a partition is a part of; None if it is unknown.
        kind: ``hw.gpu.type``; "" if it is unknown.
        is_used: Whether the observed process or a child of it uses the device or a part of it.
        values: What is not among the source's points, by the last part of its key. It takes precedence over them.
    """

    def __init__(self, values: Mapping[str, Number] = NO_VALUES) -> None:
        self.index: int | None = None
        self.kind = ""
        self.is_used = False
        self.values = {**values}
        self._points: dict[tuple[Metric, frozenset[tuple[str, str | int]]], Value] = {}

    def add(self, metric: Metric, attributes: Attributes, value: Value) -> None:
        """Add a point."""
        others = frozenset((name, word) for name, word in attributes.items() if name not in _IDENTITY)
        self._points[metric, others] = value
        self.is_used = self.is_used or metric.name.startswith("process.")

    def get(self, metric: Metric, attributes: Attributes = NONE, factor: float = 1) -> Number | None:
        """A value in W&B's unit: the point's value times a factor; None if there is no such point."""
        value = self._points.get((metric, frozenset(attributes.items())))
        if isinstance(value, Rate):
            value = value.per_second
        return None if value is None or isinstance(value, tuple) else value * factor

    def __contains__(self, metric: Metric) -> bool:
        return any(each is metric for each, _ in self._points)


Devices: TypeAlias = "Mapping[int, Device]"
"""The devices by the index in their keys."""


def by_device(points: Iterable[Point], used: Collection[str] = ()) -> dict[str, Device]:
    """The devices by ``hw.id``. The points of a GPU's first fan are the GPU's, as W&B has them.

    Args:
        points: The points.
        used: The ids of the devices that the program uses, also if there are no points about its usage.
    """
    devices: dict[str, Device] = {}
    for series, value in points:
        if c.HW_ID not in series.attributes:
            continue
        name = str(series.attributes[c.HW_ID]).removesuffix("/fan0")
        device = devices.setdefault(name, Device())
        device.add(series.metric, series.attributes, value)
        if series.metric is c.HW_GPU_INFO and c.GPU_INDEX in series.attributes:
            device.index = int(series.attributes[c.GPU_INDEX])
            device.kind = str(series.attributes.get(c.GPU_TYPE, ""))
    for name in devices.keys() & used:
        devices[name].is_used = True
    return devices


def device_key(
    name: str, unit: str, formula: str, value: Callable[[Device], Number | None], *metrics: Metric
) -> Key[Devices]:
    """A key that each device has once; ``{i}`` stands for its index.

    Args:
        name: The key.
        unit: W&B's unit.
        formula: W&B's formula, in words.
        value: Returns the value of a device for which :attr:`Device.values` has none; None if it is unknown.
        metrics: The metrics of this package that measure the same.
    """
    last = name.rpartition("}.")[2]

    def values(devices: Devices) -> dict[int, Number | None]:
        return {index: device.values.get(last, value(device)) for index, device in devices.items()}

    return Key(name, unit, formula, values, metrics)


def point_key(
    name: str, unit: str, formula: str, metric: Metric, attributes: Attributes = NONE, factor: float = 1
) -> Key[Devices]:
    """A key that each device has once: the value of a point, times a factor."""
    return device_key(name, unit, formula, lambda device: device.get(metric, attributes, factor), metric)


def extra_key(name: str, unit: str, formula: str, *metrics: Metric) -> Key[Devices]:
    """A key that each device has once, and that the probe adds to :attr:`Device.values`."""
    return device_key(name, unit, formula, lambda device: None, *metrics)


def power_percent(device: Device) -> float | None:
    """Power in percent of its enforced limit."""
    return percent(device.get(c.HW_POWER), device.get(c.HW_POWER_LIMIT, {c.HW_LIMIT_TYPE: "enforced"}))


def memory_percent(device: Device) -> float | None:
    """Memory in use in percent of the memory of a GPU."""
    return percent(device.get(c.HW_GPU_MEMORY_USAGE), device.get(c.HW_GPU_MEMORY_LIMIT))


def percent(part: Number | None, whole: Number | None) -> float | None:
    """Return a share in percent; None if a number is missing or the whole is zero."""
    return None if part is None or not whole else part / whole * 100


def _environ(pid: int) -> Mapping[str, str]:
    """Return the environment variables of a process; of another one those of its start, and ours if it hides them."""
    if pid == os.getpid():
        return os.environ
    import psutil

    try:
        return psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return os.environ
