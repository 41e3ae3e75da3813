"""DrmDriver: the devices of some kernel drivers in ``/sys/class/drm`` and ``/sys/class/accel``, and their processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver, Holders, Usage
from opentelemetry.instrumentation.hardware.accelerators.fdinfo import AllClients, Clients
from opentelemetry.instrumentation.hardware.accelerators.sysfs import Card, SysfsDevice, cards_of, followed
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.files import Files
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

# By kernel driver, what makes a device of a card and its index.
Makers: TypeAlias = Mapping[str, Callable[[Files, Card, int], SysfsDevice]]


class DrmDriver(AcceleratorDriver):
    """The devices of some kernel drivers.

    Args:
        names: Other names of these drivers in the files of processes.
        absent: The reason of Unavailable.

    Attributes:
        everybody: The clients of all processes.

    Raises:
        Unavailable: There is no device.
    """

    def __init__(self, files: Files, makers: Makers, names: Collection[str], absent: str) -> None:
        self._files = files
        self._makers = makers
        self._devices: dict[str, SysfsDevice] = {}
        self._clients = Clients(files, {*makers, *names})
        self.everybody = AllClients(files, {*makers, *names})
        if not self.devices():
            raise Unavailable(absent)

    def devices(self) -> Sequence[SysfsDevice]:
        """Return all devices, also suspended and removed ones."""
        return followed(cards_of(self._files, self._makers), self._devices, self._device)

    def _device(self, card: Card) -> SysfsDevice:
        alike = [each for each in self._devices.values() if each.card.name[:4] == card.name[:4]]
        return self._makers[card.driver](self._files, card, len(alike))

    @property
    def min_interval(self) -> float:  # type: ignore[override]
        return max(device.idle_interval for device in self._devices.values())

    def usage(self, program: ProcessTree) -> Iterable[Usage]:
        return self._clients.usage(program, self.devices(), self.only_looks)

    def holders(self) -> Iterator[tuple[Device, Holders]]:
        return self.everybody.holders(self.devices())
