"""``otel-hardware top``: a live view of this machine in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec

from opentelemetry.instrumentation.hardware.cli import replay, screen, settings
from opentelemetry.instrumentation.hardware.cli.messages import Mistake, held, say
from opentelemetry.instrumentation.hardware.cli.settings import seconds
from opentelemetry.instrumentation.hardware.cli.signals import ENDING, Signals
from opentelemetry.instrumentation.hardware.pipeline.session import Session

HELP = "a live view of this machine in the terminal"

DESCRIPTION = """\
Shows accelerators and what holds them back, processes, CPU, memory, disks, network, file systems and temperatures,
with their history. Nothing is exported; 'otel-hardware run' exports the same values.

examples:
  otel-hardware top
  otel-hardware top --every 1
  otel-hardware top --sources nvidia,host
  otel-hardware top --simulate 4xH100        if there is no GPU

keys:
  enter page of a device or process   / filter   t tree   k kill   s sort   ? all keys   q quit

It needs a terminal, Textual (pip install 'opentelemetry-instrumentation-hardware[top]') and a UTF-8 locale. Without
the last two, a table is redrawn instead.

exit status: 0; 2 for wrong arguments.
"""

_INSTALL = "the live view needs Textual: pip install 'opentelemetry-instrumentation-hardware[top]'"
_UTF_8 = "the live view needs a UTF-8 locale: export LC_ALL=C.UTF-8"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "otel-hardware top [flags]"
    parser.add_argument("--every", type=seconds, metavar="SECONDS", help="time between two readings; default: 2")
    parser.add_argument("--duration", type=seconds, metavar="SECONDS", help="end after this time")
    replay.add_argument(parser)
    parser.add_argument(
        "--theme", choices=("auto", "dark", "light"), default="auto", help="colours; default: as the terminal's"
    )
    settings.add(parser)


def run(arguments: argparse.Namespace) -> int:
    """Show the view until a key, a signal or the end of the duration."""
    if not is_terminal():
        raise Mistake("top needs a terminal with a TERM such as xterm; 'otel-hardware snapshot' prints the values")
    config = settings.config(arguments)
    config = settings.without_process(config.changed(detail=[*(config.detail or ()), "cpu"]))
    interval = arguments.every or screen.INTERVAL
    with (
        Signals(ENDING, even_ignored=ENDING) as signals,
        closing(replay.session_of(arguments, config, interval=interval, all_processes=True)) as session,
    ):
        session.start()
        show(session, signals, arguments.every, arguments.duration, theme=arguments.theme)
    return 0


def is_terminal() -> bool:
    """Whether the view can be shown."""
    has_type = sys.platform == "win32" or os.environ.get("TERM", "dumb") != "dumb"
    return sys.stdin.isatty() and sys.stdout.isatty() and has_type


def _missing() -> str:
    """Return what the live view needs and this environment lacks; "" if nothing."""
    if find_spec("textual") is None:
        return _INSTALL
    return "" if "utf" in sys.stdout.encoding.lower() else _UTF_8


def show(
    session: Session,
    signals: Signals,
    interval: float | None = None,
    duration: float | None = None,
    note: Callable[[], str] = str,
    theme: str = "auto",
) -> None:
    """Show a started session in the terminal until a key, a signal or the end of the duration.

    Without Textual or UTF-8, a table is redrawn instead, below what to do about it. Without a terminal, tables are
    printed one after the other. The note is the state of the export, for the first line; it is called after each
    reading. The theme is ``dark``, ``light``, or ``auto`` for the one that suits the terminal.
    """
    spec = session.config.simulate
    simulated = "" if spec is None else "simulated GPUs and host" if spec.host else "simulated GPUs"

    def title() -> str:
        return "; ".join(filter(None, (simulated, note())))

    missing = _missing() if is_terminal() else ""
    if is_terminal() and not missing:
        from opentelemetry.instrumentation.hardware.cli.top.app import Top
        from opentelemetry.instrumentation.hardware.cli.top.feed import Feed
        from opentelemetry.instrumentation.hardware.cli.top.processes import ProcessReader
        from opentelemetry.instrumentation.hardware.cli.top.themes import of_terminal

        theme = of_terminal() if theme == "auto" else theme
        with held() as messages:
            here = None if isinstance(session, replay.ReplayedSession) else ProcessReader()
            Top(Feed(session, here), interval or screen.INTERVAL, title, signals, duration, messages, theme).run()
        return
    if missing:
        say(missing)

    def heading() -> str:
        text = note()
        return f"Ctrl-C stops; {f'otel-hardware run: {text}' if text else missing.partition(': ')[2]}"

    screen.watch(session, signals, interval, duration, heading)
