"""The application without its keys: its life, and what it shows."""

from __future__ import annotations

import asyncio
import io
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, redirect_stderr, suppress

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Grid, VerticalScroll
from textual.driver import Driver
from textual.geometry import Size
from textual.widgets import Input

from opentelemetry.instrumentation.hardware.cli.messages import START
from opentelemetry.instrumentation.hardware.cli.signals import Signals
from opentelemetry.instrumentation.hardware.cli.text import clip, wrap
from opentelemetry.instrumentation.hardware.cli.top import host
from opentelemetry.instrumentation.hardware.cli.top.board import PANELS, Board, arranged
from opentelemetry.instrumentation.hardware.cli.top.feed import Feed
from opentelemetry.instrumentation.hardware.cli.top.help import DEVICE_KEYS, KEYS, PROCESS_KEYS
from opentelemetry.instrumentation.hardware.cli.top.shapes import DIM, WARNING, Line, whole
from opentelemetry.instrumentation.hardware.cli.top.themes import THEMES
from opentelemetry.instrumentation.hardware.cli.top.widgets import Bar, Drawn, Panel
from opentelemetry.instrumentation.hardware.system.identity import host_name

_MESSAGE = 30.0  # seconds for which a message is shown

_SOON = 0.5  # seconds after which the first values are shown


