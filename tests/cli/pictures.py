"""A screen as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rich.style import Style
from textual.strip import Strip

from opentelemetry.instrumentation.hardware.cli.top.themes import THEMES

BACKGROUND = str(THEMES["dark"].theme.background)

_CELL, _LINE, _SIZE = 8.4, 18, 14
_FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"
_MARGIN = 14


def picture(strips: Sequence[Strip]) -> str:
    """Return the screen as SVG. Bars, graphs and frames are shapes, so that they do not depend on a font."""
    width = _CELL * strips[0].cell_length + 2 * _MARGIN
    height = _LINE * len(strips) + 2 * _MARGIN
    shapes: dict[str, list[str]] = {}
    texts: list[str] = []
    for row, strip in enumerate(strips):
        column, y = 0, _MARGIN + _LINE * row
        for segment in strip:
            style = segment.style or Style()
            ink, paper = colors(style)
            if paper != BACKGROUND:
                shapes.setdefault(paper, []).append(_box(column, y, 0, 0, len(segment.text) * _CELL, _LINE))
            for start, word in _words(segment.text):
                x = _MARGIN + _CELL * (column + start)
                weight = ' font-weight="bold"' if style.bold else ""
                texts.append(
                    f'<text x="{x:.1f}" y="{y + 13}" fill="{ink}"{weight} textLength="{_CELL * len(word):.1f}">'
                    f"{escape(word)}</text>"
                )
            for at, char in enumerate(segment.text):
                drawn = _shape(char, column + at, y)
                if drawn:
                    shapes.setdefault(ink, []).append(drawn)
            column += len(segment.text)
    paths = [f'<path fill="{color}" d="{"".join(parts)}"/>' for color, parts in shapes.items()]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" font-family="{_FONT}" font-size="{_SIZE}" xml:space="preserve">'
    )
    frame = f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>'
    return "\n".join([head, "<title>otel-hardware top</title>", frame, *paths, *texts, "</svg>", ""])


def colors(style: Style) -> tuple[str, str]:
    """Return the colours of text and background."""
    found = [
        BACKGROUND if color is None or color.is_default else color.get_truecolor().hex
        for color in (style.color, style.bgcolor)
    ]
    ink, paper = found[0] if style.color else "#c6c6c6", found[1]
    return (paper, ink) if style.reverse else (ink, paper)


def _words(text: str) -> Iterable[tuple[int, str]]:
    """The parts of a text that are not shapes, without the spaces around them."""
    start = None
    for at, char in enumerate(f"{text}\u2501"):
        if _is_shape(char) or (char == " " and text[at : at + 2] in ("  ", " ")):
            if start is not None:
                word = text[start:at]
                yield start, word
                start = None
        elif start is None and char != " ":
            start = at


def _is_shape(char: str) -> bool:
    return "\u2500" <= char <= "\u259f" or "\u2800" <= char <= "\u28ff"


def _box(column: int, y: float, left: float, top: float, width: float, height: float) -> str:
    return f"M{_MARGIN + _CELL * column + left:.1f},{y + top:.1f}h{width:.1f}v{height:.1f}h{-width:.1f}z"


def _shape(char: str, column: int, y: float) -> str:
    half, middle = _CELL / 2, _LINE / 2
    if "\u2800" < char <= "\u28ff":
        dots = ord(char) - 0x2800
        places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
        return "".join(
            _box(column, y, 0.9 + half * x, 1.1 + 4.5 * line, 2.6, 2.6)
            for bit, (x, line) in enumerate(places)
            if dots & 1 << bit
        )
    if "\u2581" <= char <= "\u2588":
        tall = _LINE * (ord(char) - 0x2580) / 8
        return _box(column, y, 0.6, _LINE - tall, _CELL - 1.2, tall)
    if char == "━":
        return _box(column, y, 0, middle - 2.5, _CELL, 5)
    if char == "╸":
        return _box(column, y, 0, middle - 2.5, half, 5)
    horizontal = {
        "─": (0.0, _CELL),
        "╭": (half, half),
        "╰": (half, half),
        "╮": (0.0, half + 0.5),
        "╯": (0.0, half + 0.5),
    }
    vertical = {
        "│": (0.0, float(_LINE)),
        "╭": (middle, middle),
        "╮": (middle, middle),
        "╰": (0.0, middle),
        "╯": (0.0, middle),
    }
    found = ""
    if char in horizontal:
        found += _box(column, y, horizontal[char][0], middle - 0.5, horizontal[char][1], 1)
    if char in vertical:
        found += _box(column, y, half - 0.5, vertical[char][0], 1, vertical[char][1])
    return found
