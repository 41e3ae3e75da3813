"""Devices that the system suspends while they are not used (runtime power management), as in laptops.

A reading wakes the device, and keeps it awake. The kernel reports the state without waking it:
https://docs.kernel.org/power/runtime_pm.html
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.system.files import Files, read_or_empty, read_text

_DEVICES: Final = "/sys/bus/pci/devices"


class RuntimePower:
    """The runtime power state of the devices at these PCI addresses, such as ``0000:1a:00.0``."""

    def __init__(self, files: Files | None, addresses: Sequence[str]) -> None:
        self._files = files
        self._addresses = addresses
        self._managed = {address for address in addresses if files and is_managed(files, f"{_DEVICES}/{address}")}

    def is_suspended(self, address: str) -> bool:
        """Whether a device is suspended now."""
        folder = f"{_DEVICES}/{address}"
        return self._files is not None and address in self._managed and is_suspended(self._files, folder)

    def are_all_suspended(self) -> bool:
        """Whether there are devices, and all of them are suspended."""
        return bool(self._addresses) and all(map(self.is_suspended, self._addresses))


def is_managed(files: Files, folder: str) -> bool:
    """Whether the system suspends the device with this folder while it is not used."""
    return read_text(files, f"{folder}/power/control") == "auto"


def is_suspended(files: Files, folder: str) -> bool:
    """Whether the device with this folder is suspended. Reading ``runtime_status`` does not wake it."""
    return read_or_empty(files, f"{folder}/power/runtime_status").startswith(b"suspend")


def autosuspend_delay(files: Files, folder: str) -> float:
    """Return the seconds without a reading after which a device is suspended, and a little more; 0 if it never is."""
    milliseconds = read_text(files, f"{folder}/power/autosuspend_delay_ms")
    if not is_managed(files, folder) or not re.fullmatch("[0-9]{1,5}", milliseconds):
        return 0.0
    return int(milliseconds) / 1000 + 1
