"""Ctrl-C ends a command immediately, unless it has something to clean up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FrameType
from typing import Any


@contextmanager
def killed_by_ctrl_c() -> Iterator[None]:
    """Make Ctrl-C kill the process during the block, as if SIGINT had no handler.

    No exception is raised, because a KeyboardInterrupt during an import may be taken for an import error. Process 1 of
    a container ignores signals by default, so SIGTERM ends it as well.
    """
    first = os.getpid() == 1
    with (
        _handled(signal.SIGINT, signal.default_int_handler, _end),
        _handled(signal.SIGTERM, signal.SIG_DFL, _end) if first else nullcontext(),
    ):
        yield


@contextmanager
def interruptible() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt again during the block."""
    with _handled(signal.SIGINT, _end, signal.default_int_handler):
        yield


@contextmanager
def _handled(number: int, before: Any, handler: Callable[..., Any]) -> Iterator[None]:
    """Handle a signal, unless it has another handler than expected or was ignored at start."""
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
    os._exit(128 + number)  # process 1 of a container, which no default action ends
