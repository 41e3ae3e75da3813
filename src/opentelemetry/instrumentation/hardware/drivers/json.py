"""JSON in the output of drivers. Integers of more than 20 digits become infinity; NaN and Infinity are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from opentelemetry.instrumentation.hardware.model import Number

_DIGITS = 20  # maximum digits of an integer. Converting a very long one would take minutes.


def _integer(digits: str) -> Number:
    return int(digits) if len(digits) <= _DIGITS else math.inf


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_constant=_refuse)


def decoded(line: bytes) -> Any:
    """Return the document in a line; None if it is not JSON."""
    try:
        return DECODER.decode(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None


def table(value: object) -> Mapping[str, Any]:
    """Return an object of a document; empty if the value is none."""
    return value if isinstance(value, dict) else {}
