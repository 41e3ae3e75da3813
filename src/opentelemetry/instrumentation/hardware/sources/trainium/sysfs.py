"""The files of the Neuron driver in sysfs.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-sysfs-user-guide.html

The files are only read: writing to a counter clears it, and writing to ``reset`` resets the device. Version 2.31 of the
driver moved some of them, so a file that is not at its old path is searched by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from opentelemetry.instrumentation.hardware.sources.trainium.fields import ERRORS
from opentelemetry.instrumentation.hardware.system.files import Files, integer, names_or_empty, read_text

DEVICES: Final = "/sys/devices/virtual/neuron_device"

MODULE: Final = "/sys/module/neuron"

# Paths before 2.31, in the folder of a device.
_PATHS: Final = {
    "core_count": "core_count",
    "serial_number": "info/serial_number",
    "device_name": "info/architecture/device_name",
    "mem_ecc_uncorrected": "stats/hardware/mem_ecc_uncorrected",
    "mem_ecc_repairable_uncorrected": "stats/hardware/mem_ecc_repairable_uncorrected",
    "sram_ecc_uncorrected": "stats/hardware/sram_ecc_uncorrected",
    "utilization": "stats/power/utilization",
    "device_mem": "neuron_core0/stats/memory_usage/device_mem",
}

# Text that the path must contain, for names that occur at several places.
_REQUIRED: Final = {"device_mem": "neuron_core0", "utilization": "power"}

_SIZES: Final = ("present", "peak", "total")  # files of a memory category

# Folders that are not searched. The first two are links to other devices.
_SKIPPED: Final = ("subsystem", "device", "status", "other_info", "host_mem", "tensor_engine", *_SIZES)

_MAX_DEPTH: Final = 6
_MAX_FOLDERS: Final = 400


class Sysfs:
    """The files of all devices.

    Attributes:
        cores: Physical cores by device number; None if the driver does not report them.
        version: Version of the driver, or "".
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._nonzero: set[tuple[int, str]] = set()
        self._paths: dict[str, str] = {}
        self.cores: dict[int, int | None] = {}
        self.version = ""
        self.refresh()

    def refresh(self) -> None:
        """List the devices: the driver may have been unloaded or replaced."""
        names = names_or_empty(self._files, DEVICES)
        devices = sorted(int(match[1]) for name in names if (match := re.fullmatch("neuron([0-9]{1,3})", name)))
        if devices == [*self.cores]:
            return
        self.version = self._read(f"{MODULE}/version")
        self._paths, self.cores = {}, {}
        if devices:  # all have the same files
            folder = f"{DEVICES}/neuron{devices[0]}"
            self._paths = {name: path for name, path in _PATHS.items() if self._files.exists(f"{folder}/{path}")}
            for name, path in _search(self._files, folder, set(_PATHS) - set(self._paths)):
                self._paths.setdefault(name, path)
        for device in devices:
            count = self.text(device, "core_count")
            self.cores[device] = int(count) or None if re.fullmatch("[0-9]{1,3}", count) else None

    def text(self, device: int, name: str) -> str:
        """Return the content of a file, or ""; at most 255 characters."""
        path = self._paths.get(name)
        return self._read(f"{DEVICES}/neuron{device}/{path}")[:255] if path else ""

    def errors(self, device: int, reported: Mapping[str, int]) -> dict[str, int]:
        """Return the memory errors since the driver was loaded, by the name of the counter.

        A counter without a file is that of neuron-monitor. The driver reports 0 while it cannot read a device, so a 0
        after a higher value is dropped.
        """
        counters: dict[str, int] = {}
        for name in ERRORS:
            count = integer(self.text(device, name))
            if count is None:
                count = reported.get(name)
            if count:
                self._nonzero.add((device, name))
            if count is not None and (count or (device, name) not in self._nonzero):
                counters[name] = count
        return counters

    def power_percent(self, device: int) -> float | None:
        """Return the mean power of the last minute in percent of the maximum. 0 is not a valid value."""
        text = self.text(device, "utilization")
        number = r"[0-9]{1,3}(?:\.[0-9]*)?"
        valid = re.fullmatch(rf"POWER_STATUS_VALID,\s*[0-9]+,\s*[0-9.]+,\s*[0-9.]+,\s*({number})", text)
        return (float(valid[1]) or None) if valid else None

    def memory_used(self, device: int) -> int | None:
        """Return the bytes of device memory in use; None if the value of any core is missing."""
        sizes = [self._size(self._memory_folder(device, core)) for core in range(self.cores.get(device) or 0)]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None

    def memory_by_category(self, device: int, core: int) -> dict[str, int]:
        """Return the bytes of device memory in use for a physical core, by category."""
        folder = self._memory_folder(device, core)
        names = {*names_or_empty(self._files, folder)} - {*_SIZES}
        sizes = {name: self._size(f"{folder}/{name}") for name in sorted(names)}
        return {name: size for name, size in sizes.items() if size is not None}

    def _memory_folder(self, device: int, core: int) -> str:
        path = self._paths.get("device_mem", "").replace("neuron_core0", f"neuron_core{core}")
        return f"{DEVICES}/neuron{device}/{path}"

    def _size(self, folder: str) -> int | None:
        """Return the bytes in use, from ``total``. ``present`` is the size of the last allocation or release."""
        text = self._read(f"{folder}/total")
        return int(text) if re.fullmatch("[0-9]{1,15}", text) else None

    def _read(self, path: str) -> str:
        text = read_text(self._files, path)
        return text if text.isprintable() else ""


def _search(files: Files, folder: str, names: set[str]) -> Iterator[tuple[str, str]]:
    """Search files by name below the folder of a device, breadth first. Yields names with their paths."""
    waiting, searched = [""], 0
    while waiting and names and searched < _MAX_FOLDERS:
        below = waiting.pop(0)
        searched += 1
        for name in sorted(names_or_empty(files, f"{folder}/{below}".rstrip("/"))):  # a file has no entries
            path = f"{below}/{name}".lstrip("/")
            is_other_core = re.fullmatch("neuron_core[1-9][0-9]*", name)
            if name in names and _REQUIRED.get(name, "") in path:
                yield name, path
            elif name not in _SKIPPED and not is_other_core and path.count("/") < _MAX_DEPTH:
                waiting.append(path)
