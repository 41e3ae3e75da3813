"""What the Neuron driver says in its files: what the devices are, their memory, their errors.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-sysfs-user-guide.html

The files are read and never written: writing to a counter clears it, writing to ``reset`` resets the device. Driver
2.31 has moved some of them; so they are known by their names, and one that is not where it used to be is looked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware.system.files import Files

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

_WITHIN: Final = {"device_mem": "neuron_core0", "utilization": "power"}
"""What the place of a name has in it, where the name alone could mean something else."""

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


def is_here(exists: Callable[[str], bool]) -> bool:
    """Whether there is a Neuron driver, or a device that a container was given."""
    return any(map(exists, PRESENT))


class Sysfs:
    """The files of all devices.

    Args:
        kernel: reads them.

    Attributes:
        cores: how many physical cores each device has, by its number; None where it does not say.
        version: of the driver; empty where it does not say.
    """

    def __init__(self, kernel: Files) -> None:
        self._kernel = kernel
        self._last: dict[str, int] = {}
        self._places: dict[str, str] = {}
        self.cores: dict[int, int | None] = {}
        self.version = _text(kernel, f"{MODULE}/version")
        self.look()

    def look(self) -> None:
        """See which devices there are now: a driver can be taken out, and another be put in."""
        devices = sorted(_numbers(self._kernel, ROOT, "neuron"))
        if devices != [*self.cores]:
            self.version = _text(self._kernel, f"{MODULE}/version")
            self._places = self._located(devices[0]) if devices else {}
            self.cores = {device: self._count(device) for device in devices}

    def _located(self, device: int) -> dict[str, str]:
        """Where things are in the folder of a device."""
        folder = f"{ROOT}/neuron{device}"
        found = {name: place for name, place in _PLACES.items() if self._kernel.exists(f"{folder}/{place}")}
        for name, place in _search(self._kernel, folder, set(_PLACES) - set(found) - _NEWER):
            found.setdefault(name, place)
        return found

    def _count(self, device: int) -> int | None:
        said = self.text(device, "core_count")
        return int(said) if re.fullmatch("[0-9]{1,3}", said) and int(said) else None

    def text(self, device: int, name: str) -> str:
        """What a file says; empty where there is none."""
        place = self._places.get(name)
        return _text(self._kernel, f"{ROOT}/neuron{device}/{place}") if place else ""

    def errors(self, device: int, else_: Mapping[str, int]) -> Iterator[tuple[str, int]]:
        """Memory errors since the driver was loaded, by ``error.type``.

        Where the device cannot be asked the driver says 0; so a 0 after more than that is not believed.

        Args:
            device: its number.
            else_: what the tool says, for the counters of which there is no file.
        """
        for name, kind in ERRORS.items():
            said = self.text(device, name)
            found = int(said) if re.fullmatch("[0-9]{1,18}", said) else else_.get(name)
            if found is None:
                continue
            key = f"{device} {name}"
            if found or not self._last.get(key):
                self._last[key] = found
                yield kind, found

    def power(self, device: int) -> float | None:
        """Mean power of the newest minute, as a share of the most that the device may draw; 0 is not believed."""
        valid = re.fullmatch(
            r"POWER_STATUS_VALID,\s*[0-9]+,\s*[0-9.]+,\s*[0-9.]+,\s*([0-9]{1,3}(?:\.[0-9]*)?)",
            self.text(device, "utilization"),
        )
        share = float(valid[1]) / 100 if valid else 0.0
        return share if 0 < share <= 1 else None

    def used(self, device: int) -> int | None:
        """Bytes of a device's memory that are in use; None where that is not known of every core."""
        sizes = [self._size(self._memory(device, core)) for core in range(self.cores.get(device) or 0)]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None

    def memory(self, device: int, core: int) -> Iterator[tuple[str, int]]:
        """Bytes of the device's memory that are in use for a core, by category."""
        folder = self._memory(device, core)
        names: Sequence[str] = ()
        with suppress(OSError):
            names = self._kernel.names(folder)
        for name in sorted({*names} - {*_COUNTS}):
            size = self._size(f"{folder}/{name}")
            if size is not None:
                yield name, size

    def _memory(self, device: int, core: int) -> str:
        place = self._places.get("device_mem", "").replace("neuron_core0", f"neuron_core{core}")
        return f"{ROOT}/neuron{device}/{place}"

    def _size(self, folder: str) -> int | None:
        """What is in use: the ``total``; ``present`` is how much the newest allocation was, or the newest release."""
        text = _text(self._kernel, f"{folder}/total")
        return int(text) if re.fullmatch("[0-9]{1,15}", text) else None


_COUNTS: Final = ("present", "peak", "total")

_NEWER: Final = frozenset(("mem_ecc_corrected", "sram_ecc_corrected"))
"""Files that no driver has had yet."""


def _search(kernel: Files, folder: str, names: set[str]) -> Iterator[tuple[str, str]]:
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
            if name in names and _WITHIN.get(name, "") in place:
                yield name, place
            elif name not in (*_NOT_ENTERED, *_COUNTS) and not other and place.count("/") < _DEEP:
                waiting.append(place)


def _numbers(kernel: Files, folder: str, prefix: str) -> Iterator[int]:
    with suppress(OSError):
        for name in kernel.names(folder):
            number = name.removeprefix(prefix)
            if name != number and number.isdecimal() and len(number) < 4:
                yield int(number)


def _text(kernel: Files, path: str) -> str:
    try:
        text = kernel.read(path).decode(errors="replace").strip()
    except OSError:
        return ""
    return text if text.isprintable() else ""
