"""Text in lines of a given width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

GAP = "  "  # between two columns


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
