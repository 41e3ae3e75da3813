"""A tool of a vendor that goes on saying lines, as a child that is listened to when somebody cares to.

It is started once and says a line every so many seconds for as long as it lives. There is no thread for it: what it
says waits in a pipe until it is read. What holds for a :class:`~.command.Command` holds for it too, and there is never
a second one; one that dies, falls silent or floods us is not started again at once, but after a pause that grows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Final

from opentelemetry.instrumentation.hardware.drivers.subprocess import LIMIT, LOOK, Child, Command, Tool

LINE: Final = 8 << 20
"""Bytes that a line may have; a tool that says a longer one is broken."""

PERIODS: Final = 3
"""One that has said nothing for so many periods hangs; what has waited for so many is old."""

_FIRST = 10.0
"""Seconds until the first line is missed, at least: some tools look around first."""

_REST = 1.0
"""Seconds that the rest of a line is waited for, at most: one that says a long one fills the pipe again and again."""

_LONGEST = 60.0
"""The longest pause, and how long a tool has to live for its earlier deaths to be forgotten."""


class StreamingCommand:
    """A tool that goes on saying lines.

    Args:
        tool: which.
        clock: monotonic seconds.

    Raises:
        Unavailable: where there is no such tool.
    """

    def __init__(self, tool: Tool, clock: Callable[[], float] = time.monotonic) -> None:
        self._command = Command(tool)
        self._name = tool.name
        self._clock = clock
        self._child: Child | None = None
        self._deaths = 0
        self._not_before = -inf
        self._ended = ""
        self._document = ""

    def open(self, arguments: Sequence[str], period: float, document: str = "") -> None:
        """Start the tool; the one before is ended.

        Args:
            arguments: for the tool.
            period: seconds between two lines.
            document: a text that it reads from a file, which is there until it has said something; ``{document}``
                stands for its path among the arguments.

        Raises:
            ChildProcessError: the one before could not be killed and still lives; or it broke off a short while ago.
            OSError: the system cannot start it now.
            Unavailable: the tool is gone, or is no program of this machine.
        """
        self.close()
        now = self._clock()
        if now < self._not_before:
            raise ChildProcessError(f"{self._ended}; it is started again in {self._not_before - now:.0f} s")
        if document:
            self._document = _written(document)
            arguments = [each.replace("{document}", self._document) for each in arguments]
        try:
            self._child = self._command.start(arguments, for_long=True)
        except BaseException:
            self._forget()
            raise
        self._period = period
        self._opened = self._looked = now
        self._overdue = now + max(_FIRST, PERIODS * period)
        self._rest = b""
        self._skip = False

    def read(self, seconds: float = 0.0) -> list[bytes]:
        """The whole lines since the last time, without their ends; waits so long for one, at most.

        Where one has begun, its rest is waited for as long as it goes on coming, so that it is none of a moment ago.

        Where nobody listened for so long that the tool was held up, what waited is old and is left out.

        Raises:
            ChildProcessError: it is not open; it has ended, or said too much, and is killed.
            TimeoutError: it has been silent for three periods, and is killed.
        """
        child = self._child
        if child is None:
            raise ChildProcessError(self._ended or f"{self._name} is not running")
        begun = self._clock()
        until = begun + seconds
        lines: list[bytes] = []
        got = 0
        while True:
            left = 0.0 if lines else until - self._clock()
            rest = LOOK if self._rest and self._clock() - begun < _REST else 0.0
            piece = child.hear(max(rest, min(left, LOOK)))
            if piece is None and not lines:
                raise ChildProcessError(self._broke(f"{self._name} has ended{_saying(child)}"))
            if not piece and left <= 0:
                break
            got += len(piece or b"")
            if got:
                self._forget()
            lines += self._cut(piece or b"")
            if got > LIMIT or len(self._rest) > LINE:
                what = (
                    f"more than {LIMIT >> 20} MiB at once" if got > LIMIT else f"a line of more than {LINE >> 20} MiB"
                )
                raise ChildProcessError(self._broke(f"{self._name} said {what}"))
        return self._young(lines, begun)

    def close(self) -> None:
        """End it, with all that it started. In a forked child: let go of its parent's."""
        child, self._child = self._child, None
        if child is not None:
            self._command.end(child)
        self._forget()

    def _forget(self) -> None:
        """Remove the file of the document: the tool has read it, or never will."""
        path, self._document = self._document, ""
        if f"-{os.getpid()}-" in path:  # in a forked child it is its parent's
            with suppress(OSError):
                os.unlink(path)

    def _cut(self, piece: bytes) -> list[bytes]:
        """The lines that a piece makes whole."""
        if self._skip and b"\n" in piece:
            piece = piece.partition(b"\n")[2]
            self._skip = False
        if self._skip or not piece:
            return []
        *lines, rest = piece.split(b"\n")
        if lines:
            lines[0] = self._rest + lines[0]
            self._rest = rest
        else:
            self._rest += rest
        return lines

    def _young(self, lines: list[bytes], begun: float) -> list[bytes]:
        """Lines that are not old: as many as the time since the last look brings.

        A pipe that nobody empties fills up, and the tool waits: then fewer have come, all of them long ago, and the
        one that it was about to say as well.
        """
        now = self._clock()
        due = (begun - self._looked) / self._period - PERIODS
        self._looked = now
        if lines and len(lines) < due:
            lines, self._rest, self._skip = [], b"", True
            self._overdue = now + PERIODS * self._period
        elif lines:
            self._overdue = now + PERIODS * self._period
        elif now > self._overdue:
            raise TimeoutError(self._broke(f"{self._name} has been silent for {PERIODS} periods"))
        return lines

    def _broke(self, how: str) -> str:
        """It is of no use any more: end it, and wait before the next one. Says how it came."""
        now = self._clock()
        self._deaths = 1 if now - self._opened > _LONGEST else self._deaths + 1
        self._not_before = now + min(_LONGEST, 2.0 ** (self._deaths - 1))
        self._ended = how
        self.close()
        return how


def _written(document: str) -> str:
    """The path of a new file of our own user's that has a text."""
    path = f"{os.environ.get('TMPDIR') or '/tmp'}/otel-hardware-{os.getpid()}-{os.urandom(8).hex()}"
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(document)
    return path


def _saying(child: Child) -> str:
    """What it said beside its output: the last line of it."""
    words = child.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return f", saying: {words[:200]}" if words else ""
