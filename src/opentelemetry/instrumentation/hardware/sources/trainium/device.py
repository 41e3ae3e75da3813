"""A Neuron device and its NeuronCores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import FoundDevice
from opentelemetry.instrumentation.hardware.model import Number, Point, Series
from opentelemetry.instrumentation.hardware.sources.trainium.fields import (
    ERRORS,
    MEMORY_TOTAL,
    MEMORY_USED,
    POWER,
    UTILIZATION,
)
from opentelemetry.instrumentation.hardware.sources.trainium.report import Hardware
from opentelemetry.instrumentation.hardware.sources.trainium.sysfs import Sysfs
from opentelemetry.instrumentation.hardware.sources.trainium.visible import neuron_device


class PhysicalCore(NamedTuple):
    """A core by its number on a device, as the driver's files have it."""

    sysfs: Sysfs
    device: int
    core: int


class NeuronCore(Device):
    """A core that programs see.

    Args:
        number: Its number in the instance.
        parent: The device that it is on; "" if unknown.
        physical: The core whose memory is read from the driver's files, if no tool reports it.

    Attributes:
        percent: Utilization by all runtimes; None if none uses it.
        memory: Bytes of device memory in use by category.
    """

    def __init__(self, number: int, parent: str, physical: PhysicalCore | None) -> None:
        super().__init__(f"neuroncore{number}", f"NeuronCore {number}", "npu", parent, index=number)
        self._physical = physical
        self.percent: Number | None = None
        self.memory: Mapping[str, Number] = {}

    def read(self) -> Iterator[Point]:
        """Utilization and memory, from the newest report."""
        if self.percent is not None:
            yield from self.points({UTILIZATION: min(100, self.percent)})
        yield from self._memory_points(self.memory)

    def read_slow(self) -> Iterator[Point]:
        """Memory, from the driver's files."""
        if self._physical is not None:
            sysfs, device, core = self._physical
            yield from self._memory_points(sysfs.memory_by_category(device, core))

    def _memory_points(self, memory: Mapping[str, Number]) -> Iterator[Point]:
        for category, size in memory.items():
            series = Series(c.AWS_NEURON_NEURONCORE_MEMORY_USAGE, {c.NEURON_MEMORY_CATEGORY: category})
            yield self.series(series)(size)


class NeuronDevice(Device):
    """A device.

    Args:
        number: Its number.
        sysfs: The driver's files.

    Attributes:
        is_listed: Whether the driver or the tool lists it. Otherwise it only stands for the device of all cores.
        cores: Its cores, as programs see them.
        unplaced: Cores that may be on any device.
        hardware: What the tool reports about all devices.
        ecc: Memory errors that the tool reports.
        runtime_memory: Bytes that all runtimes use; None if unknown.
    """

    def __init__(self, number: int, sysfs: Sysfs) -> None:
        super().__init__(f"neuron{number}", f"Neuron {number}", "npu", index=number)
        self._sysfs = sysfs
        self.is_listed = True
        self.cores: Sequence[int] = ()
        self.unplaced: Sequence[int] = ()
        self.hardware = Hardware()
        self.ecc: Mapping[str, int] = {}
        self.runtime_memory: Number | None = None

    def described(self) -> FoundDevice:
        """The device with all cores that may be on it."""
        return neuron_device(self.index, [*self.cores, *self.unplaced])

    def read(self) -> Iterator[Point]:
        """Memory, from the driver's files or from the runtimes."""
        if not self.is_listed:
            return
        used: Number | None = self._sysfs.memory_used(self.index)
        if used is None:
            used = self.runtime_memory
        total = self.hardware.memory
        if used is not None:
            yield from self.points({MEMORY_USED: used} | ({MEMORY_TOTAL: total} if total and used <= total else {}))

    def read_slow(self) -> Iterator[Point]:
        """Memory errors and power."""
        if not self.is_listed:
            self.facts = {}
            return
        files, number = self._sysfs, self.index
        facts = {
            c.HW_VENDOR: "AWS",
            c.HW_MODEL: files.text(number, "device_name") or self.hardware.model,
            c.HW_SERIAL_NUMBER: files.text(number, "serial_number"),
            c.HW_DRIVER_VERSION: files.version,
        }
        self.facts = {name: fact for name, fact in facts.items() if fact}
        yield from self.points({ERRORS[name]: count for name, count in files.errors(number, self.ecc).items()})
        percent = files.power_percent(number)
        if percent is not None:
            yield from self.points({POWER: percent})
