"""Ctrl-C: it ends a command at once, but where there is something to put away."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def abrupt() -> Iterator[None]:
    """Ctrl-C ends the process while the block lasts, as it does where a program does not know the signal.

    Nothing is raised: amid an import, where a command spends its first moments, an exception is taken for another one.
    """
    with _instead(signal.default_int_handler, _end):
        yield


@contextmanager
def gentle() -> Iterator[None]:
    """Ctrl-C is a ``KeyboardInterrupt`` again while the block lasts."""
    with _instead(_end, signal.default_int_handler):
        yield


@contextmanager
def _instead(before: Callable[..., Any], handler: Callable[..., Any]) -> Iterator[None]:
    """Handle it so; leave it where somebody else handles it, or we were started with it ignored."""
    if signal.getsignal(signal.SIGINT) is not before:
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)  # the first process of a container, which no signal ends by itself
