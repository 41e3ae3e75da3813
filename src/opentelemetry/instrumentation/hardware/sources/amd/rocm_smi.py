"""AMD's GPUs by ``rocm-smi -a --json``, in the spellings of ROCm 4.3 to 7.

Every value is text. A number is believed when it was spelled, in the form that the tool gives it, and can be true: for
what it cannot read the tool says ``N/A``, leaves the key out, or says 0, which differs from version to version. So 0 is
believed of what can be 0 only: a share of time, a clock, a count, a fan. https://rocm.docs.amd.com/projects/rocm_smi_lib
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware.sources.amd.reading import (
    Card,
    Parse,
    Spellings,
    believed,
    documents,
    fact,
    identity,
    measure,
    tool,
)

TOOL: Final = tool("rocm-smi", "it comes with ROCm, or as Debian's package rocm-smi")

ARGUMENTS: Final = ("-a", "--showmeminfo", "vram", "--json")
"""All that it says, which was without the memory's size at first."""

_SHARE = measure("#", 100, per=100)
_CELSIUS = measure("#", 150, 1)
_WATTS = measure("#", 20_000, 0.01)
_BYTES = measure("#", 1 << 50, 1)
_CLOCK = measure(r"(?:[0-9]+ )?\(?#Mhz\)?", 50_000, times=10**6)
_RANGE = measure("[0-9]+Mhz - #Mhz", 50_000, 1, times=10**6)
_VOLTS = measure("#", 100_000, 1, per=1000)
_COUNT = measure("#", (1 << 32) - 2)
_ENERGY = measure("#", 1 << 62, 1, per=1 << 16)

NUMBERS: Final[Mapping[str, tuple[Parse, Spellings]]] = {
    "utilization.general": (_SHARE, ("GPU use (%)",)),
    "utilization.memory": (_SHARE, ("GPU Memory Read/Write Activity (%)", "GPU memory use (%)")),
    "memory.total": (_BYTES, ("VRAM Total Memory (B)",)),
    "memory.used": (_BYTES, ("VRAM Total Used Memory (B)",)),
    **{
        f"temperature.{ours}": (_CELSIUS, (f"Temperature (Sensor {theirs}) (C)",))
        for ours, theirs in {
            "edge": "edge",
            "junction": "junction",
            "memory": "memory",
            **{f"hbm{stack}": f"HBM {stack}" for stack in range(4)},
        }.items()
    },
    "power": (
        _WATTS,
        (
            "Current Socket Graphics Package Power (W)",
            "Average Graphics Package Power (W)",
            "Socket Graphics Package Power (W)",
        ),
    ),
    "power.limit.enforced": (_WATTS, ("Max Graphics Package Power (W)",)),
    "energy": (_ENERGY, ("Energy counter",)),
    "frequency.graphics": (_CLOCK, ("sclk clock speed:", "sclk clock speed", "sclk clock level")),
    "frequency.memory": (_CLOCK, ("mclk clock speed:", "mclk clock speed", "mclk clock level")),
    "frequency.limit.graphics": (_RANGE, ("Valid sclk range",)),
    "frequency.limit.memory": (_RANGE, ("Valid mclk range",)),
    "voltage.gpu": (_VOLTS, ("Voltage (mV)",)),
    "fan.ratio": (_SHARE, ("Fan speed (%)", "Fan Speed (%)")),
    "fan.speed": (measure("#", 100_000), ("Fan RPM",)),
    "errors.pcie_replay": (_COUNT, ("PCIe Replay Count",)),
}
"""Every quantity: how its text is read, and what it is called.

``GPU memory use (%)`` of ROCm 5 is the share of time that memory was read or written, whatever its name says. Left out:
``Accumulated Energy (uJ)``, the energy counter times a factor that was rounded in some versions.
"""

_CARD = re.compile("card([0-9]{1,4})")


def said(printed: bytes) -> tuple[str | None, dict[int, dict[str, str]]]:
    """The driver's version, and the texts of each card by its number, whatever else was printed.

    Raises:
        ValueError: there is no document of the tool.
    """
    for document in documents(printed):
        if isinstance(document, dict) and any(name == "system" or _CARD.fullmatch(name) for name in document):
            cards = {
                int(found[1]): {name: text.strip() for name, text in texts.items() if isinstance(text, str)}
                for card, texts in document.items()
                if (found := _CARD.fullmatch(card)) and isinstance(texts, dict)
            }
            system = document.get("system")
            return fact(system.get("Driver version")) if isinstance(system, dict) else None, cards
    raise ValueError("there is no document of rocm-smi")


def parse(printed: bytes) -> tuple[str | None, list[Card]]:
    """The driver's version and the cards; those that say nothing known are left out.

    Raises:
        ValueError: there is no document of the tool.
    """
    driver, texts = said(printed)
    cards = [_card(number, each) for number, each in texts.items()]
    return driver, [card for card in cards if card.numbers or card.refused]


def _card(number: int, said: Mapping[str, str]) -> Card:
    facts = identity(
        said.get("Unique ID"),
        map(said.get, ("Card Series", "Card series", "Device Name", "Card Model", "Card model")),
        said.get("Device ID") or said.get("GPU ID"),
        said.get("Serial Number"),
        said.get("VBIOS version"),
        said.get("PCI Bus"),
    )
    return believed(number, facts, said, NUMBERS)
