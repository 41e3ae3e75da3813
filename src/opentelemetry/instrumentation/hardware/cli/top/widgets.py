"""The panels of the screen, which are drawn again where they changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, NamedTuple

from rich.segment import Segment
from textual import events
from textual import message as messages
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from opentelemetry.instrumentation.hardware.cli.top.shapes import WARNING, Layout, Line
from opentelemetry.instrumentation.hardware.cli.top.themes import THEMES
from opentelemetry.instrumentation.hardware.settings.redaction import printable


def _strip(widget: Widget, line: Line, is_selected: bool = False) -> Strip:
    """Return a line in the width and the colours of a widget."""
    palette = THEMES[widget.app.theme]
    styles = palette.selected if is_selected else palette.styles
    segments = [Segment(printable(text), styles[style]) for text, style in line if text]
    return Strip(segments).adjust_cell_length(widget.size.width, styles[""])


class Drawn(NamedTuple):
    """What a panel shows.

    Attributes:
        lines: Its lines.
        title, note: Its title, and what stands beside it.
        fixed: The number of first lines that do not scroll.
        layout: The columns of a table.
        keys: What the lines after the fixed ones are of, in a table.
    """

    lines: Sequence[Line]
    title: str
    note: str = ""
    fixed: int = 0
    layout: Layout[Any] | None = None
    keys: Sequence[Hashable] = ()


Draw = Callable[[int, int], Drawn]  # returns what a panel shows in so many columns and lines


class Panel(ScrollView, can_focus=True):
    """Lines in a frame, of which one can be selected if they are a table. Only lines that changed are drawn again.

    Attributes:
        selected: The key of the selected line; None if there is none.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
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
        self._line = -1  # the selected one
        self.selected: Hashable = None

    def show(self, draw: Draw) -> None:
        self._draw = draw
        self.redraw()

    def redraw(self) -> None:
        width, height = self.size
        if width < 1 or height < 1:
            return
        before, line = self._drawn, self._line
        try:
            drawn = self._draw(width, height)
        except Exception as error:  # the other panels continue
            drawn = Drawn([[(f"{type(error).__name__}: {error}", WARNING)]], before.title)
        self._drawn = drawn
        self._line = self._find()
        if len(before.lines) != len(drawn.lines) or self.virtual_size.width != width:
            self.virtual_size = Size(width, len(drawn.lines))
            self.refresh()
        else:
            top = round(self.scroll_y)
            for at, (old, new) in enumerate(zip(before.lines, drawn.lines)):
                y = at if at < drawn.fixed else at - top
                is_other = old != new or (line != self._line and at in (line, self._line))
                if is_other and (at < drawn.fixed or drawn.fixed <= y < height):
                    self.refresh(Region(0, y, width, 1))
        self._label()

    def _find(self) -> int:
        """Return the line of the selected key; -1 without one."""
        keys = self._drawn.keys
        return self._drawn.fixed + keys.index(self.selected) if self.selected in keys else -1

    def _label(self) -> None:
        """Write the frame, if it changed. Parts of the title that do not fit are left out."""
        drawn, visible = self._drawn, self.size.height - self._drawn.fixed
        rows = len(drawn.lines) - drawn.fixed
        first = round(self.scroll_y)
        scrolled = f"{first + 1}-{min(first + visible, rows)} of {rows}" if rows > visible > 0 else ""
        title = ""
        for each in " · ".join(filter(None, (printable(drawn.title), printable(drawn.note)))).split(" · "):
            if title and len(title) + 3 + len(each) > self.size.width - 2:
                break
            title += f" · {each}" if title else each
        for name, text in (("border_title", title), ("border_subtitle", scrolled)):
            if getattr(self, name) != text:
                setattr(self, name, text)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._label()

    def on_resize(self) -> None:
        self.redraw()
        self.refresh()

    def on_focus(self) -> None:
        """Select a row, and show it."""
        keys = self._drawn.keys
        if keys and self.selected not in keys:
            self.selected = keys[0]
        self._line = self._find()
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def render_line(self, y: int) -> Strip:
        drawn = self._drawn
        at = y if y < drawn.fixed else y + round(self.scroll_y)
        line = drawn.lines[at] if at < len(drawn.lines) else []
        return _strip(self, line, at == self._line and self.has_focus)

    # -- keys and mouse

    def action_move(self, lines: int) -> None:
        """Select a row some lines further, or scroll where no row can be selected."""
        keys = self._drawn.keys
        if not keys:
            self.scroll_to(y=self.scroll_y + lines, animate=False)
            return
        at = keys.index(self.selected) + lines if self.selected in keys else 0
        self.select(keys[min(max(at, 0), len(keys) - 1)])

    def action_page(self, pages: int) -> None:
        """Go on by the lines that are visible."""
        self.action_move(pages * max(1, self.size.height - self._drawn.fixed - 1))

    def select(self, key: Hashable) -> None:
        """Select a row, and scroll to it."""
        self.selected = key
        self.redraw()
        at, visible = self._line - self._drawn.fixed, self.size.height - self._drawn.fixed
        top = round(self.scroll_y)
        if at >= 0 and not top <= at < top + visible:
            self.scroll_to(y=at if at < top else at - visible + 1, animate=False)

    async def on_click(self, event: events.Click) -> None:
        """Sort by the column of a title, or select a row. A second click opens it."""
        offset = event.get_content_offset(self)
        drawn = self._drawn
        if offset is None or drawn.layout is None:
            return
        if offset.y == 0:
            column = drawn.layout.column_at(offset.x)
            if column is not None:
                self.post_message(self.Sorted(self.id or "", column.title))
            return
        at = offset.y + round(self.scroll_y) - drawn.fixed
        if 0 <= at < len(drawn.keys):
            self.select(drawn.keys[at])
            if event.chain == 2:
                await self.run_action("app.open")


class Bar(Widget):
    """A line of the screen without a frame."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self._line: Line = []

    def show(self, line: Line) -> None:
        if line != self._line:
            self._line = line
            self.refresh()

    def render_line(self, y: int) -> Strip:
        return _strip(self, self._line)
