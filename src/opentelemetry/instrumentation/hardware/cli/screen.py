"""Screen: prints tables; redrawn in place on a terminal, one after the other elsewhere."""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import TextIO

from opentelemetry.instrumentation.hardware.cli.messages import held
from opentelemetry.instrumentation.hardware.cli.signals import Signals
from opentelemetry.instrumentation.hardware.cli.table import draw
from opentelemetry.instrumentation.hardware.cli.text import clip
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.view import View, Viewer
from opentelemetry.instrumentation.hardware.settings.sdk_variables import export_interval

INTERVAL = 2.0  # seconds between two readings that are shown on a terminal

_WIDTH = 100  # columns if the output is no terminal


class Screen:
    """Prints tables while its block lasts. The last table stays on the terminal.

    If it is live and the output is a terminal, each table replaces the one before.
    """

    def __init__(self, out: TextIO, live: bool = False) -> None:
        self._out = out
        self._is_terminal = out.isatty() and os.environ.get("TERM") != "dumb"
        self._last = ""
        self.in_place = live and self._is_terminal

    def __enter__(self) -> Screen:
        if self.in_place:
            self._write("\x1b[?1049h\x1b[?25l")  # the terminal's second screen, no cursor
        return self

    def __exit__(self, *error: object) -> None:
        if self.in_place:
            self._write("\x1b[?25h\x1b[?1049l" + self._last)

    def show(self, view: View, note: str = "") -> None:
        """Print a table. In place it is cut to the height of the terminal, under a line with the note."""
        columns, rows = shutil.get_terminal_size((_WIDTH, 24))
        table = draw(view, columns, self._is_terminal and "NO_COLOR" not in os.environ)
        if self.in_place:
            lines = ([clip(note, columns)] if note else []) + table.rstrip("\n").split("\n")
            if len(lines) > rows:
                hidden = len(lines) - rows + 1
                more = f"… {hidden} more lines: enlarge the window, or select with --sources and --include-metrics"
                lines = [*lines[: rows - 1], clip(more, columns)]
            self._write("\x1b[H" + "".join(f"{line}\x1b[K\n" for line in lines)[:-1] + "\x1b[J")
        else:
            self._write(f"\n{table}" if self._last else table)
        self._last = table

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def watch(
    session: Session, signals: Signals, interval: float | None, duration: float | None, note: Callable[[], str]
) -> None:
    """Show tables of a started session until a signal or the end of the duration, with a note in the first line.

    Without an interval, there are two seconds between two tables on a terminal, elsewhere those between two exports.
    """
    viewer = Viewer(session)
    due = time.monotonic()
    end = due + (math.inf if duration is None else duration)
    with Screen(sys.stdout, live=True) as screen, held() if screen.in_place else nullcontext():
        interval = interval or (INTERVAL if screen.in_place else export_interval())
        wait = min(interval, 1.0)  # the first table comes soon
        while True:
            due = max(due + wait, time.monotonic())
            has_ended = signals.wait(max(0.0, min(due, end) - time.monotonic())) or time.monotonic() >= end
            is_first, is_last = wait != interval, due >= end
            if not has_ended or is_first or is_last:  # the first and the last table are shown even if a signal came
                view = viewer.collect()
                # Within a job the host has a reporter already, and only the process is left.
                screen.show(view.of_host() if session.is_reporter else view, note())
            if has_ended:
                return
            wait = interval
