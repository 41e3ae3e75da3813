"""Devices of a class in ``/sys/class``, read from the files of their kernel driver."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators import facts
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.accelerators.sleep import autosuspend_delay, is_suspended
from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.model import Point, Series
from opentelemetry.instrumentation.hardware.system.files import (
    Files,
    link_or_empty,
    names_or_empty,
    read_integer,
    read_text,
)

DRM: Final = "/sys/class/drm"
ACCEL: Final = "/sys/class/accel"

# Minimum seconds between two readings from which a rate is computed.
_LEAST_ELAPSED: Final = 0.1

# By gigatransfers per second.
PCIE_GENERATIONS: Final[Mapping[float, int]] = {2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}

PCIE_GENERATION: Final = Field(c.HW_GPU_PCIE_GENERATION, least=1, most=9)
PCIE_WIDTH: Final = Field(c.HW_GPU_PCIE_WIDTH, least=1, most=32)


class Card(NamedTuple):
    """A device that has a folder in ``/sys/class/drm`` or ``/sys/class/accel``.

    Attributes:
        address: Its PCI address; "" if it is on no PCI bus.
        place: Its name on its bus: the PCI address, or one such as ``fe9b0000.gpu``.
        name: Its name in the class: ``card0``, ``accel0``.
        folder: The folder of the hardware.
        driver: Its kernel driver.
        pci: Vendor and device number, ``8086:56A0``; "" if it is on no PCI bus.
    """

    address: str
    place: str
    name: str
    folder: str
    driver: str
    pci: str

    @property
    def device(self) -> str:
        """Its PCI device number, four hexadecimal digits."""
        return self.pci.partition(":")[2]


def find_cards(files: Files, folder: str, drivers: Collection[str] | None = None) -> list[Card]:
    """Return the devices of a class, such as :data:`DRM`, by address; those of all drivers by default.

    Only ``uevent`` is read: it does not wake a suspended device.
    """
    cards = []
    for name in names_or_empty(files, folder):
        if re.fullmatch("(card|accel|tenstorrent!)[0-9]+", name):
            device = f"{folder}/{name}/device"
            lines = read_text(files, f"{device}/uevent").splitlines()
            event = dict(line.split("=", 1) for line in lines if "=" in line)
            driver, address = event.get("DRIVER", ""), event.get("PCI_SLOT_NAME", "").lower()
            if driver and (drivers is None or driver in drivers):
                place = address or link_or_empty(files, device).rpartition("/")[2] or name
                cards.append(Card(address, place, name, device, driver, event.get("PCI_ID", "").upper()))
    return sorted(cards)


def cards_of(files: Files, drivers: Collection[str] | None = None) -> list[Card]:
    """Return the GPUs and NPUs of these kernel drivers; None for all."""
    return [*find_cards(files, DRM, drivers), *find_cards(files, ACCEL, drivers)]


def node_names(files: Files, card: Card) -> list[str]:
    """Return the paths of the device files of a card: ``/dev/dri/card0``, ``/dev/dri/renderD128``."""
    kind, nodes = ("drm", "/dev/dri") if card.name.startswith("card") else ("accel", "/dev/accel")
    names = names_or_empty(files, f"{card.folder}/{kind}")
    return [f"{nodes}/{name}" for name in dict.fromkeys((card.name, *names))]


def describe(error: OSError) -> str:
    """Format an error without the name of the file."""
    return error.strerror or str(error)


def fact(files: Files, path: str, form: str) -> str:
    """Return the content of a file; "" if it has not the form of a fact."""
    return facts.fact(read_text(files, path), form)


# -- values


class File(NamedTuple):
    """A file with a value.

    Attributes:
        path: The file.
        field: What the value is.
        extract: Finds the value in the content.
    """

    path: str
    field: Field
    extract: Callable[[bytes], object] | None = None

    def read(self, files: Files) -> object:
        content = files.read(self.path)
        return content if self.extract is None else self.extract(content)

    def read_plausible(self, files: Files) -> object:
        """Return the value; None if it cannot be read or is not plausible."""
        try:
            value = self.read(files)
        except OSError:
            return None
        return value if self.field.is_plausible(value) else None


def read_files(files: Files, wanted: Iterable[File], unsupported: dict[Series | str, str]) -> dict[Field, object]:
    """Return the contents of files. Reasons for unreadable ones are added."""
    values: dict[Field, object] = {}
    for file in wanted:
        try:
            values[file.field] = file.read(files)
        except OSError as error:
            unsupported[file.field.series] = describe(error)
    return values


def present(files: Files, folder: str, table: Mapping[str, Field]) -> list[File]:
    """Return the files of a table that exist in a folder."""
    return [File(f"{folder}/{name}", field) for name, field in table.items() if files.exists(f"{folder}/{name}")]


def pcie_link(folder: str) -> list[File]:
    """Return the files of a PCI device's link."""
    return [
        File(f"{folder}/current_link_speed", PCIE_GENERATION, _generation),
        File(f"{folder}/current_link_width", PCIE_WIDTH),
    ]


def _generation(text: bytes) -> object:
    """Return the generation of a link with the speed ``16.0 GT/s PCIe``; the text itself if it is unknown."""
    speed = re.match(rb"([0-9]{1,2}(?:\.[0-9])?) GT/s", text)
    return PCIE_GENERATIONS.get(float(speed[1]), text) if speed else text


