"""Numbers as drivers report them: as numbers, or as text with a unit."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Final

from opentelemetry.instrumentation.hardware.model import Number

_MOST: Final = sys.float_info.max


def number(value: object, unit: str = "") -> Number:
    """Parse a number.

    Args:
        value: An int, a finite float, or text (str or bytes) such as ``36.2 C``, without a sign or exponent.
        unit: Spellings of the unit that may follow the number in a text, separated by ``|``.

    Raises:
        ValueError: The value is not a number in this unit, for example ``N/A``. The message quotes it.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if -_MOST <= value <= _MOST:  # an int may be larger than any float
            return value
    elif isinstance(value, (str, bytes)):
        value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        match = _pattern(unit).fullmatch(value.strip())
        if match is not None:
            return float(match[1]) if "." in match[1] else int(match[1])
    raise ValueError(f"the driver reports {str(value).strip()[:60]!r}")


@lru_cache(maxsize=100)
def _pattern(unit: str) -> re.Pattern[str]:
    spelled = "|".join(map(re.escape, filter(None, unit.split("|"))))
    return re.compile(rf"([0-9]{{1,20}}(?:\.[0-9]{{1,9}})?)(?: *(?:{spelled}))?", re.IGNORECASE)
