"""Devices that the system suspends while they are not used (runtime power management), as in laptops.

A reading wakes the device, and keeps it awake. The kernel reports the state without waking it:
https://docs.kernel.org/power/runtime_pm.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.system.files import Files, read_or_empty, read_text


class RuntimePower:
    """The runtime power state of the devices at these PCI addresses, such as ``0000:1a:00.0``."""

    def __init__(self, files: Files | None, addresses: Sequence[str]) -> None:
        self._files = files
        self._addresses = addresses
        self._managed = {address for address in addresses if self._power(address, "control") == "auto"}

    def is_suspended(self, address: str) -> bool:
        """Whether a device is suspended now."""
        return address in self._managed and self._power(address, "runtime_status") == "suspended"

    def are_all_suspended(self) -> bool:
        """Whether there are devices, and all of them are suspended."""
        return bool(self._addresses) and all(map(self.is_suspended, self._addresses))

    def _power(self, address: str, name: str) -> str:
        return read_text(self._files, f"/sys/bus/pci/devices/{address}/power/{name}") if self._files else ""


def is_suspended(files: Files, folder: str) -> bool:
    """Whether the device with this folder is suspended. Reading ``runtime_status`` does not wake it."""
    return read_or_empty(files, f"{folder}/power/runtime_status").startswith(b"suspend")


def longest_rest(devices: Iterable[Device]) -> float:
    """Return the seconds between two readings: more than the autosuspend delay of each device that is idle."""
    return max((each.idle_interval for each in devices if not (each.is_suspended or each.trouble)), default=0.0)


def autosuspend_delay(files: Files, folder: str) -> float:
    """Return the seconds without a reading after which a device is suspended, and a little more; 0 if it never is."""
    milliseconds = read_text(files, f"{folder}/power/autosuspend_delay_ms")
    if read_text(files, f"{folder}/power/control") != "auto" or not re.fullmatch("[0-9]{1,5}", milliseconds):
        return 0.0
    return int(milliseconds) / 1000 + 1
