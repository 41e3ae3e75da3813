"""What the commands say on stderr: sentences, never tracebacks, and nothing again and again."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

_QUIET = 60.0
"""Seconds between two messages of the SDK, which says at every export that it cannot deliver."""


class Mistake(Exception):  # noqa: N818 - it is the user's, and no error of ours
    """Something that the user has to change, in a sentence that says what to do."""

    def __init__(self, sentence: str, status: int = 2) -> None:
        super().__init__(sentence)
        self.status = status


def say(sentence: str) -> None:
    """Say something beside the output: in one line, on a terminal in as many as it takes."""
    text = f"otel-hardware: {sentence}"
    with suppress(OSError, ValueError):  # nobody listens
        if sys.stderr.isatty():
            text = _wrapped(text)
        print(text, file=sys.stderr, flush=True)  # noqa: T201


def _wrapped(text: str) -> str:
    columns = os.environ.get("COLUMNS", "")
    width = int(columns) if columns.isdecimal() else os.get_terminal_size(sys.stderr.fileno()).columns
    return textwrap.fill(
        text, max(width or 80, 40), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


class Messages(logging.Handler):
    """Log records as sentences; the SDK, which repeats itself at every export, once a minute.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._quiet_until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        """Say it, in one line."""
        if not record.name.startswith("opentelemetry.instrumentation.hardware"):
            now = self._clock()
            if now < self._quiet_until:
                return
            self._quiet_until = now + _QUIET
        say(" ".join(record.getMessage().split()))


@contextmanager
def overhear(level: int = logging.WARNING) -> Iterator[list[str]]:
    """Keep what OpenTelemetry and this package log, as long as the block lasts, instead of saying it."""
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(" ".join(record.getMessage().split()))

    logger = logging.getLogger("opentelemetry")
    handlers, propagate = logger.handlers[:], logger.propagate
    logger.handlers[:], logger.propagate = [Ear(level)], False
    try:
        yield said
    finally:
        logger.handlers[:], logger.propagate = handlers, propagate


@contextmanager
def listen() -> Iterator[Messages]:
    """Say what OpenTelemetry and this package log, as long as the block lasts."""
    logger = logging.getLogger("opentelemetry")
    messages = Messages()
    logger.addHandler(messages)
    try:
        yield messages
    finally:
        logger.removeHandler(messages)
