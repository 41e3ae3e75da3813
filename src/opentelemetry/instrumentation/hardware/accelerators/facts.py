"""Facts: what describes a device, as the attributes of its info metric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

# Texts of drivers and tools in place of a value, in lower case.
ABSENT: Final = frozenset(
    {
        "",
        "n/a",
        "na",
        "none",
        "not found",
        "not specified",
        "not supported",
        "undefined",
        "unknown",
        "unknown error",
        "unsupported",
        "redacted",
        "insufficient permissions",
        "requested functionality has been deprecated",
        "gpu access blocked by the operating system",
        "gpu is lost",
        "gpu requires reset",
    }
)


def known(facts: Mapping[str, str | int | None]) -> dict[str, str | int]:
    """Return facts without those that are None or ""."""
    return {name: fact for name, fact in facts.items() if fact is not None and fact != ""}


def fact(text: str, form: str = ".{1,200}") -> str:
    """Return a text that a driver or tool reports; "" if it stands for an unknown fact, or has not the form of one."""
    text = " ".join(text.split())
    return text if text.lower() not in ABSENT and text.isprintable() and re.fullmatch(form, text) else ""
