"""A Neuron device and its NeuronCores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.facts import known
from opentelemetry.instrumentation.hardware.model import Number, Point, Series
from opentelemetry.instrumentation.hardware.sources.trainium import fields as f
from opentelemetry.instrumentation.hardware.sources.trainium.processes import total
from opentelemetry.instrumentation.hardware.sources.trainium.report import Hardware
from opentelemetry.instrumentation.hardware.sources.trainium.sysfs import Sysfs


class NeuronCore(Device):
    """A NeuronCore, as programs see it.

    Args:
        parent: The id of its device; "" if unknown.
        physical: Read the memory of each of its physical cores from the driver's files, if no tool reports it.

    Attributes:
        percent: Utilization by all runtimes in percent; None if no runtime uses the core.
        memory: Bytes of device memory in use by category.
    """

    def __init__(self, number: int, parent: str, physical: Sequence[Callable[[], Mapping[str, int]]]) -> None:
        super().__init__(f"neuroncore{number}", f"NeuronCore {number}", "npu", parent, index=number)
        self._physical = physical
        self.percent: Number | None = None
        self.memory: Mapping[str, Number] = {}

    def read(self) -> Iterator[Point]:
        if self.percent is not None:
            yield from self.points({f.UTILIZATION: min(100, self.percent)})
        yield from self._memory_points(self.memory)

    def read_slow(self) -> Iterator[Point]:
        if self._physical:
            sizes = [read() for read in self._physical]
            yield from self._memory_points(total(sizes) if all(sizes) else {})

    def _memory_points(self, memory: Mapping[str, Number]) -> Iterator[Point]:
        for category, size in memory.items():
            series = Series(c.AWS_NEURON_NEURONCORE_MEMORY_USAGE, {c.NEURON_MEMORY_CATEGORY: category})
            yield self.series(series)(size)


class NeuronDevice(Device):
    """A Neuron device.

    Attributes:
        is_listed: Whether the driver or the tool lists it. Otherwise it only holds the cores.
        cores: The numbers of its cores, as programs see them.
        possible: All cores that may be on it, by slot.
        hardware: The properties of all devices, from the tool.
        ecc: Memory errors, from the tool.
        runtime_memory: Bytes that all runtimes use; None if unknown.
    """

    def __init__(self, number: int, sysfs: Sysfs) -> None:
        super().__init__(f"neuron{number}", f"Neuron {number}", "npu", index=number)
        self._sysfs = sysfs
        self.is_listed = True
        self.cores: Sequence[int] = ()
        self.possible: Mapping[int, Device] = {}
        self.hardware = Hardware()
        self.ecc: Mapping[str, int] = {}
        self.runtime_memory: Number | None = None

    @property
    def selectable(self) -> Mapping[int, Device]:
        return self.possible

    def read(self) -> Iterator[Point]:
        """Yield memory from the driver's files, or else from the runtimes."""
        if not self.is_listed:
            return
        used: Number | None = self._sysfs.memory_used(self.index)
        if used is None:
            used = self.runtime_memory
        total = self.hardware.memory
        sizes = {} if used is None else {f.MEMORY_USED: used}
        if total and (used is None or used <= total):
            sizes[f.MEMORY_TOTAL] = total
        yield from self.points(sizes)

    def read_slow(self) -> Iterator[Point]:
        if not self.is_listed:
            self.facts = {}
            return
        files, number = self._sysfs, self.index
        self.facts = known(
            {
                c.HW_VENDOR: "AWS",
                c.HW_MODEL: files.text(number, "device_name") or self.hardware.model,
                c.HW_SERIAL_NUMBER: files.text(number, "serial_number"),
                c.HW_DRIVER_VERSION: files.version,
            }
        )
        yield from self.points({f.ERRORS[name]: count for name, count in files.errors(number, self.ecc).items()})
        percent = files.power_percent(number)
        if percent is not None:
            yield from self.points({f.POWER: percent})