class Shell(App[None]):
    """The live view, which reads a feed and shows it, until a key, a signal or the end of the duration.

    Without an interval, in seconds, it reads on request, for tests. The note is the state of the export, for the first
    line. Standard error goes to ``messages``, and its newest line is shown for a while.
    """

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    CSS = """
    Screen { background: $background; color: $foreground; }
    Bar { height: 1; background: $background; }
    #problem { display: none; }
    #filter { display: none; height: 1; border: none; padding: 0 1; background: $panel; color: $strong; }
    #body { background: $background; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0; height: 1fr; }
    #grid { grid-size: 12; grid-gutter: 0; background: $background; }
    Panel {
        border: round $frame; border-title-color: $strong; border-title-style: bold; border-subtitle-color: $key;
        background: $background; padding: 0 1; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0;
    }
    Panel:focus { border: round $key; }
    #cpu { border-title-color: $good; }
    #devices, #page { border-title-color: $busy; }
    #memory { border-title-color: $memory; }
    #traffic { border-title-color: $network; }
    #storage { border-title-color: $disk; }
    Message, Kill { align: center middle; background: $background 60%; }
    #message { width: 78; max-width: 100%; max-height: 100%; }
    #kill { width: 64; max-width: 100%; height: auto; border: round $key; background: $background; padding: 0 1; }
    #signals { height: auto; border: none; background: $background; }
    """

    def __init__(
        self,
        feed: Feed,
        interval: float | None,
        note: Callable[[], str] = str,
        signals: Signals | None = None,
        duration: float | None = None,
        messages: io.StringIO | None = None,
        theme: str = "dark",
    ) -> None:
        super().__init__()
        self.register_theme(THEMES[theme].theme)
        self.theme = theme
        self._feed = feed
        self._interval = interval
        self._note = note
        self._signals = signals
        self._duration = duration
        self._board = Board()
        self._terminal = Size(80, 24)
        self._zoomed = ""
        self._arrangement: object = None
        self._is_paused = False
        self._wake = asyncio.Event()
        self._error = ""
        self._messages = io.StringIO() if messages is None else messages
        self._redirection = ExitStack()
        self._message = ("", 0.0)  # and when it came
        self._started = time.monotonic()

    # -- life

    def get_driver_class(self) -> type[Driver]:
        """Return ours where Textual has one for Unix."""
        found = super().get_driver_class()
        if found.__name__ == "LinuxDriver":
            from opentelemetry.instrumentation.hardware.cli.top.driver import TerminalDriver

            return TerminalDriver
        return found

    def compose(self) -> ComposeResult:
        yield Bar("header")
        with VerticalScroll(id="body", can_focus=False), Grid(id="grid"):
            for name in PANELS:
                yield Panel(name)
        yield Input(id="filter", placeholder="text in device, PID, user or command", compact=True)
        yield Bar("problem")
        yield Bar("footer")

    def on_mount(self) -> None:
        self._terminal = self.size
        self._redirection.enter_context(redirect_stderr(self._messages))  # they would be printed over the view
        if self._signals is not None and sys.platform != "win32":  # where Ctrl-C is a key, and loops have no readers
            asyncio.get_running_loop().add_reader(self._signals.fileno(), self._take_signal)
        if self._duration is not None:
            self.set_timer(self._duration, self.exit)
        self._show()
        if self._interval is not None:
            self.run_worker(self._watch(), exclusive=True)

    def _take_signal(self) -> None:
        if self._signals is not None and self._signals.wait(0.0):
            self.exit()

    def on_unmount(self) -> None:
        self._redirection.close()

    async def _watch(self) -> None:
        """Read and show, until the end."""
        waiting = self.set_interval(0.2, self._panel("page").redraw)
        with suppress(Exception):  # it is tried again, and then the reason is shown
            await asyncio.to_thread(self._feed.open)
        due, wait = time.monotonic(), _SOON
        while True:
            due = max(due + wait, time.monotonic())
            wait = self._interval or 60.0
            self._wake.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, due - time.monotonic()))
            if not self._is_paused:
                await self.read(is_expected=self._board.readout is not None and not self._wake.is_set())
                waiting.stop()

    async def read(self, is_expected: bool = False) -> None:
        """Read once and show the values; see :meth:`Feed.collect`."""
        try:
            self._board.add(await asyncio.to_thread(self._feed.collect, is_expected))
            self._error = ""
            self._show()
        except Exception as error:  # the process may export, too
            self._error = f"{type(error).__name__}: {error}"
            self._show_bars()

    # -- what is shown

    def on_resize(self, event: events.Resize) -> None:
        """Arrange the panels for the new size. The size of the application is still the one before."""
        self._terminal = event.size
        self._arrange()
        self._show_bars()

    def _show(self) -> None:
        self._arrange()
        self._show_bars()
        for name, draw in (self._board.draws() or {"page": self._draw_waiting}).items():
            if self._panel(name).display:
                self._panel(name).show(draw)

    def _draw_waiting(self, width: int, height: int) -> Drawn:
        """Return what is shown before the first values."""
        sources = ", ".join(self._feed.waiting()) or "the second reading, for rates"
        seconds = time.monotonic() - self._started
        text = f"waiting for {sources} ({seconds:.0f} s)"
        return Drawn([[(line, DIM)] for line in wrap(text, max(width, 20))], "Reading")

    def _panel(self, name: str) -> Panel:
        return self.screen_stack[0].query_one(f"#{name}", Panel)

    def _arrange(self) -> None:
        body = self.screen_stack[0].query_one("#body")
        grid = self.screen_stack[0].query_one("#grid", Grid)
        is_filtering = self.screen_stack[0].query_one("#filter").display
        width = self._terminal.width
        height = self._terminal.height - 2 - (1 if self._problem() else 0) - (1 if is_filtering else 0)
        needs = self._board.needs(height)
        zoomed = "page" if self._board.page or not needs else self._zoomed
        rows = arranged(
            width, height, {**needs, "page": 3} if zoomed == "page" else needs, self._board.graphs(width), zoomed
        )
        if (rows, width) == self._arrangement:
            return
        self._arrangement = (rows, width)
        order = [name for row in rows for name in row.panels]
        for panel in grid.query(Panel):
            panel.display = panel.id in order
        grid.sort_children(key=lambda panel: order.index(panel.id) if panel.id in order else len(order))
        for row in rows:
            for name, span in zip(row.panels, row.spans):
                self._panel(name).styles.column_span = span
        grid.styles.grid_rows = tuple(row.height for row in rows)
        grid.styles.height = sum(row.height for row in rows)
        body.refresh(layout=True)

    def _problem(self) -> str:
        """Return what is wrong, in a sentence."""
        view = self._board.readout.view if self._board.readout else None
        now = view.time if view else 0.0
        message = self._messages.getvalue().rstrip().rpartition("\n")[2].removeprefix(START)
        for device in view.names if view else ():  # its name says enough in a line
            message = message.replace(f" ({device})", "")
        if message != self._message[0]:
            self._message = (message, now)
        found = [
            self._error,
            message if now < self._message[1] + _MESSAGE else "",
            *(map(str, view.snapshot.problems) if view else ()),
        ]
        return next(filter(None, found), "")

    def _show_bars(self) -> None:
        screen = self.screen_stack[0]
        view = self._board.readout.view if self._board.readout else None
        clock = time.strftime("%H:%M:%S", time.localtime(view.time)) if view else ""
        width = self._terminal.width
        note = "paused" if self._is_paused else self._note()
        screen.query_one("#header", Bar).show(host.header(host_name(), view, note, clock, width))
        problem = self._problem()
        bar = screen.query_one("#problem", Bar)
        if bar.display != bool(problem):
            bar.display = bool(problem)
        bar.show([(clip(f" {problem}", width), WARNING)])
        page = self._board.page
        known = KEYS if page is None else DEVICE_KEYS if page[0] == "devices" else PROCESS_KEYS
        keys: list[Line] = [[(key, "key"), (f" {text}", DIM)] for key, text in known]
        every: list[Line] = [[(f"every {self._interval:g} s", DIM)]] if self._interval else []
        screen.query_one("#footer", Bar).show([(" ", ""), *whole([*keys, *every], width - 2)])
