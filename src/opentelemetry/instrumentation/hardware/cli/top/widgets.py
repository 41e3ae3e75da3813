"""The panels of the screen, which are drawn again where they changed, and its colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual import message as messages
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from opentelemetry.instrumentation.hardware.cli.top.shapes import (
    WARNING,
    Layout,
    Line,
)
from opentelemetry.instrumentation.hardware.redaction import printable

BACKGROUND = "#121212"

_STYLES = {
    "": Style.parse(f"#c6c6c6 on {BACKGROUND}"),
    "dim": Style.parse(f"#808080 on {BACKGROUND}"),
    "strong": Style.parse(f"bold #eeeeee on {BACKGROUND}"),
    "brand": Style.parse("bold #121212 on #87d7af"),
    "track": Style.parse(f"#3a3a3a on {BACKGROUND}"),
    "good": Style.parse(f"#5fd787 on {BACKGROUND}"),
    "warning": Style.parse(f"#ffd75f on {BACKGROUND}"),
    "bad": Style.parse(f"bold #ff5f5f on {BACKGROUND}"),
    "busy": Style.parse(f"#5fd7d7 on {BACKGROUND}"),
    "memory": Style.parse(f"#af87ff on {BACKGROUND}"),
    "disk": Style.parse(f"#d7af5f on {BACKGROUND}"),
    "network": Style.parse(f"#5fafff on {BACKGROUND}"),
    "key": Style.parse(f"bold #87d7af on {BACKGROUND}"),
} | {
    f"level{at}": Style.parse(f"{color} on {BACKGROUND}")
    for at, color in enumerate(("#5fd787", "#87d787", "#afd787", "#d7d787", "#ffd75f", "#ffaf5f", "#ff875f", "#ff5f5f"))
}
"""Colours of the 256 that every terminal has, so that nothing changes without true colour."""


def strip_of(line: Line, width: int) -> Strip:
    """Return a line of exactly this width."""
    segments = [Segment(printable(text), _STYLES[style]) for text, style in line if text]
    return Strip(segments).adjust_cell_length(width, _STYLES[""])


class Drawn(NamedTuple):
    """What a panel shows.

    Attributes:
        lines: Its lines.
        title, note: Its title, and what stands beside it.
        fixed: The number of first lines that do not scroll.
        layout: The columns of a table.
    """

    lines: Sequence[Line]
    title: str
    note: str = ""
    fixed: int = 0
    layout: Layout[Any] | None = None


Draw = Callable[[int, int], Drawn]
"""Returns what a panel shows in so many columns and lines."""


class Panel(ScrollView, can_focus=True):
    """Lines in a frame. Only those that changed are drawn again."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
    ]

    class Sorted(messages.Message):
        """A title was clicked."""

        def __init__(self, panel: str, column: str) -> None:
            super().__init__()
            self.panel = panel
            self.column = column

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._draw: Draw = lambda width, height: Drawn((), "")
        self._drawn = Drawn((), "")

    def show(self, draw: Draw) -> None:
        """Show this from now on."""
        self._draw = draw
        self.redraw()

    def redraw(self) -> None:
        """Draw what changed."""
        width, height = self.size
        if width < 1 or height < 1:
            return
        before = self._drawn
        try:
            drawn = self._draw(width, height)
        except Exception as error:  # the other panels continue
            drawn = Drawn([[(f"{type(error).__name__}: {error}", WARNING)]], before.title)
        self._drawn = drawn
        if len(before.lines) != len(drawn.lines) or self.virtual_size.width != width:
            self.virtual_size = Size(width, len(drawn.lines))
            self.refresh()
        else:
            top = round(self.scroll_y)
            for at, (old, new) in enumerate(zip(before.lines, drawn.lines)):
                y = at if at < drawn.fixed else at - top
                if old != new and (at < drawn.fixed or drawn.fixed <= y < height):
                    self.refresh(Region(0, y, width, 1))
        self._label()

    def _label(self) -> None:
        """Write the frame, if it changed."""
        drawn, visible = self._drawn, self.size.height - self._drawn.fixed
        rows = len(drawn.lines) - drawn.fixed
        first = round(self.scroll_y)
        scrolled = f"{first + 1}-{min(first + visible, rows)} of {rows}" if rows > visible > 0 else ""
        for name, text in (
            ("border_title", printable(" · ".join(filter(None, (drawn.title, drawn.note))))),
            ("border_subtitle", scrolled),
        ):
            if getattr(self, name) != text:
                setattr(self, name, text)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Update the frame."""
        super().watch_scroll_y(old_value, new_value)
        self._label()

    def on_resize(self) -> None:
        """Draw everything for the new size."""
        self.redraw()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return a line of the screen."""
        drawn = self._drawn
        at = y if y < drawn.fixed else y + round(self.scroll_y)
        return strip_of(drawn.lines[at] if at < len(drawn.lines) else [], self.size.width)

    def on_click(self, event: events.Click) -> None:
        """Sort by the column of a title."""
        offset = event.get_content_offset(self)
        if offset is not None and self._drawn.layout is not None and offset.y == 0:
            column = self._drawn.layout.column_at(offset.x)
            if column is not None:
                self.post_message(self.Sorted(self.id or "", column.title))


class Bar(Widget):
    """A line of the screen without a frame."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._line: Line = []

    def show(self, line: Line) -> None:
        """Show this line."""
        if line != self._line:
            self._line = line
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return the line."""
        return strip_of(self._line, self.size.width)


class Message(ModalScreen[None]):
    """Lines over the view, until a key is pressed."""

    def __init__(self, lines: Sequence[Line], title: str) -> None:
        super().__init__()
        self._lines = lines
        self._title = title

    def compose(self) -> ComposeResult:
        """Make the panel."""
        panel = Panel("message")
        panel.styles.height = len(self._lines) + 2
        yield panel

    def on_mount(self) -> None:
        """Show the lines."""
        panel = self.query_one(Panel)
        panel.show(lambda width, height: Drawn(self._lines, self._title, "esc closes"))
        panel.focus()

    async def on_key(self, event: events.Key) -> None:
        """Close, unless the key scrolls."""
        if event.key not in ("up", "down", "pageup", "pagedown", "home", "end", "j", "k"):
            event.stop()
            self.dismiss()
