"""What is shown over the view: texts, and the question before a process is ended."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from opentelemetry.instrumentation.hardware.cli.top.shapes import Line
from opentelemetry.instrumentation.hardware.cli.top.widgets import Drawn, Panel

_SCROLLS = ("up", "down", "pageup", "pagedown", "home", "end")


class Message(ModalScreen[None]):
    """Lines over the view, until a key is pressed."""

    def __init__(self, lines: Sequence[Line], title: str) -> None:
        super().__init__()
        self._lines = lines
        self._title = title

    def compose(self) -> ComposeResult:
        panel = Panel("message")
        panel.styles.height = len(self._lines) + 2
        yield panel

    def on_mount(self) -> None:
        panel = self.query_one(Panel)
        panel.show(lambda width, height: Drawn(self._lines, self._title, "esc closes"))
        panel.focus()

    async def on_key(self, event: events.Key) -> None:
        """Close, unless the key scrolls."""
        if event.key not in _SCROLLS:
            event.stop()
            self.dismiss()


# The signals that can be sent, with what they do.
SIGNALS = (
    ("SIGTERM", "ask it to end"),
    ("SIGINT", "interrupt it, as Ctrl-C does"),
    ("SIGKILL", "kill it; it cannot save anything"),
)


class Kill(ModalScreen[str]):
    """Asks which signal to send to a process. The answer is its name; "" for none, which comes first."""

    BINDINGS = [("escape,q,n", "cancel", "cancel")]  # noqa: RUF012

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def compose(self) -> ComposeResult:
        known = [(name, text) for name, text in SIGNALS if hasattr(signal, name)]
        with Vertical(id="kill"):
            yield Label(self._process, markup=False)
            yield OptionList(
                Option("cancel"), *(Option(f"{name}  {text}", id=name) for name, text in known), id="signals"
            )

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id or "")

    def action_cancel(self) -> None:
        self.dismiss("")


def send(process: Any, name: str) -> str:
    """Send a signal to a process of psutil, if it is still the same one. Returns why it failed; "" if it did not."""
    import psutil

    try:
        process.send_signal(getattr(signal, name))
    except psutil.NoSuchProcess:
        return f"process {process.pid} has ended"
    except psutil.AccessDenied:
        return f"process {process.pid} belongs to another user"
    return ""
