"""Waiting for signals with a timeout. Handlers do nothing, and no signal is lost."""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Container, Iterable
from typing import Any


def _known(*names: str) -> tuple[int, ...]:
    """The signals that this system has."""
    return tuple(number for name in names if (number := getattr(signal, name, None)) is not None)


ENDING = _known("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")  # signals that ask a program to end

# Those that end also what ignores them at start: a shell lets its background commands ignore SIGINT. SIGHUP is not one,
# because nohup lets a command ignore it so that it outlives the terminal.
ALWAYS_ENDING = _known("SIGINT", "SIGTERM")

# Signals that are forwarded to a program: schedulers and users send them to request a checkpoint or a stack dump.
FORWARDED = (*ENDING, *_known("SIGQUIT", "SIGUSR1", "SIGUSR2"))

KEYBOARD = _known("SIGINT", "SIGQUIT")  # signals that a terminal sends to all foreground processes

CHILD: int = getattr(signal, "SIGCHLD", 0)  # a child has ended; 0 if the system has no such signal


class Signals:
    """Catches signals while its block lasts, some even if they were ignored at start. To be used in the main thread."""

    def __init__(self, numbers: Iterable[int], even_ignored: Container[int] = ()) -> None:
        self._numbers = [
            number for number in numbers if number in even_ignored or signal.getsignal(number) is not signal.SIG_IGN
        ]
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._before = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        for number in self._numbers:
            # The handler does nothing: the interpreter has written the number into the socket already.
            self._old[number] = signal.signal(number, lambda number, frame: None)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._before)
        self._read.close()
        self._write.close()

    def fileno(self) -> int:
        """Return a descriptor that is readable when a signal may have come; see :meth:`wait`."""
        return self._read.fileno()

    def wait(self, seconds: float | None = None, *also: int) -> int:
        """Wait for the next signal; 0 after the timeout, or when one of the descriptors is readable."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self._read.fileno(), *also], [], [], left)
            if self._read.fileno() not in ready:
                return 0
            number = self._read.recv(1)[0]
            if number in self._numbers:
                return number
