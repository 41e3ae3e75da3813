"""The application: its keys, and the mouse."""

from __future__ import annotations

import os
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.widgets import Input

from opentelemetry.instrumentation.hardware.cli.text import wrap
from opentelemetry.instrumentation.hardware.cli.top.board import TABLES
from opentelemetry.instrumentation.hardware.cli.top.dialogs import Kill, Message, send
from opentelemetry.instrumentation.hardware.cli.top.help import HELP_LINES
from opentelemetry.instrumentation.hardware.cli.top.shapes import STRONG, Line
from opentelemetry.instrumentation.hardware.cli.top.shell import Shell
from opentelemetry.instrumentation.hardware.cli.top.widgets import Panel

_FASTEST, _SLOWEST = 0.5, 60.0  # bounds of the seconds between two readings


class Top(Shell):
    """The live view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c,ctrl+q", "quit", "quit", priority=True),
        Binding("question_mark,h,f1", "help", "help"),
        Binding("enter", "open", "open"),
        Binding("escape", "leave", "back"),
        Binding("up,down", "focus_table", "select a row"),
        Binding("left", "neighbour(-1)", "previous device"),
        Binding("right", "neighbour(1)", "next device"),
        Binding("slash", "filter", "filter"),
        Binding("t", "tree", "tree"),
        Binding("k", "kill", "kill"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("z", "zoom", "zoom"),
        Binding("p,space", "pause", "pause"),
        Binding("m", "missing", "missing"),
        Binding("plus,equals_sign", "pace(0.5)", "faster"),
        Binding("minus", "pace(2.0)", "slower"),
        Binding("ctrl+z", "suspend_process", "suspend"),
    ]

    def _table(self) -> str:
        """Return the table that keys are about: that with the focus, else the first one."""
        focused = self.focused.id if self.focused else ""
        first = "devices" if self._board.readout and self._board.readout.devices else "processes"
        return focused if focused in TABLES else first

    def action_focus_table(self) -> None:
        """Select a row, if no panel has the focus; a panel with the focus has these keys itself."""
        self._panel(self._table()).focus()

    def action_open(self) -> None:
        """Show the page of the selected row; of a panel without rows, only the panel."""
        focused = self.focused.id if self.focused else ""
        if focused and focused not in (*TABLES, "page"):
            self.action_zoom()
            return
        name = self._table()
        panel = self._panel(name)
        keys = panel._drawn.keys
        if not self._board.page and keys:
            self._board.page = (name, panel.selected if panel.selected in keys else keys[0])
            self._panel("page").scroll_home(animate=False)
            self._show()
            self._panel("page").focus()

    def action_leave(self) -> None:
        """Close the page; else show all panels; else all processes."""
        if self._board.page:
            name, _ = self._board.page
            self._board.page = None
            self._show()
            self._panel(name).focus()
        elif self._zoomed:
            self._zoomed = ""
            self._show()
        elif self._board.text:
            self.screen_stack[0].query_one("#filter", Input).value = ""
            self._show()

    def action_neighbour(self, step: int) -> None:
        """Show the page of another device."""
        if self._board.page and self._board.page[0] == "devices":
            self._board.page = ("devices", self._board.neighbour(step))
            self._panel("devices").selected = self._board.page[1]
            self._show()

    def action_filter(self) -> None:
        """Ask for a text that processes must have."""
        if not self._board.page:
            field = self.query_one("#filter", Input)
            field.display = True
            self._show()
            field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the processes with this text."""
        self._board.text = event.value.strip()
        self._panel("processes").redraw()

    def on_input_submitted(self) -> None:
        """Keep the text, and select a process."""
        self._close_filter()

    def on_key(self, event: events.Key) -> None:
        """Close the field, and show all processes again."""
        field = self.query_one("#filter", Input) if len(self.screen_stack) == 1 else None
        if field is not None and field.has_focus and event.key == "escape":
            event.stop()
            event.prevent_default()
            field.value = ""
            self._close_filter()

    def _close_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self._show()
        self._panel("processes").focus()

    def action_tree(self) -> None:
        """Show the processes as a tree, or flat."""
        self._board.is_tree = not self._board.is_tree
        self._panel("processes").redraw()

    def action_kill(self) -> None:
        """Ask for a signal, and send it to the selected process."""
        readout = self._board.readout
        name, key = self._board.page or ("processes", self._panel("processes").selected)
        process = next((each for each in (readout.processes if readout else ()) if each.key == key), None)
        if name != "processes" or process is None:
            self.notify("select a process first: tab, then arrows")
        elif not process.is_known:
            self.notify("the process belongs to another container", severity="error")
        elif process.pid == os.getpid():
            self.notify("this is otel-hardware; q quits", severity="warning")
        else:
            self._ask(process.pid, f"{process.pid}  {process.command}  of {process.user or 'an unknown user'}")

    def _ask(self, pid: int, text: str) -> None:
        import psutil

        try:
            target = psutil.Process(pid)
        except psutil.Error:
            self.notify(f"process {pid} has ended")
            return

        def answer(name: str | None) -> None:
            if name:
                problem = send(target, name)
                self.notify(problem or f"sent {name} to {pid}", severity="error" if problem else "information")

        self.push_screen(Kill(text), answer)

    def action_sort(self) -> None:
        """Sort the table by its next column."""
        name = self._table()
        self._board.sort(name, self._panel(name)._drawn.layout)
        self._panel(name).redraw()

    def action_reverse(self) -> None:
        self._board.reverse(self._table())
        self._panel(self._table()).redraw()

    def on_panel_sorted(self, message: Panel.Sorted) -> None:
        """Sort by the column that was clicked, or reverse its order."""
        self._board.sort_by(message.panel, message.column)
        self._panel(message.panel).redraw()

    def action_zoom(self) -> None:
        """Show only the panel that has the focus, or all of them again."""
        focused = self.focused.id if self.focused else ""
        self._zoomed = "" if self._zoomed else focused or self._table()
        self._show()

    def action_pause(self) -> None:
        self._is_paused = not self._is_paused
        self._wake.set()
        self._show_bars()

    def action_pace(self, factor: float) -> None:
        """Read more or less often."""
        if self._interval is not None:
            self._interval = min(max(self._interval * factor, _FASTEST), _SLOWEST)
            self._wake.set()
            self._show_bars()

    def action_help(self) -> None:
        self.push_screen(Message(HELP_LINES, "otel-hardware top"))

    def action_missing(self) -> None:
        readout = self._board.readout
        sentences = readout.view.unsupported if readout else ()
        lines: list[Line] = [
            [(line, STRONG if not at else "")]
            for sentence in sentences
            for at, line in enumerate(wrap(sentence, 72, "", "  "))
        ]
        self.push_screen(Message(lines or [[("nothing is missing", "")]], "Missing"))
