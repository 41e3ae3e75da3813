"""AMD's GPUs by one of AMD's tools: a run of it says all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Device
from opentelemetry.instrumentation.hardware.accelerators.selection import DeviceFilter, FoundDevice
from opentelemetry.instrumentation.hardware.accelerators.unsupported import sentences
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command
from opentelemetry.instrumentation.hardware.model import Point, Unavailable
from opentelemetry.instrumentation.hardware.sources.amd import amd_smi, rocm_smi
from opentelemetry.instrumentation.hardware.sources.amd.card import FAN
from opentelemetry.instrumentation.hardware.sources.amd.reading import Card

PACE: Final = 10.0
"""Seconds between two runs, at least: each costs a quarter of a second of CPU, and seconds beside many GPUs."""

SECONDS: Final = 20.0
"""How long a run may take; 15 s were too few for sixteen dies."""


class Tool:
    """A tool that lists all cards.

    Args:
        name: of the tool.
        read: what it says now: the driver's version, and the cards.
    """

    def __init__(self, name: str, read: Callable[[], tuple[str | None, list[Card]]]) -> None:
        self.name = name
        self.read = read


def by_rocm_smi(command: Command) -> Tool:
    """The older tool, which is everywhere."""
    return Tool(rocm_smi.TOOL.name, lambda: rocm_smi.parse(run(command, rocm_smi.TOOL.name, rocm_smi.ARGUMENTS)))


def by_amd_smi(command: Command) -> Tool:
    """The newer tool. What does not change, and the limits, are asked for once; a version may not say that."""
    static: dict[int, dict[str, str]] = {}
    asked: list[bool] = []

    def read() -> tuple[str | None, list[Card]]:
        if not asked:
            with suppress(ValueError):
                static.update(amd_smi.facts(run(command, amd_smi.TOOL.name, amd_smi.STATIC)))
            asked.append(True)
        cards = amd_smi.parse(run(command, amd_smi.TOOL.name, amd_smi.METRIC), static)
        return next((card.facts["driver"] for card in cards if "driver" in card.facts), None), cards

    return Tool(amd_smi.TOOL.name, read)


def run(command: Command, name: str, arguments: tuple[str, ...]) -> bytes:
    """What the tool prints. Its exit code is not looked at: it is 0 without a driver, and 2 beside good numbers.

    Raises:
        Unavailable: there is no such tool.
        OSError: it did not end in time, or could not be run.
        ValueError: it printed nothing; the error is what it says instead.
    """
    said = command.run(list(arguments), SECONDS)
    if not said.stdout.strip():
        lines = [line.strip() for line in said.stderr.decode("utf-8", "replace").splitlines()]
        sentence = next((line[:200] for line in lines if line.isprintable() and line.strip("=-")), "nothing")
        raise ValueError(f"{name} says {sentence!r} and ends with {said.code}")
    return said.stdout


class _Known:
    """A GPU that the tool has listed.

    Attributes:
        index: its place in the order of the PCI addresses, when it was first listed.
        card: what the newest run says of it; None where that does not list it.
    """

    def __init__(self, index: int, card: Card, taken: Collection[str]) -> None:
        wanted = (card.facts.get("unique"), card.facts.get("bdf"), f"gpu{card.number}")
        known = next(
            each for each in wanted if each and each not in taken
        )  # two dies of a board may be called the same
        self.index = index
        self.device = Device(known, f"GPU {index}")
        self.fan = Device(f"{known}/fan0", f"GPU {index} fan 0", "fan", known)
        self.card: Card | None = card
        self.facts = card.facts
        self.counting = "energy" in card.numbers

    def points(self) -> Iterator[Point]:
        """What the newest run says."""
        if self.card is None:
            return
        numbers = dict(self.card.numbers)
        if not self.counting:
            numbers.pop("energy", None)  # it is an estimate from the beginning, or never
        fan = {str(name): numbers.pop(name) for name in FAN if name in numbers}
        yield from self.device.points(numbers)
        yield from self.fan.points(fan)

    def described(self) -> FoundDevice:
        """It by its ``hw.id``, and by what ROCm calls it."""
        unique = self.facts.get("unique", "")
        names = (f"GPU-{unique.zfill(16)}", unique) if unique else ()
        return FoundDevice(self.index, self.device.id, address=self.facts.get("bdf", ""), names=names)

    def info(self, driver: str | None) -> Point:
        """What it is."""
        facts = {
            c.HW_VENDOR: "AMD",
            c.HW_MODEL: self.facts.get("model"),
            c.HW_SERIAL_NUMBER: self.facts.get("serial"),
            c.HW_DRIVER_VERSION: driver,
            c.HW_FIRMWARE_VERSION: self.facts.get("vbios"),
            c.PCI_BDF: self.facts.get("bdf"),
            c.GPU_INDEX: self.index,
        }
        return self.device.info({name: value for name, value in facts.items() if value is not None})


class Listing:
    """All GPUs, as a tool lists them.

    Args:
        tool: lists them.
        choice: which of them are reported.

    Raises:
        Unavailable: there is no tool, or it knows no GPU.
        OSError: the tool hangs.
        ValueError: it says nothing that can be understood.
    """

    min_interval: Final = PACE

    def __init__(self, tool: Tool, choice: DeviceFilter) -> None:
        self._tool = tool
        self._choice = choice
        self._known: dict[int, _Known] = {}
        self._driver: str | None = None
        self._fresh = True
        self._take()
        if not self._known:
            raise Unavailable(f"{tool.name} knows no GPU")

    def _take(self) -> None:
        driver, cards = self._tool.read()
        self._driver = driver or self._driver
        for known in self._known.values():
            known.card = None
        taken = {known.device.id for known in self._known.values()}
        for card in sorted(cards, key=lambda card: (card.facts.get("bdf", ""), card.number)):
            if card.number in self._known:
                self._known[card.number].card = card
            else:
                known = self._known[card.number] = _Known(len(self._known), card, taken)
                taken.add(known.device.id)
        self.look()

    @property
    def addresses(self) -> list[str]:
        """Where the GPUs are on the bus, as far as the tool says it."""
        return [known.facts["bdf"] for known in self._known.values() if "bdf" in known.facts]

    def look(self) -> None:
        """Choose anew which of them are reported."""
        self._choice.look([known.described() for known in self._known.values()])

    def _wanted(self) -> Iterator[_Known]:
        return (known for known in self._known.values() if known.device.id in self._choice)

    def use(self, addresses: Collection[str]) -> None:
        """The observed program uses those at these addresses."""
        for known in self._known.values():
            if known.facts.get("bdf") in addresses:
                self._choice.use(known.device.id)

    def read(self) -> Iterator[Point]:
        """What the tool says now."""
        self._refresh()
        for known in self._wanted():
            yield from known.points()

    def cards(self) -> Iterator[Card]:
        """What the tool says now, in words that both tools have in common."""
        self._refresh()
        return (known.card for known in self._wanted() if known.card is not None)

    def _refresh(self) -> None:
        """Run the tool, unless nobody has seen yet what it said when we began."""
        if not self._fresh:
            self._take()
        self._fresh = False

    def read_slow(self) -> Iterator[Point]:
        """What the devices are, and whether the tool still lists them."""
        for known in self._wanted():
            yield known.info(self._driver)
            yield from known.device.status("ok" if known.card and known.card.numbers else "failed")

    def devices(self) -> Iterator[tuple[str, Device]]:
        """The PCI address of each GPU where it is said, and what makes its points."""
        return ((known.facts["bdf"], known.device) for known in self._wanted() if "bdf" in known.facts)

    def unsupported(self) -> Iterator[str]:
        """What is not said, and what is said instead."""
        said = []
        for known in self._wanted():
            if known.card is None:
                yield f"{known.device.name} ({known.device.id}): {self._tool.name} does not list it any more"
            else:
                said.append((known.device.name, known.card.refused))
        yield from sentences(said)
