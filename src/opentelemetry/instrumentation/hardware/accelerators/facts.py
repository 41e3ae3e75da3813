"""Facts: what describes a device, as the attributes of its info metric."""

from __future__ import annotations

import re
from collections.abc import Mapping


def known(facts: Mapping[str, str | int | None]) -> dict[str, str | int]:
    """Return facts without those that are None or ""."""
    return {name: fact for name, fact in facts.items() if fact is not None and fact != ""}


def fact(text: str) -> str:
    """Return a text that a tool prints; "" if it stands for an unknown fact."""
    is_known = text.isprintable() and re.fullmatch("(?!(N/?A|unknown)$).{1,100}", text, re.IGNORECASE)
    return text if is_known else ""
