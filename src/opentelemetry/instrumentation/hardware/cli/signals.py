"""Signals as something to wait for, with a deadline: nothing happens inside a handler, and none is lost."""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Any


def _known(*names: str) -> tuple[int, ...]:
    """Those of the signals that this system has."""
    return tuple(number for name in names if (number := getattr(signal, name, None)) is not None)


ENDING = _known("SIGINT", "SIGTERM", "SIGHUP")
"""Signals that ask a program to end."""

MEANT = (*ENDING, *_known("SIGQUIT", "SIGUSR1", "SIGUSR2"))
"""Signals that mean something to a program: a scheduler has it write a checkpoint, a user wants its stacks."""

KEYS = _known("SIGINT", "SIGQUIT")
"""Signals that a terminal sends to all in the foreground."""

CHILD: int = getattr(signal, "SIGCHLD", 0)
"""Says that a child ended; 0 where there is no such signal."""


class Signals:
    """Catches signals while its block lasts. Only for the main thread.

    Args:
        numbers: which signals.
        even_ignored: also those that we were started with ignored; ``nohup`` does that, and shells to commands in the
            background.
    """

    def __init__(self, numbers: Iterable[int], even_ignored: bool = False) -> None:
        self._numbers = [number for number in numbers if even_ignored or signal.getsignal(number) is not signal.SIG_IGN]
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        for number in self._numbers:
            self._old[number] = signal.signal(number, _noted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before)
        self._read.close()
        self._write.close()

    def wait(self, seconds: float | None = None) -> int:
        """Wait for the next signal, at most so long; 0 where none came."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._read], [], [], left)
            if not ready:
                return 0
            number = self._read.recv(1)[0]
            if number in self._numbers:
                return number


def _noted(number: int, frame: FrameType | None) -> None:
    """The interpreter has written the number into the socket already."""
