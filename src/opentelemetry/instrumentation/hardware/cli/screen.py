"""Screen: prints tables; redrawn in place on a terminal, one after the other elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from types import TracebackType
from typing import TextIO

from opentelemetry.instrumentation.hardware.cli.layout import clip
from opentelemetry.instrumentation.hardware.cli.table import draw
from opentelemetry.instrumentation.hardware.cli.view import View

_WIDTH = 100
"""Columns if the output is no terminal."""


class Screen:
    """Prints tables while its block lasts. The last table stays on the terminal.

    Args:
        out: The output.
        live: Whether each table replaces the one before, if the output is a terminal.
    """

    def __init__(self, out: TextIO = sys.stdout, live: bool = False) -> None:
        self._out = out
        self._is_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        self._last = ""
        self._is_first = True
        self.in_place = live and self._is_terminal

    def __enter__(self) -> Screen:
        if self.in_place:
            self._write("\x1b[?1049h\x1b[?25l")  # the terminal's second screen, no cursor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.in_place:
            self._write("\x1b[?25h\x1b[?1049l" + self._last)

    def show(self, view: View, note: str = "") -> None:
        """Print a table. In place it is cut to the height of the terminal, under a line with the note."""
        columns, rows = shutil.get_terminal_size((_WIDTH, 24))
        table = draw(view, columns, self._is_terminal and "NO_COLOR" not in os.environ)
        if self.in_place:
            self._last = table
            lines = _cut(([clip(note, columns)] if note else []) + table.rstrip("\n").split("\n"), columns, rows)
            self._write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines)[:-1] + "\x1b[J")
        else:
            self._write(table if self._is_first else "\n" + table)
        self._is_first = False

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _cut(lines: list[str], columns: int, rows: int) -> list[str]:
    if len(lines) <= rows:
        return lines
    hidden = len(lines) - rows + 1
    more = f"… {hidden} more lines: enlarge the window, or select with --sources and --include-metrics"
    return [*lines[: rows - 1], clip(more, columns)]
