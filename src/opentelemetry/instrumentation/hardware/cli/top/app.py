"""The application: which panels show what, and keys."""

from __future__ import annotations

import asyncio
import io
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, redirect_stderr, suppress
from typing import Any, ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, VerticalScroll
from textual.driver import Driver
from textual.geometry import Size

from opentelemetry.instrumentation.hardware.cli.signals import Signals
from opentelemetry.instrumentation.hardware.cli.top import devices as tables
from opentelemetry.instrumentation.hardware.cli.top import host
from opentelemetry.instrumentation.hardware.cli.top.arrangement import arranged
from opentelemetry.instrumentation.hardware.cli.top.feed import Feed, Readout
from opentelemetry.instrumentation.hardware.cli.top.help import HELP_LINES, KEYS
from opentelemetry.instrumentation.hardware.cli.top.history import History
from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    DIM,
    STRONG,
    WARNING,
    Layout,
    Line,
)
from opentelemetry.instrumentation.hardware.cli.top.widgets import BACKGROUND, Bar, Draw, Drawn, Message, Panel

_MESSAGE = 30.0
"""Seconds for which a message is shown."""

_FASTEST, _SLOWEST = 0.5, 60.0
"""Bounds of the seconds between two readings."""


class Top(App[None]):
    """The live view.

    Args:
        feed: What it shows.
        interval: Seconds between two readings; None for readings on request, for tests.
        note: Returns the state of the export, for the first line.
        signals: Signals that end it.
        duration: Seconds after which it ends; None if only a key or a signal ends it.
        messages: Where standard error goes. The newest line is shown for a while.
    """

    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = None
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c,ctrl+q", "quit", "quit", priority=True),
        Binding("question_mark,h,f1", "help", "help"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("z,enter", "zoom", "zoom"),
        Binding("escape", "unzoom", "unzoom"),
        Binding("p,space", "pause", "pause"),
        Binding("m", "missing", "missing"),
        Binding("plus,equals_sign", "faster", "faster"),
        Binding("minus", "slower", "slower"),
        Binding("ctrl+z", "suspend_process", "suspend"),
    ]
    CSS = f"""
    Screen {{ background: {BACKGROUND}; color: #c6c6c6; }}
    Bar {{ height: 1; background: {BACKGROUND}; }}
    #problem {{ display: none; }}
    #body {{ background: {BACKGROUND}; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0; height: 1fr; }}
    #grid {{ grid-size: 12; grid-gutter: 0; background: {BACKGROUND}; }}
    Panel {{
        border: round #585858; border-title-color: #eeeeee; border-title-style: bold; border-subtitle-color: #87d7af;
        background: {BACKGROUND}; padding: 0 1; scrollbar-size-vertical: 0; scrollbar-size-horizontal: 0;
    }}
    Panel:focus {{ border: round #87d7af; }}
    #cpu {{ border-title-color: #87d787; }}
    #devices {{ border-title-color: #5fd7d7; }}
    #memory {{ border-title-color: #af87ff; }}
    #traffic {{ border-title-color: #5fafff; }}
    #storage {{ border-title-color: #d7af5f; }}
    Message {{ align: center middle; background: #000000 60%; }}
    #message {{ width: 78; max-width: 100%; max-height: 100%; }}
    """

    def __init__(
        self,
        feed: Feed,
        interval: float | None,
        note: Callable[[], str] = str,
        signals: Signals | None = None,
        duration: float | None = None,
        messages: io.StringIO | None = None,
    ) -> None:
        super().__init__()
        self._feed = feed
        self._interval = interval
        self._note = note
        self._signals = signals
        self._duration = duration
        self._history = History()
        self._readout: Readout | None = None
        self._terminal = Size(80, 24)
        self._orders = {"devices": ("DEVICE", False), "processes": ("DEVICE", False)}
        self._zoomed = ""
        self._is_paused = False
        self._wake = asyncio.Event()
        self._error = ""
        self._messages = io.StringIO() if messages is None else messages
        self._redirection = ExitStack()
        self._message = ("", 0.0)  # and when it came

    # -- life

    def get_driver_class(self) -> type[Driver]:
        """Return ours where Textual has one for Unix."""
        found = super().get_driver_class()
        if found.__name__ == "LinuxDriver":
            from opentelemetry.instrumentation.hardware.cli.top.driver import TerminalDriver

            return TerminalDriver
        return found

    def compose(self) -> ComposeResult:
        """Make the panels."""
        yield Bar("header")
        with VerticalScroll(id="body", can_focus=False), Grid(id="grid"):
            for name in ("devices", "processes", "cpu", "memory", "traffic", "storage"):
                yield Panel(name)
        yield Bar("problem")
        yield Bar("footer")

    def on_mount(self) -> None:
        """Begin to read."""
        self._terminal = self.size
        self._redirection.enter_context(redirect_stderr(self._messages))  # they would be printed over the view
        if self._signals is not None:
            asyncio.get_running_loop().add_reader(self._signals.fileno(), self._take_signal)
        if self._duration is not None:
            self.set_timer(self._duration, self.exit)
        self._arrange()
        if self._interval is not None:
            self.run_worker(self._watch(), exclusive=True)

    def _take_signal(self) -> None:
        if self._signals is not None and self._signals.wait(0.0):
            self.exit()

    def on_unmount(self) -> None:
        """Restore standard error."""
        self._redirection.close()

    async def _watch(self) -> None:
        """Read and show, until the end."""
        with suppress(Exception):  # it is tried again, and then the reason is shown
            await asyncio.to_thread(self._feed.open)
        due, wait = time.monotonic(), _FASTEST  # the first values come soon
        while True:
            due = max(due + wait, time.monotonic())
            wait = self._interval or _SLOWEST
            self._wake.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), max(0.0, due - time.monotonic()))
            if not self._is_paused:
                await self.read()

    async def read(self) -> None:
        """Read once and show the values."""
        try:
            self._readout = await asyncio.to_thread(self._feed.collect)
            self._error = ""
            self._history.add(self._readout.view, self._readout.devices)
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
        if self._readout is None:
            return
        view, history = self._readout.view, self._history
        contents: dict[str, Draw] = {
            "devices": self._draw_devices,
            "processes": self._draw_processes,
            "cpu": lambda width, height: Drawn(*host.cpu(view, history, width, height)),
            "memory": lambda width, height: Drawn(*host.memory(view, history, width, height)),
            "traffic": lambda width, height: Drawn(*host.traffic(view, history, width, height)),
            "storage": lambda width, height: Drawn(*host.storage(view, width)),
        }
        for name, draw in contents.items():
            self._panel(name).show(draw)

    def _panel(self, name: str) -> Panel:
        return self.screen_stack[0].query_one(f"#{name}", Panel)

    def _arrange(self) -> None:
        """Place the panels."""
        body = self.screen_stack[0].query_one("#body")
        grid = self.screen_stack[0].query_one("#grid", Grid)
        width, height = self._terminal.width, self._terminal.height - 2 - (1 if self._problem() else 0)
        rows = arranged(width, height, self._needs(), self._graphs(width), self._zoomed)
        order = [name for row in rows for name in row.panels]
        heights = tuple(row.height for row in rows)
        layout = (order, heights, [row.spans for row in rows], width)
        if layout == getattr(self, "_layout", None):
            return
        self._layout = layout
        for panel in grid.query(Panel):
            panel.display = panel.id in order
        grid.sort_children(key=lambda panel: order.index(panel.id) if panel.id in order else len(order))
        for row in rows:
            for name, span in zip(row.panels, row.spans):
                self._panel(name).styles.column_span = span
        grid.styles.grid_rows = tuple(heights)
        grid.styles.height = sum(heights)
        body.refresh(layout=True)

    def _needs(self) -> dict[str, int]:
        """Return the lines of each panel with its border, without those that have nothing to show."""
        if self._readout is None:
            return {"cpu": 7, "memory": 7}
        view = self._readout.view
        devices, processes = self._readout.devices, self._readout.processes
        needs = {"devices": len(devices) + 3} if devices else {}
        needs |= {"processes": max(len(processes), 1) + 3} if devices else {}
        traffic, storage = host.traffic(view, self._history, 80, 0).lines, host.storage(view, 40).lines
        return needs | {"cpu": 7, "memory": 7, "traffic": len(traffic) + 2, "storage": len(storage) + 2}

    def _graphs(self, width: int) -> dict[str, int]:
        """Return the lines that panels can use for graphs, if there is room."""
        devices = self._readout.devices if self._readout else []
        has_tiles = bool(tables.device_tiles(devices, self._history, width - 4, 3))
        return ({"devices": 8} if has_tiles else {}) | {"cpu": 9 if devices else 100}

    def _draw_devices(self, width: int, height: int) -> Drawn:
        devices = self._readout.devices if self._readout else []
        tiles = tables.device_tiles(devices, self._history, width, height - len(devices) - 2)
        layout = Layout(tables.device_columns(self._history, devices, bool(tiles)), width)
        lines = self._table("devices", layout, devices)
        return Drawn([*lines, *([[]] if tiles else []), *tiles], *tables.device_title(devices), 1, layout)

    def _draw_processes(self, width: int, height: int) -> Drawn:
        processes = self._readout.processes if self._readout else []
        layout = Layout(tables.process_columns(processes), width)
        lines = self._table("processes", layout, processes)
        if not processes:
            lines.append([("no process uses a device", DIM)])
        return Drawn(lines, f"Processes {len(processes)}", "", 1, layout)

    def _table(self, name: str, layout: Layout[Any], rows: Sequence[Any]) -> list[Line]:
        title, is_reversed = self._orders[name]
        by = next((column for column, _ in layout.columns if column.title == title), None)
        if by is not None:
            rows = sorted(rows, key=by.order)
            rows = rows[::-1] if is_reversed else rows
        return [layout.heading(title, is_reversed), *map(layout.row, rows)]

    def _problem(self) -> str:
        """Return what is wrong, in a sentence."""
        problems = self._readout.view.snapshot.problems if self._readout else ()
        now = self._readout.view.time if self._readout else 0.0
        message = self._messages.getvalue().rstrip().rpartition("\n")[2].removeprefix("otel-hardware: ")
        if message != self._message[0]:
            self._message = (message, now)
        found = [
            self._error,
            message if now < self._message[1] + _MESSAGE else "",
            *(f"{each.source}: {each.reason}" for each in problems),
        ]
        return next(filter(None, found), "")

    def _show_bars(self) -> None:
        screen = self.screen_stack[0]
        view = self._readout.view if self._readout else None
        clock = time.strftime("%H:%M:%S", time.localtime(view.time)) if view else ""
        width = self._terminal.width
        note = "paused" if self._is_paused else self._note()
        screen.query_one("#header", Bar).show(host.header(socket.gethostname(), view, note, clock, width))
        problem = self._problem()
        bar = screen.query_one("#problem", Bar)
        if bar.display != bool(problem):
            bar.display = bool(problem)
        bar.show([(f" {problem}", WARNING)])
        keys: Line = [(" ", "")]
        for key, text in KEYS:
            keys += [(key, "key"), (f" {text}  ", DIM)]
        every = f"every {self._interval:g} s " if self._interval else ""
        space = width - sum(len(text) for text, _ in keys) - len(every)
        screen.query_one("#footer", Bar).show([*keys, (" " * max(space, 0), ""), (every if space >= 0 else "", DIM)])

    # -- keys

    def _table_in_focus(self) -> str:
        focused = self.focused.id if self.focused else ""
        return focused if focused in self._orders else "devices"

    def action_sort(self) -> None:
        """Sort the table by its next column."""
        name = self._table_in_focus()
        draw = {"devices": self._draw_devices, "processes": self._draw_processes}[name]
        panel = self._panel(name)
        layout = draw(*panel.size).layout
        titles = [column.title for column, _ in layout.columns if column.title != "HISTORY"] if layout else []
        title, _ = self._orders[name]
        at = titles.index(title) + 1 if title in titles else 0
        self._orders[name] = (titles[at % len(titles)], False)
        panel.redraw()

    def action_reverse(self) -> None:
        """Reverse the order of the table."""
        name = self._table_in_focus()
        title, is_reversed = self._orders[name]
        self._orders[name] = (title, not is_reversed)
        self._panel(name).redraw()

    def on_panel_sorted(self, message: Panel.Sorted) -> None:
        """Sort by the column that was clicked, or reverse its order."""
        title, is_reversed = self._orders[message.panel]
        self._orders[message.panel] = (message.column, message.column == title and not is_reversed)
        self._panel(message.panel).redraw()

    def action_zoom(self) -> None:
        """Show only the panel that has the focus, or all of them again."""
        focused = self.focused.id if self.focused else ""
        self._zoomed = "" if self._zoomed else focused or "devices"
        self._arrange()

    def action_unzoom(self) -> None:
        """Show all panels."""
        self._zoomed = ""
        self._arrange()

    def action_pause(self) -> None:
        """Pause or continue reading."""
        self._is_paused = not self._is_paused
        self._wake.set()
        self._show_bars()

    def action_faster(self) -> None:
        """Read twice as often."""
        self._set_interval(0.5)

    def action_slower(self) -> None:
        """Read half as often."""
        self._set_interval(2.0)

    def _set_interval(self, factor: float) -> None:
        if self._interval is not None:
            self._interval = min(max(self._interval * factor, _FASTEST), _SLOWEST)
            self._wake.set()
            self._show_bars()

    def action_help(self) -> None:
        """Show the keys and what the colours mean."""
        self.push_screen(Message(HELP_LINES, "otel-hardware top"))

    def action_missing(self) -> None:
        """Show what is missing and why."""
        from opentelemetry.instrumentation.hardware.cli.layout import wrap

        sentences = self._readout.view.unsupported if self._readout else ()
        lines: list[Line] = [
            [(line, STRONG if not at else "")]
            for sentence in sentences
            for at, line in enumerate(wrap(sentence, 72, "", "  "))
        ]
        self.push_screen(Message(lines or [[("nothing is missing", "")]], "Missing"))