class Increases:
    """The growth of counters between two readings."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._before: dict[str, tuple[float, int]] = {}
        self._newest: dict[str, float] = {}

    def per_second(self, name: str, count: int) -> float | None:
        """Return the growth per second of a counter; None at its first reading, or if it has wrapped or begun again.

        Readings that follow each other at once give the same, because counters have steps.
        """
        now = self._files.uptime()
        then, before = self._before.get(name, (now, count))
        if name in self._before and now - then < _LEAST_ELAPSED:
            return self._newest.get(name)
        self._before[name] = now, count
        self._newest.pop(name, None)
        if count >= before and now > then:
            self._newest[name] = (count - before) / (now - then)
        return self._newest.get(name)

    def forget(self) -> None:
        """Begin again, after a time in which the counters did not count."""
        self._before.clear()
        self._newest.clear()


class SysfsDevice(Device):
    """A device that is read from files.

    A subclass finds them in :meth:`find`, and adds to their content in :meth:`complete` and :meth:`read_slow_values`.

    Attributes:
        often: The files that are sampled.
        slow: The files that are read slowly.
        fans: By fan, the files of its speed.
        increases: The growth of its counters.
        is_open: Whether its files have been found.
        is_idle: Whether nothing ran between the newest readings, so that the device may suspend if it is left alone.
    """

    def __init__(self, files: Files, card: Card, index: int, type: str = "gpu") -> None:  # noqa: A002
        super().__init__(card.place, f"{type.upper()} {index}", type, index=index, address=card.address)
        self.backoff = Backoff(1, 32)  # reading a device that is gone costs nothing: retry at the next reading
        self.files = files
        self.card = card
        self.often: list[File] = []
        self.slow: list[File] = []
        self.fans: dict[Device, list[File]] = {}
        self.increases = Increases(files)
        self.is_open = self.is_idle = False
        self._autosuspend = 0.0
        self._slow_points: list[Point] = []

    def place(self, card: Card) -> None:
        """Follow a device that has another number in its class, after it was removed and came back."""
        if card != self.card:
            self.card = card
            self.is_open = False

    @abstractmethod
    def find(self) -> None:
        """Find the files, and describe the device in :attr:`facts`."""

    def complete(self, values: Mapping[Field, object]) -> Mapping[Field, object]:
        """Return the sampled values, with what is computed from them or read from other files."""
        return values

    def read_slow_values(self) -> Mapping[Field, object]:
        """Return the values that are read slowly."""
        return read_files(self.files, self.slow, self.unsupported)

    @property
    def idle_interval(self) -> float:
        """Seconds between two readings that let it suspend; 0 if it is busy, or is not read, or never suspends."""
        may_suspend = self.is_idle and not (self.is_suspended or self.trouble)
        return self._autosuspend if may_suspend else 0.0

    def count(self, path: str) -> int | None:
        """Return the number in a file; None if it cannot be read."""
        return read_integer(self.files, path)

    def folders(self, kind: str) -> list[str]:
        """Return the folders of its sensors (``hwmon``) or of its clock (``devfreq``)."""
        folder = f"{self.card.folder}/{kind}"
        return [f"{folder}/{name}" for name in sorted(names_or_empty(self.files, folder))]

    def sensors(self) -> str:
        """Return the folder of the sensors of its driver; "" if there is none."""
        named = (each for each in self.folders("hwmon") if read_text(self.files, f"{each}/name") == self.card.driver)
        return next(named, "")

    def add_fans(self, folder: str) -> None:
        """Find the fans of a folder of sensors."""
        self.fans = {}
        for number in range(4):
            path = f"{folder}/fan{number + 1}_input"
            if self.files.exists(path):
                self.fans[self.new_fan(number)] = [File(path, Field(c.HW_FAN_SPEED))]

    def check_suspended(self) -> bool:
        suspended = is_suspended(self.files, self.card.folder)
        if suspended:
            self.increases.forget()
        return suspended

    def open(self) -> None:
        if not self.files.exists(f"{self.card.folder}/uevent"):
            raise DeviceFailed("it is gone")
        self.often, self.slow = [], []
        self.find()
        self._autosuspend = autosuspend_delay(self.files, self.card.folder)
        self.is_open = True

    def read(self) -> Iterator[Point]:
        if not self.is_open:
            self.open()
        values = read_files(self.files, self.often, self.unsupported)
        if not values and (self.often or not self.files.exists(f"{self.card.folder}/uevent")):
            raise DeviceFailed(self.unsupported[self.often[-1].field.series] if self.often else "it is gone")
        yield from self.points(self.complete(values))

    def read_slow(self) -> Iterator[Point]:
        """Read limits and fans. While the device is idle, the earlier values are repeated, so that it may suspend."""
        if not self.is_open:
            return
        if not (self.idle_interval and self._slow_points):
            self._slow_points = [*self.points(self.read_slow_values())]
            for fan, files in self.fans.items():
                self._slow_points += fan.points(read_files(self.files, files, self.unsupported))
        yield from self._slow_points


D = TypeVar("D", bound=SysfsDevice)


def followed(cards: Iterable[Card], known: dict[str, D], make: Callable[[Card], D]) -> list[D]:
    """Return the devices of cards, and those of cards that were removed. A card that comes back is the same device.

    Args:
        cards: The cards that exist now.
        known: The devices so far, by place. New ones are added.
        make: Makes the device of a new card.
    """
    for card in cards:
        if card.place in known:
            known[card.place].place(card)
        else:
            known[card.place] = make(card)
    return [*known.values()]
