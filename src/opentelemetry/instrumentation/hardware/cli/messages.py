"""Messages on stderr: sentences, no tracebacks, and none repeated at every export."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_SDK_INTERVAL = 60.0
"""Seconds between two messages of the SDK, which logs a failed export each time."""


class Mistake(Exception):  # noqa: N818 - the user's, not ours
    """What the user has to change, in a sentence."""

    def __init__(self, sentence: str, status: int = 2) -> None:
        super().__init__(sentence)
        self.status = status


def say(sentence: str) -> None:
    """Print a sentence to stderr: on a terminal wrapped, else in one line."""
    text = f"otel-hardware: {sentence}"
    with suppress(OSError, ValueError):  # stderr is closed
        if sys.stderr.isatty():
            text = _wrapped(text)
        sys.stderr.write(f"{text}\n")  # one call: threads print at the same time
        sys.stderr.flush()


def _wrapped(text: str) -> str:
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else os.get_terminal_size(sys.stderr.fileno()).columns
    return textwrap.fill(
        text, max(width or 80, 40), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


class Messages(logging.Handler):
    """Prints log records as sentences, those of the SDK once a minute at most.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._quiet_until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Print the message in one line."""
        if not record.name.startswith("opentelemetry.instrumentation.hardware"):
            now = self._clock()
            if now < self._quiet_until:
                return
            self._quiet_until = now + _SDK_INTERVAL
        say(" ".join(record.getMessage().split()))


@contextmanager
def collected_logs(level: int = logging.WARNING) -> Iterator[list[str]]:
    """Collect what OpenTelemetry and this package log while the block lasts, instead of printing it."""
    messages: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(" ".join(record.getMessage().split()))

    logger = logging.getLogger("opentelemetry")
    handlers, propagate = logger.handlers[:], logger.propagate
    logger.handlers[:], logger.propagate = [Collector(level)], False
    try:
        yield messages
    finally:
        logger.handlers[:], logger.propagate = handlers, propagate


@contextmanager
def printed_logs() -> Iterator[Messages]:
    """Print what OpenTelemetry and this package log while the block lasts."""
    logger = logging.getLogger("opentelemetry")
    messages = Messages()
    logger.addHandler(messages)
    try:
        yield messages
    finally:
        logger.removeHandler(messages)
