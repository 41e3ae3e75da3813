"""TPU chips on the PCI bus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.system.files import Files

GOOGLE: Final = "1ae0"
_DEVICES: Final = "/sys/bus/pci/devices"
_LIST: Final = "/proc/bus/pci/devices"
"""All devices in one file; absent in some containers."""


class Chip(NamedTuple):
    """A kind of chip.

    Attributes:
        model: its name.
        cores: how many devices a program sees of it.
        shared: whether its cores have one duty cycle together.
    """

    model: str
    cores: int = 1
    shared: bool = False


CHIPS: Final = {
    "0027/004e": Chip("TPU v2", 2, True),
    "0027/004f": Chip("TPU v3", 2, True),
    "005e": Chip("TPU v4"),
    "0063": Chip("TPU v5e"),
    "0062": Chip("TPU v5p"),
    "006f": Chip("TPU v6e"),
    "0076": Chip("TPU7x", 2),
}
"""By PCI device, with its subsystem where that tells two apart."""


class Found(NamedTuple):
    """A chip at its place."""

    bdf: str
    chip: Chip


def found(kernel: Files) -> list[Found]:
    """The chips, in the order of the bus; the functions of one are one chip."""
    if not _maybe(kernel):
        return []
    seen: dict[str, Found] = {}
    for bdf, chip in sorted(_functions(kernel)):
        seen.setdefault(bdf.rpartition(".")[0], Found(bdf, chip))
    return list(seen.values())


def _maybe(kernel: Files) -> bool:
    """Whether anything of Google's is on the bus: one file where the kernel has a list."""
    try:
        lines = kernel.read(_LIST).decode("ascii", "replace").splitlines()
    except OSError:
        return True
    return any(line.split("\t")[1:2] and line.split("\t")[1].startswith(GOOGLE) for line in lines)


def _functions(kernel: Files) -> Iterator[tuple[str, Chip]]:
    try:
        names = kernel.names(_DEVICES)
    except OSError:
        return
    for name in names:
        if _hexadecimal(kernel, name, "vendor") == GOOGLE:
            device = _hexadecimal(kernel, name, "device")
            chip = CHIPS.get(device) or CHIPS.get(f"{device}/{_hexadecimal(kernel, name, 'subsystem_device')}")
            if chip is not None:
                yield name, chip


def _hexadecimal(kernel: Files, device: str, file: str) -> str:
    try:
        return kernel.read(f"{_DEVICES}/{device}/{file}").decode("ascii", "replace").strip().removeprefix("0x")
    except OSError:
        return ""
