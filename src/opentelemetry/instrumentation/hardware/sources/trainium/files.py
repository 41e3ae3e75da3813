"""What the Neuron driver says in its files: what the devices are, their memory, their errors.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-sysfs-user-guide.html

The files are read and never written: writing to a counter clears it, writing to ``reset`` resets the device. Driver
2.31 has moved some of them; so they are known by their names, and one that is not where it used to be is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware.drivers import Kernel

ROOT: Final = "/sys/devices/virtual/neuron_device"

MODULE: Final = "/sys/module/neuron"

_PLACES: Final = {
    "core_count": "core_count",
    "serial_number": "info/serial_number",
    "device_name": "info/architecture/device_name",
    "mem_ecc_corrected": "stats/hardware/mem_ecc_corrected",
    "mem_ecc_uncorrected": "stats/hardware/mem_ecc_uncorrected",
    "mem_ecc_repairable_uncorrected": "stats/hardware/mem_ecc_repairable_uncorrected",
    "sram_ecc_corrected": "stats/hardware/sram_ecc_corrected",
    "sram_ecc_uncorrected": "stats/hardware/sram_ecc_uncorrected",
    "utilization": "stats/power/utilization",
    "device_mem": "neuron_core0/stats/memory_usage/device_mem",
}
"""Where things were before 2.31, in the folder of a device."""

ERRORS: Final = {
    "mem_ecc_corrected": "mem_corrected",
    "mem_ecc_uncorrected": "mem_uncorrected",
    "mem_ecc_repairable_uncorrected": "mem_repairable",
    "sram_ecc_corrected": "sram_corrected",
    "sram_ecc_uncorrected": "sram_uncorrected",
}
"""``error.type`` of each counter, the tool's too."""

_NOT_ENTERED: Final = ("subsystem", "device", "status", "other_info", "host_mem", "tensor_engine")
"""Folders without anything that is looked for; the first ones lead out of the device's own."""

_DEEP: Final = 6
_LOOKS: Final = 400
"""How deep and how long is looked for what has moved."""


PRESENT: Final = (ROOT, MODULE, "/dev/neuron0")
"""One of these there is, where there is a Neuron driver, or a device that a container was given."""


def is_here(kernel: Kernel) -> bool:
    """Whether there is a Neuron driver, or a device that a container was given."""
    return any(kernel.exists(path) for path in PRESENT)


class Files:
    """The files of all devices.

    Args:
        kernel: reads them.

    Attributes:
        devices: the numbers of the devices.
        version: of the driver; empty where it does not say.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.devices: Sequence[int] = sorted(_numbers(kernel, ROOT, "neuron"))
        self.version = _text(kernel, f"{MODULE}/version")
        self._places = self._located() if self.devices else {}
        self._last: dict[str, int] = {}

    def _located(self) -> dict[str, str]:
        """Where things are in the folder of a device."""
        first = f"{ROOT}/neuron{self.devices[0]}"
        found = {name: place for name, place in _PLACES.items() if self._kernel.exists(f"{first}/{place}")}
        lost = set(_PLACES) - set(found)
        moved = dict(_search(self._kernel, first, lost)) if {"serial_number", "mem_ecc_uncorrected"} & lost else {}
        return {**moved, **found}

    def text(self, device: int, name: str) -> str:
        """What a file says; empty where there is none."""
        place = self._places.get(name)
        return _text(self._kernel, f"{ROOT}/neuron{device}/{place}") if place else ""

    def says(self, name: str) -> bool:
        """Whether there is such a file."""
        return name in self._places

    def cores(self, device: int) -> int | None:
        """How many physical cores a device has."""
        said = self.text(device, "core_count")
        return int(said) if re.fullmatch("[0-9]{1,3}", said) and int(said) else None

    def errors(self, device: int) -> Iterator[tuple[str, int]]:
        """Memory errors since the driver was loaded, by ``error.type``.

        Where the device cannot be asked the driver says 0; so a 0 after more than that is not believed.
        """
        for name, kind in ERRORS.items():
            said = self.text(device, name)
            if not re.fullmatch("[0-9]{1,18}", said):
                continue
            key = f"{device} {name}"
            if int(said) or not self._last.get(key):
                self._last[key] = int(said)
                yield kind, int(said)

    def power(self, device: int) -> float | None:
        """Mean power of the newest minute, as a share of the most that the device may draw; 0 is not believed."""
        valid = re.fullmatch(
            r"POWER_STATUS_VALID,\s*[0-9]+,\s*[0-9.]+,\s*[0-9.]+,\s*([0-9]{1,3}(?:\.[0-9]*)?)",
            self.text(device, "utilization"),
        )
        share = float(valid[1]) / 100 if valid else 0.0
        return share if 0 < share <= 1 else None

    def memory(self, device: int, core: int) -> Mapping[str, int]:
        """Bytes of the device's memory that are in use for a core, by category; those of all under an empty name."""
        place = self._places.get("device_mem", "")
        if not place:
            return {}
        folder = f"{ROOT}/neuron{device}/{place.replace('neuron_core0', f'neuron_core{core}')}"
        try:
            names = self._kernel.names(folder)
        except OSError:
            return {}
        said = {name: _text(self._kernel, f"{folder}/{name}/present") for name in names if name not in _COUNTS}
        said[""] = _text(self._kernel, f"{folder}/present")
        return {name: int(text) for name, text in said.items() if re.fullmatch("[0-9]{1,15}", text)}


_COUNTS: Final = ("present", "peak", "total")


def _search(kernel: Kernel, folder: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """Look for things in the folder of a device and below: each with its place there."""
    waiting, looks = [""], 0
    while waiting and looks < _LOOKS:
        below = waiting.pop(0)
        looks += 1
        try:
            found = kernel.names(f"{folder}/{below}".rstrip("/"))
        except OSError:  # a file
            continue
        for name in sorted(found):
            place = f"{below}/{name}".lstrip("/")
            other = re.fullmatch("neuron_core[1-9][0-9]*", name)
            if name in names and (name != "device_mem" or "neuron_core0" in place):
                yield name, place
            elif name not in (*_NOT_ENTERED, *_COUNTS) and not other and place.count("/") < _DEEP:
                waiting.append(place)


def _numbers(kernel: Kernel, folder: str, prefix: str) -> Iterator[int]:
    with suppress(OSError):
        for name in kernel.names(folder):
            number = name.removeprefix(prefix)
            if name != number and number.isdecimal() and len(number) < 4:
                yield int(number)


def _text(kernel: Kernel, path: str) -> str:
    try:
        text = kernel.once(path).decode(errors="replace").strip()
    except OSError:
        return ""
    return text if text.isprintable() else ""
