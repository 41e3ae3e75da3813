"""Screen: where tables go again and again; redrawn in place on a terminal, one after the other anywhere else."""

from __future__ import annotations

import os
import shutil
import sys
from types import TracebackType
from typing import TextIO

from opentelemetry.instrumentation.hardware.cli.glance import glance, overview
from opentelemetry.instrumentation.hardware.cli.table import clip, draw
from opentelemetry.instrumentation.hardware.cli.view import View

_PLAIN_WIDTH = 100
"""Columns where there is no terminal to ask."""

_ONE = 2
"""Lines of an overview of one GPU, its heading included."""


class Screen:
    """A place for tables while its block lasts. On a terminal the last table stays behind.

    Args:
        out: where to.
        live: whether every table replaces the one before, where ``out`` is a terminal.
    """

    def __init__(self, out: TextIO = sys.stdout, live: bool = False) -> None:
        self._out = out
        self._terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        self._live = live and self._terminal
        self._last = ""
        self._shown = 0

    @property
    def in_place(self) -> bool:
        """Whether tables replace one another."""
        return self._live

    def __enter__(self) -> Screen:
        if self._live:
            self._write("\x1b[?1049h\x1b[?25l")  # the terminal's second screen, no cursor
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._write("\x1b[?25h\x1b[?1049l" + self._last)

    def show(self, view: View, note: str = "") -> None:
        """Draw a table. In place it has a line of ours above it, and what people look for first; the rest as it fits.

        Elsewhere the GPUs stand first where there are several.
        """
        columns, rows = shutil.get_terminal_size((_PLAIN_WIDTH, 24))
        bold = self._terminal and "NO_COLOR" not in os.environ
        several = overview(view, columns)
        table = draw(view, columns, bold, several if len(several) > _ONE else ())
        if self._live:
            self._last = table
            table = draw(view, columns, bold, glance(view, columns))
            self._write(
                "\x1b[H" + "".join(f"{line}\x1b[K\n" for line in _fitting(table, note, columns, rows))[:-1] + "\x1b[J"
            )
        else:
            self._write(("\n" if self._shown else "") + table)
        self._shown += 1

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _fitting(table: str, note: str, columns: int, rows: int) -> list[str]:
    lines = ([clip(note, columns)] if note else []) + table.rstrip("\n").split("\n")
    if len(lines) > rows:
        left = len(lines) - rows + 1
        more = f"… {left} more lines; a taller window shows them, --sources leaves some out"
        lines = [*lines[: rows - 1], clip(more, columns)]
    return lines
