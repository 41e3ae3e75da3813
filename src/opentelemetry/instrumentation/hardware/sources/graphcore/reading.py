"""What gcipuinfo says of an IPU: texts, with units that some versions glue to the number and some do not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Number

_MOST: Final = 4096
"""IPUs that a host may see; more is none of a machine's."""


class _Kind(NamedTuple):
    """How a quantity is spelled: the names that it has had, its unit, what that is in ours, and what can be true."""

    names: tuple[str, ...]
    unit: str
    factor: float
    least: float
    most: float


_KINDS: Final = {
    "temperature.board": _Kind(("average board temp",), "C", 1, 1e-9, 200),
    "temperature.die": _Kind(("average die temp",), "C", 1, 1e-9, 200),
    "npu.frequency": _Kind(("clock",), "MHz", 1e6, 1e-9, 1e5),
    "power": _Kind(("ipu power",), "W", 1, 1e-9, 1e5),
    "npu.utilization": _Kind(("ipu utilisation",), "%", 0.01, 0, 100),
    "npu.link.speed": _Kind(("link speed", "speed"), "GT/s", 1e9, 1e-9, 1e4),
    "errors.link_corrected": _Kind(("link correctable error count",), "", 1, 0, 1 << 53),
    "session": _Kind(("ipu utilisation (session)",), "%", 0.01, 0, 100),
    "board.power": _Kind(("total board power",), "W", 1, 1e-9, 1e5),
}
"""By quantity of :data:`~..devices.QUANTITIES`, and ``session`` and ``board.power``. Nothing that is on is at 0."""

FACTS: Final = {
    c.HW_MODEL: "board type",
    c.HW_SERIAL_NUMBER: "board serial number",
    c.HW_DRIVER_VERSION: "driver version",
    c.HW_FIRMWARE_VERSION: "firmware version",
    c.PCI_BDF: "pci id",
}
"""What an IPU is, by attribute."""

_SILENT: Final = ("N/A", "n/a", "", "unknown")


class Ipu(NamedTuple):
    """One IPU at one moment.

    Attributes:
        id: its number.
        said: quantities in base units.
        facts: what it is, by attribute.
        pid: of the program that uses it, if one does.
        state: ``ok`` or ``degraded``; "" where it does not say.
        board: the serial number of its board.
        unclear: what it does not say, in its own words: a name and a value.
        words: all of it.
    """

    id: int
    said: Mapping[str, Number]
    facts: Mapping[str, str]
    pid: int | None
    state: str
    board: str
    unclear: Sequence[tuple[str, str]]
    words: Mapping[str, str]


def parse(line: bytes) -> tuple[list[Ipu], str]:
    """The IPUs that a line of the child speaks of, and the error that it has instead.

    Raises:
        ValueError: it is no line of the child.
    """
    try:
        found = json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict) and isinstance(found.get("error"), str):
        return [], found["error"][:300]
    if not isinstance(found, list):
        raise ValueError(f"it says {line[:80].decode(errors='replace')!r}")
    return [*_ipus(found[:_MOST])], ""


def _ipus(entries: list[Any]) -> Iterator[Ipu]:
    seen = set()
    for place, each in enumerate(entries):
        if not isinstance(each, dict):
            continue
        words = {key: value.strip() for key, value in each.items() if isinstance(value, str)}
        number = _whole(words.get("id", str(place)))
        if number is not None and number not in seen:
            seen.add(number)
            yield _ipu(number, words)


def _ipu(number: int, words: Mapping[str, str]) -> Ipu:
    said: dict[str, Number] = {}
    unclear = []
    for quantity, kind in _KINDS.items():
        name = next((name for name in kind.names if name in words), "")
        if name:
            value = _number(words[name], kind)
            if value is None:
                unclear.append((name, words[name][:40]))
            else:
                said[quantity] = value
    facts = {row: _fact(words.get(name, "")) for row, name in FACTS.items()}
    state = _fact(words.get("ipu error state", ""))
    return Ipu(
        number,
        said,
        {row: fact for row, fact in facts.items() if fact},
        _whole(words.get("user process id", "")),
        "" if not state else "ok" if state.lower() == "no errors" else "degraded",
        _fact(words.get("board serial number", "")),
        unclear,
        words,
    )


def _number(text: str, kind: _Kind) -> Number | None:
    """A number with its unit behind it, or none."""
    found = re.fullmatch(rf"([0-9]{{1,16}}(?:\.[0-9]{{1,9}})?)\s*(?:{re.escape(kind.unit)})?", text)
    if found is None or not kind.least <= float(found[1]) <= kind.most:
        return None
    if not kind.unit:
        return _whole(found[1])
    value = float(found[1]) * kind.factor if kind.factor >= 1 else float(found[1]) / round(1 / kind.factor)
    return int(value) if kind.factor > 1 and value == int(value) else value


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch("[0-9]{1,16}", text) else None


def _fact(text: str) -> str:
    return text[:100] if text not in _SILENT and text.isprintable() else ""
