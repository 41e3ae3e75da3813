"""One TPU device, and the devices of a host as the runtime numbers them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.facts import known
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.tpu.fields import SEPARATE_CORES


class TpuDevice(Device):
    """A chip; on v2 and v3 also a core of a chip; or all devices of the host or node together.

    Args:
        parent: The ``hw.id`` of the chip of a core; "" if unknown.
        model: The model of the chip; "" if unknown.
        address: The PCI address; "" if unknown.

    Attributes:
        is_listed: Whether its identity is reported, if it has any.
        sampled: The newest values, by field.
        slow: The newest values that are read slowly, by field.
    """

    def __init__(self, id: str, name: str, parent: str = "", model: str = "", address: str = "") -> None:  # noqa: A002
        super().__init__(id, name, "npu", parent, address=address)
        self.facts = known({c.HW_VENDOR: "Google", c.HW_MODEL: model, c.PCI_BDF: address})
        self.is_listed = True
        self.sampled: dict[Field, object] = {}
        self.slow: dict[Field, object] = {}

    def read(self) -> Iterator[Point]:
        self.unsupported.clear()
        yield from self.points(self.sampled)

    def read_slow(self) -> Iterator[Point]:
        yield from self.points(self.slow)

    def identity_points(self) -> Iterator[Point]:
        if self.is_listed:
            yield from super().identity_points()


class Devices:
    """The devices of a host: chips, or on v2 and v3 the cores of chips.

    On v2 and v3, two cores share a duty cycle, which is reported for the chip. The runtime does not report which cores
    belong to a chip; it lists both in the same order.

    Args:
        chips: The models of the chips on the PCI bus, by address.

    Attributes:
        whole: Stands for all devices of the host or node.
    """

    def __init__(self, chips: Mapping[str, str]) -> None:
        self.whole = TpuDevice("tpu", "TPU")
        self.whole.facts = {}
        self._model = next(iter(chips.values()), "")
        self._known: dict[tuple[str, str], TpuDevice] = {}
        self._chips: dict[int, TpuDevice] = {}
        self._cores: dict[int, TpuDevice] = {}
        self._unnumbered = [
            TpuDevice(address, f"TPU chip {place}", model=model, address=address)
            for place, (address, model) in enumerate(chips.items())
        ]

    def update(self, duty: Iterable[int], memory: Iterable[int]) -> None:
        """Update the devices from the numbers that report a duty cycle, and those that report memory."""
        chips, cores = sorted(duty), sorted(memory)
        shared = self._model in SEPARATE_CORES
        if shared and chips:
            self._chips = {number: self._chip(number) for number in chips}
        if cores and not shared:
            self._chips = {}
            self._cores = {number: self._chip(number) for number in cores}
        elif cores:
            parents = [chip.id for chip in self._chips.values() for _ in range(2)]
            parents = parents if len(parents) == len(cores) else [""] * len(cores)
            self._cores = {
                number: self._device(f"tpucore{number}", f"TPU core {number}", parent)
                for number, parent in zip(cores, parents)
            }

    def _device(self, id: str, name: str, parent: str = "") -> TpuDevice:  # noqa: A002
        if (id, parent) not in self._known:
            self._known[id, parent] = TpuDevice(id, name, parent, self._model)
        return self._known[id, parent]

    def _chip(self, number: int) -> TpuDevice:
        return self._device(f"tpu{number}", f"TPU {number}")

    def chip(self, number: int) -> TpuDevice:
        """Return the device that the duty cycle with this number belongs to."""
        return self._chips.get(number) or self.core(number)

    def core(self, number: int) -> TpuDevice:
        """Return the device that the memory with this number belongs to."""
        return self._cores.get(number) or self._chip(number)

    def local(self, index: int, count: int) -> TpuDevice:
        """Return the device at an index among ``count`` devices of this host. The runtime may not count from 0."""
        cores = [*self._cores.values()]
        return cores[index] if index < count == len(cores) else self.core(index)

    def all(self) -> list[TpuDevice]:
        """Return every device that has had values. Chips on the PCI bus are listed until the runtime numbers them."""
        listed = [*self._chips.values(), *self._cores.values()] or self._unnumbered
        for device in self._known.values():
            device.is_listed = device in listed
        used = [self.whole] if self.whole.sampled or self.whole.slow or self.whole.facts else []
        return [*dict.fromkeys((*listed, *self._known.values(), *used))]
