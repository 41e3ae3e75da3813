"""Read the output of a tool that prints one line per period for as long as it runs.

The source's thread reads the pipe, because a separate reader thread would not exist in forked children. A tool that
exits, stops printing or prints too much is killed and restarted with backoff.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from opentelemetry.instrumentation.hardware.drivers.backoff import Backoff
from opentelemetry.instrumentation.hardware.drivers.child import LIMIT, POLL, Child, last_line
from opentelemetry.instrumentation.hardware.drivers.spawn import above_standard_streams
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.system.syscalls import memfd_create

T = TypeVar("T")

LINE_LIMIT: Final = 2 << 20  # maximum bytes of a line; a tool that prints a longer one is killed

# Periods without output after which a tool is killed, and after which a line is out of date.
PERIODS: Final = 3

# A tool is killed if it prints more lines than these at once, and as many times more per period since the last reading.
_BURST: Final = 1000
_TIMES: Final = 10

# Minimum timeout for the first line in seconds; the timeout is three periods if they are longer.
_FIRST_LINE = 10.0

# Seconds to wait for the rest of a line. A tool blocks in the middle of a line that is longer than the pipe buffer.
_REST_OF_LINE = 1.0

# Seconds between two lines if they are only read before collections.
_SLOW = 30.0

# Longest delay before a restart in seconds. After a tool ran for longer, the delay begins at one second again.
_LONGEST_BACKOFF = 60.0


def period_for(interval: float) -> float:
    """Return the seconds between two lines for a sampling interval; 0 means reading only before collections."""
    return float(math.ceil(min(interval or _SLOW, 60.0)))


class StreamingCommand:
    """A tool that prints lines until it is closed. There is never a second child while the first one exists.

    Raises:
        Unavailable: The tool is not installed.
    """

    def __init__(self, tool: Tool, clock: Callable[[], float] = time.monotonic) -> None:
        self._command = Command(tool)
        self._name = tool.name
        self._clock = clock
        self._child: Child | None = None
        self._backoff = Backoff(1.0, _LONGEST_BACKOFF)

    def open(self, arguments: Sequence[str], period: float, document: str = "") -> None:
        """Start the tool. A running one is ended first.

        Args:
            arguments: The arguments of the tool.
            period: Seconds between two lines.
            document: Content of a file for the tool; ``{document}`` in the arguments is replaced by its path. It is
                in memory, and the stdin of the tool. Linux only.

        Raises:
            ChildProcessError: The backoff after a failure is not over, or the running tool cannot be killed.
            OSError: The system cannot start a process now.
            Unavailable: The tool has been removed or is not executable.
        """
        self.close()
        now = self._clock()
        if self._backoff.is_waiting(now):
            raise ChildProcessError(f"{self._backoff.reason}; retry in {self._backoff.retry_at - now:.0f} s")
        # A file in memory leaves nothing behind.
        stdin = above_standard_streams(memfd_create("otel-hardware")) if document else None
        try:
            if stdin is not None:
                os.pwrite(stdin, document.encode(), 0)
            arguments = [each.replace("{document}", "/dev/stdin") for each in arguments]
            self._child = self._command.start(arguments, stdin, detached=0.0)
        finally:
            if stdin is not None:
                os.close(stdin)
        self._period = period
        self._started = self._last_read = now
        self._deadline = now + max(_FIRST_LINE, PERIODS * period)
        self._partial = bytearray()
        self._skip_next = False

    def read(self, seconds: float = 0.0) -> list[bytes]:
        """Return the complete lines since the previous call. Waits for the given seconds if there is none yet.

        Raises:
            ChildProcessError: The tool is not open, has exited or printed too much.
            TimeoutError: The tool has printed nothing for three periods.
        """
        if self._child is None:
            raise ChildProcessError(self._backoff.reason or f"{self._name} is not running")
        start = self._clock()
        most = _BURST + _TIMES * (start - self._last_read) / self._period
        lines: list[bytes] = []
        size = 0
        while True:
            now = self._clock()
            left = 0.0 if lines else start + seconds - now
            rest = POLL if self._partial and now - start < _REST_OF_LINE else 0.0
            chunk = self._child.read_chunk(max(rest, min(left, POLL)))
            if chunk is None and not lines:
                said = last_line(self._child.stderr)
                raise ChildProcessError(self._fail(f"{self._name} exited{f': {said}' if said else ''}"))
            if chunk:
                *complete, last = chunk.split(b"\n")
                if complete:
                    complete[0] = bytes(self._partial) + complete[0]
                    self._partial.clear()
                self._partial += last
                if complete and self._skip_next:
                    self._skip_next = False
                    complete = complete[1:]
                lines += complete
                size += len(chunk)
            elif left <= 0:
                break
            if len(lines) > most:
                raise ChildProcessError(self._fail(f"{self._name} printed {len(lines)} lines at once"))
            if size > LIMIT:
                raise ChildProcessError(self._fail(f"{self._name} printed more than {LIMIT >> 20} MiB at once"))
            if len(self._partial) > LINE_LIMIT:
                raise ChildProcessError(self._fail(f"{self._name} printed a line of more than {LINE_LIMIT >> 20} MiB"))
        return self._without_old(lines, start)

    def close(self) -> None:
        """Kill the tool and all processes that it started. In a forked child, only close the pipe."""
        child, self._child = self._child, None
        if child is not None:
            self._command.stop(child)

    def _without_old(self, lines: list[bytes], start: float) -> list[bytes]:
        """Drop lines that waited in a full pipe.

        A pipe that is not read for a long time fills up, and the tool blocks. Fewer lines than expected for the elapsed
        time are then in the pipe. They are out of date, and so is the next line, in which the tool was blocked.
        """
        now = self._clock()
        expected = (start - self._last_read) / self._period - PERIODS
        self._last_read = now
        if not lines:
            if now > self._deadline:
                raise TimeoutError(self._fail(f"{self._name} printed nothing for {PERIODS} periods"))
            return lines
        self._deadline = now + PERIODS * self._period
        if len(lines) < expected:
            self._skip_next = True
            return []
        return lines

    def _fail(self, failure: str) -> str:
        """Kill the tool, begin the backoff and return the failure."""
        now = self._clock()
        if now - self._started > _LONGEST_BACKOFF:
            self._backoff.succeed()
        self._backoff.fail(now, failure)
        self.close()
        return failure


@dataclass
class Reports(Generic[T]):
    """The reports of a tool that prints one per line. The first call of :meth:`read` starts the tool.

    Attributes:
        stream: The tool.
        name: Its name in messages.
        parse: Parses a line. A line with a ValueError is skipped; other exceptions fail the reading.
        arguments: The arguments of the tool.
        period: Seconds between two lines.
        document: See :meth:`StreamingCommand.open`.
        clock: Monotonic seconds.
        newest: The newest report; None if there is none, or it is out of date.
        error: Why the newest reading has no report; "" if it has one, or if there was no line.
    """

    stream: StreamingCommand
    name: str
    parse: Callable[[bytes], T]
    arguments: Sequence[str]
    period: float
    document: str = ""
    clock: Callable[[], float] = time.monotonic
    newest: T | None = None
    error: str = ""
    _is_running: bool = False
    _newest_time: float = 0.0

    def read(self, seconds: float = 0.0) -> list[T]:
        """Return the reports since the previous call. Waits for the given seconds if there is none yet.

        Raises:
            OSError: The tool cannot be started, or failed. The next call starts it again, with backoff.
            Unavailable: The tool has been removed.
        """
        now = self.clock()
        reports = []
        try:
            if not self._is_running:
                self.stream.open(self.arguments, self.period, self.document)
                self._is_running = True
                self.error = self.error or f"{self.name} has not reported yet"
            for line in self.stream.read(seconds):
                try:
                    reports.append(self.parse(line))
                except ValueError as error:
                    self.error = f"{self.name}: {error}"
        except (OSError, Unavailable) as error:
            self._is_running, self.newest, self.error = False, None, str(error)
            raise
        if reports:
            self.newest, self._newest_time, self.error = reports[-1], now, ""
        elif now - self._newest_time > PERIODS * self.period:
            self.newest = None  # the source was not read for a while, or the tool prints something else
        return reports
