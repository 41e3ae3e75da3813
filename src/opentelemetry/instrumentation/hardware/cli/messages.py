"""Messages on stderr: sentences without tracebacks, which are not repeated at every export."""

from __future__ import annotations

import io
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress

from opentelemetry.instrumentation.hardware.cli.text import wrap
from opentelemetry.instrumentation.hardware.settings.redaction import redacted

START = "otel-hardware: "

_SDK_INTERVAL = 60.0  # seconds between two messages of the SDK, which logs a failed export each time

# What the SDK calls a setting, without the name of its variable.
_VARIABLES = {
    "export interval": "OTEL_METRIC_EXPORT_INTERVAL, in milliseconds",
    "export timeout": "OTEL_METRIC_EXPORT_TIMEOUT, in milliseconds",
}


class Mistake(Exception):  # noqa: N818 - the user's, not ours
    """An error that the user has to correct, described in a sentence."""

    def __init__(self, sentence: str, status: int = 2) -> None:
        super().__init__(sentence)
        self.status = status


def cause(error: OSError) -> str:
    """Return why a system call failed."""
    return (error.strerror or str(error)).lower()


@contextmanager
def held() -> Iterator[io.StringIO]:
    """Hold back the sentences of the block, which shows a live screen, and print them after it, each once."""
    text = io.StringIO()
    try:
        with redirect_stderr(text):
            yield text
    finally:
        for line in dict.fromkeys(text.getvalue().splitlines()):
            say(line.removeprefix(START))


def say(sentence: str) -> None:
    """Print a sentence to stderr, wrapped on a terminal and in one line elsewhere."""
    text = START + redacted(sentence)
    with suppress(OSError, ValueError):  # stderr is closed
        if sys.stderr.isatty():
            given = os.environ.get("COLUMNS", "")
            width = int(given) if given.isdecimal() else os.get_terminal_size(sys.stderr.fileno()).columns
            text = "\n".join(wrap(text, max(width or 80, 40), indent="  "))
        sys.stderr.write(f"{text}\n")  # one call: threads print at the same time
        sys.stderr.flush()


class _Handler(logging.Handler):
    """Passes the logger's name and the text of each warning, as one line, to a function."""

    def __init__(self, note: Callable[[str, str], None]) -> None:
        super().__init__(logging.WARNING)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.name, " ".join(record.getMessage().split()))


@contextmanager
def collected_logs() -> Iterator[list[str]]:
    """Collect the warnings of OpenTelemetry and this package during the block, instead of printing them."""
    messages: list[str] = []
    with noted_logs("opentelemetry", messages.append):
        yield messages


@contextmanager
def noted_logs(name: str, note: Callable[[str], None]) -> Iterator[None]:
    """Pass the warnings of the loggers below a name to a function during the block, instead of printing them."""
    logger = logging.getLogger(name)
    handlers, propagate = logger.handlers[:], logger.propagate
    logger.handlers[:], logger.propagate = [_Handler(lambda _, text: note(text))], False
    try:
        yield
    finally:
        logger.handlers[:], logger.propagate = handlers, propagate


@contextmanager
def printed_logs(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Print the warnings of OpenTelemetry and this package during the block, those of the SDK at most once a minute."""
    quiet_until = 0.0

    def show(name: str, text: str) -> None:
        nonlocal quiet_until
        if name == "opentelemetry.util.re":  # headers, with their values: see exporters.header_problems
            return
        if not name.startswith("opentelemetry.instrumentation.hardware"):
            now = clock()
            if now < quiet_until:
                return
            quiet_until = now + _SDK_INTERVAL
        for words, variable in _VARIABLES.items() if text.startswith("Found invalid value") else ():
            text = text.replace(words, f"{words} ({variable})")
        say(text)

    logger, handler = logging.getLogger("opentelemetry"), _Handler(show)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
