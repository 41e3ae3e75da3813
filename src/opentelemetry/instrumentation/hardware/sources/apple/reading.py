"""What a tool says of an Apple chip, and which of its numbers are believed.

A number is believed where it can be true. These tools say 0 for a sensor that the chip does not have, so a 0 is
believed only of what can be 0, and only where something beside it shows that it was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.json import DECODER, number
from opentelemetry.instrumentation.hardware.model import Number

GPU: Final = "gpu0"
SRAM: Final = "gpu0/sram"
CPU: Final = "cpu"
ANE: Final = "ane"
MEMORY: Final = "memory"
HOST: Final = "host"


@dataclass(frozen=True)
class Said:
    """What a tool says at one moment.

    Attributes:
        parts: by part of the machine (its ``hw.id``), quantities of :data:`~..devices.QUANTITIES` in base units; what
            was not said or cannot be true is left out.
        model: the chip.
        raw: the tool's own numbers for formulas that are not ours: ``utilization`` and ``allocated`` in percent,
            ``temperature`` in degrees Celsius, ``watts``.
    """

    parts: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    model: str = ""
    raw: Mapping[str, float] = field(default_factory=dict)


def said(
    parts: Mapping[str, Mapping[str, Number | None]], model: object = "", raw: Mapping[str, float | None] | None = None
) -> Said:
    """The same of what may be unknown: that is left out.

    Raises:
        ValueError: where there is nothing else.
    """
    known = {part: _known(numbers) for part, numbers in parts.items()}
    found = {part: numbers for part, numbers in known.items() if numbers}
    if not found:
        raise ValueError("it says no number that can be true")
    name = model.strip()[:100] if isinstance(model, str) and model.isprintable() else ""
    return Said(found, name, _known(raw or {}))


def _known(numbers: Mapping[str, Number | None]) -> dict[str, Number]:
    return {name: number for name, number in numbers.items() if number is not None}


def mean(readings: Sequence[Said]) -> Said:
    """Several moments as one, each of the same weight."""
    if len(readings) == 1:
        return readings[0]
    found: dict[str, dict[str, list[Number]]] = {}
    for part, quantity, value in (row for reading in readings for row in _rows(reading)):
        found.setdefault(part, {}).setdefault(quantity, []).append(value)
    parts = {part: {name: sum(each) / len(each) for name, each in numbers.items()} for part, numbers in found.items()}
    return Said(parts, readings[-1].model, readings[-1].raw)


def _rows(reading: Said) -> Iterator[tuple[str, str, Number]]:
    for part, numbers in reading.parts.items():
        for quantity, value in numbers.items():
            yield part, quantity, value


# -- numbers


def percent(value: object) -> float | None:
    """A share of 0 to 100 as one of 0..1."""
    found = number(value, 0, 100)
    return None if found is None else found / 100


def share(value: object) -> float | None:
    """A share of 0..1, give or take what single precision loses."""
    found = number(value, 0, 1.0001)
    return None if found is None else min(1.0, found)


def watts(value: object) -> Number | None:
    """A power that is not 0: nothing that is on draws none."""
    return _positive(number(value, 0, 5000))


def celsius(value: object) -> Number | None:
    """A temperature that is not 0."""
    return _positive(number(value, 0, 150))


def hertz(megahertz: object) -> int | None:
    """A frequency that is not 0."""
    found = _positive(number(megahertz, 0, 20_000))
    return None if found is None else round(found * 1e6) or None


def size(value: object) -> int | None:
    """Bytes, more than none."""
    found = _positive(number(value, 0, 1 << 50))
    return int(found) if isinstance(found, int) else None


def count(value: object) -> int | None:
    """A number of times."""
    found = number(value, 0, 1 << 40)
    return found if isinstance(found, int) else None


def _positive(value: Number | None) -> Number | None:
    return value if value else None


# -- documents


def document(text: bytes) -> Mapping[str, Any]:
    """The first JSON object of a text, whatever stands around it.

    Raises:
        ValueError: there is none.
    """
    words = text.decode(errors="replace")
    begin = words.find("{")
    if begin < 0:
        raise ValueError(f"it says {words.strip()[:80]!r}" if words.strip() else "it says nothing")
    try:
        found, _ = DECODER.raw_decode(words, begin)
    except (ValueError, RecursionError):
        raise ValueError(f"it says {words[begin : begin + 80]!r}, which is no JSON") from None
    assert isinstance(found, dict)
    return found
