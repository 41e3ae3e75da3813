"""The accelerators of tt-kmd, the only way to read them: tt-smi itself would disturb a program that uses them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver
from opentelemetry.instrumentation.hardware.accelerators.sysfs import Card
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.tenstorrent.device import Npu
from opentelemetry.instrumentation.hardware.system.files import Files, names_or_empty, read_text

CLASS: Final = "/sys/class/tenstorrent"

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
        for name in names_or_empty(self._files, CLASS):
            number = re.fullmatch("tenstorrent!([0-9]{1,4})", name)
            if number:
                folder = f"{CLASS}/{name}/device"
                address = re.search("^PCI_SLOT_NAME=(.+)$", read_text(self._files, f"{folder}/uevent"), re.MULTILINE)
                if address:
                    place = address[1].lower()
                    card = Card(place, place, name, folder, "tenstorrent", "")
                    if place in self._devices:
                        self._devices[place].place(card)
                    else:
                        self._devices[place] = Npu(self._files, card, int(number[1]))
        return sorted(self._devices.values(), key=lambda device: device.index)

    def unsupported(self) -> Iterator[str]:
        yield _NOT_REPORTED
