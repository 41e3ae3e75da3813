"""Text: numbers with three significant digits and a unit that suits their size, and lines of a given width."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from opentelemetry.instrumentation.hardware.model import Kind, Metric, Number

GAP = "  "  # between two columns


def value_text(metric: Metric, value: Number) -> str:
    """Format a value of a metric; ratios in percent."""
    is_ratio = metric.unit == "1" and metric.kind is Kind.GAUGE
    return quantity(value, "%" if is_ratio else metric.unit)


def rate_text(metric: Metric, rate: float) -> str:
    """Format the increase of a counter per second."""
    if metric.name.endswith("cpu.time"):
        return f"+{_digits(rate)} CPU"
    if metric.unit == "s":  # seconds per second
        return f"+{quantity(rate, '%')}"
    if metric.unit == "J":
        return f"+{quantity(rate, 'W')}"
    return f"+{quantity(rate, metric.unit)}/s"


def quantity(value: Number, unit: str) -> str:
    """Format a number with its unit, with binary prefixes for bytes and decimal ones for other units."""
    if unit == "%":
        return f"{_digits(100 * value)} %"
    if unit == "s":
        return _scaled(value * 1e6, 1000, ("µs", "ms")) if 0 < value < 0.1 else duration(value)
    if unit == "By":
        return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))
    if unit == "Cel":
        return f"{_digits(value)} °C"
    if unit in ("Hz", "J", "W", "V"):
        return _scaled(value, 1000, tuple(prefix + unit for prefix in ("", "k", "M", "G", "T")))
    if unit == "rpm":
        return f"{value:,.0f} rpm"
    return f"{value:,}" if isinstance(value, int) else _digits(value)


def fraction(part: Number | None, whole: Number | None, unit: str) -> str:
    """Format ``48.8 / 79.6 GiB``; "" if the part is unknown, only the part if the whole is unknown."""
    if part is None:
        return ""
    text = quantity(part, unit)
    if whole is None:
        return text
    limit = quantity(whole, unit)
    number, _, prefixed = text.partition(" ")
    return f"{number if limit.endswith(f' {prefixed}') else text} / {limit}"


def duration(seconds: Number) -> str:
    """Format a time span in its two largest units."""
    if seconds < 59.95:
        return f"{_digits(seconds)} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s"


def counted(count: int, noun: str) -> str:
    """Format ``1 GPU``, ``2 GPUs``."""
    return f"{count} {noun}{'s' if count > 1 else ''}"


def listed(words: Sequence[str], most: int, rest: str = "more") -> str:
    """Format the first words of a list, and the number of the others."""
    others = [f"{len(words) - most} {rest}"] if len(words) > most else []
    return ", ".join([*words[:most], *others])


def _scaled(value: Number, step: int, units: Sequence[str]) -> str:
    size, power = float(value), 0
    while abs(size) >= step * 0.9995 and power < len(units) - 1:
        size, power = size / step, power + 1
    return f"{_digits(size)} {units[power]}"


def _digits(value: float) -> str:
    """Format three significant digits, with at most two decimals."""
    if value == 0:
        return "0"
    if abs(value) < 0.01:
        return "<0.01" if value > 0 else ">-0.01"
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{min(places, 2)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# -- lines


def clip(text: str, width: int) -> str:
    """Text of at most this width. Of a path the end is kept."""
    if len(text) <= width:
        return text
    if text.startswith("/"):
        return "…" + text[len(text) - width + 1 :]
    return text[: width - 1] + "…"


def columns(rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Rows of cells as lines with aligned columns."""
    sizes = [max(map(len, cells)) for cells in zip(*rows)]
    lines = (GAP.join(f"{cell:{size}}" for cell, size in zip(cells, sizes)) for cells in rows)
    return [clip(line.rstrip(), width) for line in lines]


def wrap(text: str, width: int, start: str = "", indent: str = "") -> list[str]:
    """A sentence in lines, broken at spaces only; ``start`` precedes the first line, ``indent`` the others."""
    return textwrap.wrap(
        text, width, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
