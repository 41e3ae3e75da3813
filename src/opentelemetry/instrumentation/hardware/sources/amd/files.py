"""AMD's GPUs by the files of the kernel's driver amdgpu."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

from opentelemetry.instrumentation.hardware.accelerators.fields import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter, FoundDevice
from opentelemetry.instrumentation.hardware.accelerators.unsupported import sentences
from opentelemetry.instrumentation.hardware.model import Point, Unavailable
from opentelemetry.instrumentation.hardware.sources.amd.card import DRM, Card, text, why
from opentelemetry.instrumentation.hardware.sources.amd.topology import Topology
from opentelemetry.instrumentation.hardware.system.files import Files

_NAMES: Final = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")
"""Where libdrm, or ROCm's own copy of it, says what the devices are called."""


class Sysfs:
    """All GPUs that amdgpu drives.

    Args:
        kernel: reads the files.
        choice: which of the GPUs are read; of the others, no more than what they are called.
        topology: what ROCm calls them.

    Raises:
        Unavailable: there is none.
    """

    def __init__(self, kernel: Files, choice: DeviceFilter, topology: Topology) -> None:
        self._kernel = kernel
        self._choice = choice
        self._topology = topology
        self._taken: set[str] = set()
        self._cards = [
            Card(kernel, name, bdf, index, pci) for index, (bdf, name, pci) in enumerate(sorted(_cards(kernel)))
        ]
        if not self._cards:
            raise Unavailable("the driver amdgpu has no GPU")
        self._names = _names(kernel)
        self._driver = text(kernel, "/sys/module/amdgpu/version") or text(kernel, "/proc/sys/kernel/osrelease")
        self.look()

    @property
    def addresses(self) -> list[str]:
        """Where the GPUs are on the bus."""
        return [card.bdf for card in self._cards]

    def look(self) -> None:
        """Choose anew which of them are read."""
        self._choice.look([self._described(card) for card in self._cards])

    def _described(self, card: Card) -> FoundDevice:
        """A card by its address, which is known before it is read."""
        names = self._topology.names(card.bdf)
        if not names and card.device is None and not card.sleeps():
            self._known(card)
        if card.device is not None and card.device.id != card.bdf:
            names = (*names, f"GPU-{card.device.id.zfill(16)}", card.device.id)
        known = bool(names) or card.device is not None
        return FoundDevice(card.index, card.bdf, address=card.bdf, names=names, unknown=not known)

    def _wanted(self) -> Iterator[Card]:
        return (card for card in self._cards if card.bdf in self._choice)

    def use(self, addresses: Collection[str]) -> None:
        """The observed program uses those at these addresses."""
        for card in self._cards:
            if card.bdf in addresses:
                self._choice.use(card.bdf)

    def read(self) -> Iterator[Point]:
        """Some ten files of each."""
        for card in self.awake():
            yield from card.points()

    def read_slow(self) -> Iterator[Point]:
        """What hardly changes, and errors."""
        for card in self._wanted():
            if not card.asleep:
                yield from card.points_seldom()

    @property
    def min_interval(self) -> float:
        """Seconds between two readings, at least: every one keeps a GPU awake that the system could put to sleep."""
        return max((card.rest for card in self._wanted() if not (card.asleep or card.lost)), default=0.0)

    def _known(self, card: Card) -> bool:
        """Whether it is known what files it has; they are looked for after it was away."""
        if not card.found:
            try:
                card.find(self._taken, self._names, self._driver or None)
            except OSError as error:
                card.lose(why(error))
        return card.found

    def awake(self) -> Iterator[Card]:
        """The GPUs that are read, do not sleep, and answer."""
        return (card for card in self._wanted() if not card.sleeps() and self._known(card))

    def devices(self) -> Iterator[tuple[str, Device]]:
        """The PCI address of each GPU that answers or sleeps, and what makes its points."""
        for card in self._wanted():
            known = card.device is not None or (not card.sleeps() and self._known(card))
            if known and card.device is not None and not card.lost:
                yield card.bdf, card.device

    def unsupported(self) -> Iterator[str]:
        """What is not said, and why."""
        said = []
        for card in self._wanted():
            if card.asleep:
                yield f"GPU {card.index} ({card.bdf}) is suspended, and is not woken for its numbers"
            elif card.lost:
                yield f"GPU {card.index} ({card.bdf}) does not answer: {card.lost}"
            else:
                said.append((f"GPU {card.index}", card.refused))
        yield from sentences(said)


def is_here(kernel: Files) -> bool:
    """Whether the driver is loaded."""
    state = text(kernel, "/sys/module/amdgpu/initstate")
    return state == "live" if state else any(True for _ in _cards(kernel))  # it may be built into the kernel


def _cards(kernel: Files) -> Iterator[tuple[str, str, str]]:
    """PCI address, name and device number of what amdgpu drives; no file of amdgpu's own is read."""
    try:
        names = kernel.names(DRM)
    except OSError:
        return
    for name in names:
        if re.fullmatch("card[0-9]+", name):
            said = text(kernel, f"{DRM}/{name}/device/uevent")
            facts = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
            bdf, pci = facts.get("PCI_SLOT_NAME", ""), facts.get("PCI_ID", "")
            if facts.get("DRIVER") == "amdgpu" and bdf:
                yield bdf.lower(), name, pci.upper()


def _names(kernel: Files) -> dict[str, str]:
    """What devices are called, by device number and revision: ``740F/02``."""
    for path in _NAMES:
        lines = text(kernel, path).splitlines()
        parts = [[part.strip() for part in line.split(",", 2)] for line in lines if not line.startswith("#")]
        found = {f"{part[0].upper()}/{part[1].upper()}": part[2] for part in parts if len(part) == 3}
        if found:
            return found
    return {}
