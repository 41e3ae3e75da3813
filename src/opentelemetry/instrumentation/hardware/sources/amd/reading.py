"""What AMD's tools say of GPUs, in words that both have in common; a number is believed when it can be true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.model import Number

Parse: TypeAlias = "Callable[[str], Number]"
"""A text as a number in base units.

Raises:
    ValueError: it is none, or none that can be true; the text says why.
"""

Spellings: TypeAlias = "tuple[str, ...]"
"""What a tool has called a quantity, newest first."""

ABSENT: Final = frozenset({"", "n/a", "none", "unknown", "undefined", "unsupported", "not supported", "not specified"})
"""What may be said, in any case of letters, where nothing is known."""

_INSTINCT = "0x7(40[8cf]|410|4[ab].|5[ab].)"
"""The device numbers of MI200, MI300 and MI350."""

_NUMBERED = "0x[0-9a-fA-F]+"

_DOCUMENTS = 200
"""Beginnings of what may be a document that are tried."""


@dataclass(frozen=True, slots=True)
class Card:
    """What a tool said of one GPU.

    Attributes:
        number: its place among those of the tool.
        facts: what it is: ``unique``, ``model``, ``device``, ``serial``, ``vbios``, ``bdf``, ``driver``; those that are
            known.
        numbers: by quantity, in base units.
        refused: by quantity, what was said instead.
    """

    number: int
    facts: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Number] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> bool:
        """Whether its energy is counted in 64 bits of a known unit: Instinct boards after MI100."""
        model = self.facts.get("model", "").lower()
        named = re.search(r"instinct|\bmi[2-9][0-9]", model) and "mi100" not in model
        return bool(named or re.fullmatch(_INSTINCT, self.facts.get("device", "")))


def tool(name: str, fix: str) -> Tool:
    """One of ROCm's tools."""
    return Tool(name, folders=("/opt/rocm/bin", "/usr/bin"), environment=("ROCM_", "HIP_", "HSA_"), fix=fix)


def measure(form: str, most: float, least: float = 0, times: int = 1, per: int = 1) -> Parse:
    """Numbers as a form has them, their digits in its only group; the most and the least that can be true."""
    pattern = re.compile(form.replace("#", r"([0-9]{1,20}(?:\.[0-9]{1,9})?)"), re.IGNORECASE)

    def parse(text: str) -> Number:
        found = pattern.fullmatch(text)
        if found is None:
            raise ValueError(f"it says {text[:60]!r}")
        number = float(found[1]) if "." in found[1] else int(found[1])
        if not least <= number <= most:
            raise ValueError(f"{text} cannot be true")
        return number / per if per > 1 else round(number * times) if times > 1 else number

    return parse


def documents(printed: bytes) -> Iterator[Any]:
    """The JSON documents in what a tool printed, whatever it says before, between and after them."""
    text = printed.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    at = 0
    for _ in range(_DOCUMENTS):
        begin = re.compile(r"[\[{]").search(text, at)
        if begin is None:
            return
        try:
            document, at = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            at = begin.end()
        else:
            yield document


def believed(
    number: int, facts: Mapping[str, str | None], said: Mapping[str, str], table: Mapping[str, tuple[Parse, Spellings]]
) -> Card:
    """A card with what is believed of what is said; of several spellings the first."""
    card = Card(number, {name: text for name, text in facts.items() if text is not None})
    for quantity, (parse, spellings) in table.items():
        for spelling in spellings:
            if spelling in said:
                try:
                    card.numbers[quantity] = parse(said[spelling])
                except ValueError as error:
                    card.refused.setdefault(quantity, str(error))
                else:
                    card.refused.pop(quantity, None)
                    break
    used, total = card.numbers.get("memory.used"), card.numbers.get("memory.total")
    if used is not None and (total is None or used > total):
        del card.numbers["memory.used"]
        card.refused["memory.used"] = "there is no total" if total is None else "it is more than the total"
    if "energy" in card.numbers and not card.counts:
        del card.numbers["energy"]
        card.refused["energy"] = "this model counts in an unknown unit, and the counter wraps within minutes"
    return card


def fact(text: object, form: str = ".{1,200}") -> str | None:
    """A text that is no number; None for what is said instead of one."""
    if not isinstance(text, str):
        return None
    text = " ".join(text.split())
    return text if text.lower() not in ABSENT and text.isprintable() and re.fullmatch(form, text) else None


def identity(
    unique: object, models: Iterable[object], device: object, serial: object, vbios: object, bdf: object
) -> dict[str, str | None]:
    """The facts of a card that both tools say, from their texts; of the models, the first that is a name."""
    number = fact(unique, "(?:0x)?[0-9a-fA-F]{8,32}")
    label = fact(serial, "[0-9A-Za-z-]{1,64}")
    names = (name for name in map(fact, models) if name and not re.fullmatch(_NUMBERED, name))
    return {
        "unique": number and number.lower().removeprefix("0x"),
        "model": next(names, None),
        "device": fact(device, _NUMBERED),
        "serial": label if label and label.strip("0") else None,
        "vbios": fact(vbios, "[0-9A-Za-z._-]{1,64}"),
        "bdf": address(bdf),
    }


def address(text: object) -> str | None:
    """``0000:2F:00.0`` as the kernel has it."""
    found = fact(text, r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
    return found.lower() if found else None
