"""Colours: a dark and a light theme, and which of them suits the terminal."""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from rich.style import Style
from textual.theme import Theme as TextualTheme

_WAIT = 0.2  # seconds to wait for the terminal's answer. Some give none.

# Colours of the 256 that every terminal has, so that nothing changes without true colour.
_DARK = {
    "background": "#121212",
    "selected": "#303030",
    "": "#c6c6c6",
    "dim": "#808080",
    "strong": "bold #eeeeee",
    "brand": "bold #121212 on #87d7af",
    "track": "#3a3a3a",
    "good": "#5fd787",
    "warning": "#ffd75f",
    "bad": "bold #ff5f5f",
    "busy": "#5fd7d7",
    "memory": "#af87ff",
    "disk": "#d7af5f",
    "network": "#5fafff",
    "key": "bold #87d7af",
    "frame": "#585858",
    "levels": "#5fd787 #87d787 #afd787 #d7d787 #ffd75f #ffaf5f #ff875f #ff5f5f",
}
_LIGHT = {
    "background": "#ffffff",
    "selected": "#dadada",
    "": "#303030",
    "dim": "#767676",
    "strong": "bold #121212",
    "brand": "bold #ffffff on #00875f",
    "track": "#d0d0d0",
    "good": "#008700",
    "warning": "bold #af5f00",
    "bad": "bold #d70000",
    "busy": "#008787",
    "memory": "#5f5faf",
    "disk": "#875f00",
    "network": "#005faf",
    "key": "bold #00875f",
    "frame": "#9e9e9e",
    "levels": "#008700 #5f8700 #878700 #af8700 #af8700 #d75f00 #d75f00 #d70000",
}


class Palette(NamedTuple):
    """The styles of a theme by name.

    Attributes:
        styles: On the background.
        selected: On the background of the selected row.
        theme: The theme of Textual's widgets.
    """

    styles: Mapping[str, Style]
    selected: Mapping[str, Style]
    theme: TextualTheme


def _palette(name: str, colors: Mapping[str, str], dark: bool) -> Palette:
    named = {key: value for key, value in colors.items() if key not in ("background", "selected", "levels")}
    named |= {f"level{at}": color for at, color in enumerate(colors["levels"].split())}
    styles, selected = (
        {key: Style.parse(color if " on " in color else f"{color} on {paper}") for key, color in named.items()}
        for paper in (colors["background"], colors["selected"])
    )
    plain = {key: color.split()[1] if color.startswith("bold ") else color for key, color in colors.items()}
    theme = TextualTheme(
        name,
        primary=plain["key"],
        foreground=plain[""],
        background=plain["background"],
        surface=plain["background"],
        panel=plain["selected"],
        warning=plain["warning"],
        error=plain["bad"],
        dark=dark,
        variables={key: plain[key] for key in ("frame", "strong", "key", "good", "busy", "memory", "network", "disk")},
    )
    return Palette(styles, selected, theme)


THEMES: Mapping[str, Palette] = {"dark": _palette("dark", _DARK, True), "light": _palette("light", _LIGHT, False)}


def of_terminal() -> str:
    """Return the name of the theme that suits the background of this terminal; ``dark`` if it is unknown.

    OSC 11 asks the terminal for it. Not all terminals answer, but all answer the question for their type, which follows
    and ends the wait. Some terminals set ``COLORFGBG`` instead.
    """
    color = _parse(_ask("\x1b]11;?\x1b\\\x1b[c"))
    if color is None:  # the last number of COLORFGBG is the background: 7 and 15 are light
        return "light" if os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"
    red, green, blue = color
    return "light" if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "dark"


def _parse(answer: str) -> tuple[float, float, float] | None:
    """Return red, green and blue, 0 to 1, of an answer such as ``rgb:1212/1212/1212``."""
    found = re.search(r"\x1b\]11;rgba?:([0-9a-f]+)/([0-9a-f]+)/([0-9a-f]+)", answer, re.IGNORECASE)
    if found is None:
        return None
    red, green, blue = (int(digits, 16) / (16 ** len(digits) - 1) for digits in found.groups())
    return red, green, blue


def _ask(question: str) -> str:
    """Write to the terminal, and return what it answers."""
    if sys.platform == "win32":
        return ""
    import termios
    import tty

    answer, terminal = "", sys.stdin.fileno()
    with suppress(OSError, termios.error):
        before = termios.tcgetattr(terminal)
        try:
            tty.setcbreak(terminal)
            sys.stdout.write(question)
            sys.stdout.flush()
            end = time.monotonic() + _WAIT
            while not re.search(r"\x1b\[\?[\d;]*c", answer) and (left := end - time.monotonic()) > 0.0:
                if not select.select([terminal], [], [], left)[0] or not (read := os.read(terminal, 256)):
                    break  # it does not answer, or has hung up
                answer += read.decode("ascii", "replace")
        finally:
            termios.tcsetattr(terminal, termios.TCSANOW, before)
    return answer
