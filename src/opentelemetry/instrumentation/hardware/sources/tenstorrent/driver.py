"""The accelerators of tt-kmd, the only way to read them: tt-smi itself would disturb a program that uses them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver
from opentelemetry.instrumentation.hardware.accelerators.sysfs import Card, find_cards, followed
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.tenstorrent.device import CLASS, Npu
from opentelemetry.instrumentation.hardware.system.files import Files

_NOT_REPORTED: Final = (
    "hw.npu.utilization, hw.npu.memory.*: neither the driver nor the firmware reports how busy the cores are, or the "
    "memory in use"
)


class Kernel(AcceleratorDriver):
    """The accelerators that the driver lists.

    Raises:
        Unavailable: There is none.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._devices: dict[str, Npu] = {}
        if not self.devices():
            raise Unavailable("tt-kmd has no accelerator", "tt-smi -l should list them in the same environment")

    def devices(self) -> Sequence[Npu]:
        """Return all accelerators, also removed ones."""
        devices = followed(find_cards(self._files, CLASS), self._devices, self._device)
        return sorted(devices, key=lambda device: device.index)

    def _device(self, card: Card) -> Npu:
        return Npu(self._files, card, int(card.name.partition("!")[2]))

    def unsupported(self) -> Iterator[str]:
        yield _NOT_REPORTED
