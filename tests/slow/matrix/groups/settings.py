"""Each environment variable of the package with invalid values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from tests.slow.matrix.case import ESCAPES, Case

from opentelemetry.instrumentation.hardware.settings import PREFIX, Config

_VALUES: Final[Mapping[str, str]] = {
    "words": "complete nonsense",
    "negative": "-1",
    "control": f"\x01{ESCAPES}\x7f, é\udcff\udcfe",
    "huge": "9" * 50_000,
    "list": ",,, ,=,:,-",
}


def cases() -> list[Case]:
    found = []
    for setting in fields(Config):
        if setting.name.startswith("_"):
            continue
        for name, value in _VALUES.items():
            found.append(
                Case(
                    f"{setting.name}-{name}",
                    settings={PREFIX + setting.name.upper(): value},
                    lines=6 if setting.name in _LISTS else 1,  # each invalid word of a list is named
                    hosts=None if setting.name in _RESTRICTING else 1,
                    fast=(setting.name, name) in _FAST,
                )
            )
    return found


_LISTS: Final = ("sources", "detail", "openmetrics", "openmetrics_filters", "spans_filter", "devices", "interfaces")
_RESTRICTING: Final = ("include_metrics", "exclude_metrics")
_FAST: Final = {("sample_interval", "huge"), ("openmetrics_filters", "control")}
