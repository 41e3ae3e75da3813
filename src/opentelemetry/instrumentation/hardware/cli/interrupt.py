"""Ctrl-C: it ends a command at once, but where there is something to put away."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any


@contextmanager
def abrupt() -> Iterator[None]:
    """Ctrl-C ends the process while the block lasts, as it does where a program does not know the signal.

    Nothing is raised: amid an import, where a command spends its first moments, an exception is taken for another one.
    As the first process of a container, to which signals do nothing by default, SIGTERM ends it as well.
    """
    first = os.getpid() == 1
    with (
        _instead(signal.SIGINT, signal.default_int_handler, _end),
        _instead(signal.SIGTERM, signal.SIG_DFL, _end) if first else nullcontext(),
    ):
        yield


@contextmanager
def gentle() -> Iterator[None]:
    """Ctrl-C is a ``KeyboardInterrupt`` again while the block lasts."""
    with _instead(signal.SIGINT, _end, signal.default_int_handler):
        yield


@contextmanager
def _instead(number: int, before: Any, handler: Callable[..., Any]) -> Iterator[None]:
    """Handle a signal so; leave it where somebody else handles it, or we were started with it ignored."""
    if signal.getsignal(number) is not before:
        yield
        return
    signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)  # the first process of a container, which no signal ends by itself
