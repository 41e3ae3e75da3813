"""JSON as tools print it, and its numbers. One of more digits than any machine says is infinite; NaN is no JSON."""

from __future__ import annotations

import json
import math
from typing import Final, NoReturn

from opentelemetry.instrumentation.hardware.model import Number

_DIGITS = 20
"""An integer of more digits is none of a machine's."""


def _whole(digits: str) -> Number:
    return int(digits) if len(digits) <= _DIGITS else math.inf


def _refuse(word: str) -> NoReturn:
    raise ValueError(word)


DECODER: Final = json.JSONDecoder(parse_int=_whole, parse_constant=_refuse)


def number(value: object, least: float, most: float) -> Number | None:
    """A value of a document, where it is a number that can be true: finite, and within these bounds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if least <= value <= most else None
