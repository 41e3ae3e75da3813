"""ReaderThread: a thread that reads its sources when they are due.

Any driver and any file may block, so each source has a thread of its own. Only the sources without a sign of presence
on this machine share one, which tries to open them and ends.
"""

from __future__ import annotations

import ctypes
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import inf
from typing import TypeAlias

from opentelemetry.instrumentation.hardware.pipeline.role import Role
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.settings.log import logger

_LOG = logger(__name__)

_FORMER_JOIN = 0.2  # seconds for which a source waits for the end of an earlier thread that reads it


Task: TypeAlias = "SourceRunner | Role"  # what a thread does from time to time


class ReaderThread:
    """A thread that reads sources. Those that are absent from this machine are dropped after their first reading.

    ``after_reading`` is called by the thread after each round of readings.

    Attributes:
        wakes_at: When it wakes; infinity while it does not sleep.
    """

    def __init__(
        self,
        name: str,
        runners: Sequence[Task],
        after_reading: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runners = runners
        self.name = name
        self.wakes_at = inf
        self._after_reading = after_reading
        self._clock = clock
        self._cpu_time = 0.0
        # SimpleQueue.put() takes no lock that another thread could hold: a callback of the SDK may wake the thread.
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._requests: deque[tuple[threading.Event, bool]] = deque()
        self._stopping = False
        self._ended = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: If the process may have no more threads.
        """
        if sys.platform.startswith("linux") and sys.version_info < (3, 14):
            # Python ends the remaining threads at exit, and glibc loads this library when the first one ends. By then
            # the process may have no free descriptor or another root, and would be aborted.
            with suppress(OSError):
                ctypes.CDLL("libgcc_s.so.1")
        thread = threading.Thread(target=self._run, name=f"otel-hardware-{self.name}", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        """Ask the thread to close its sources and end; see :meth:`join`."""
        self._stopping = True
        self.wake()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end. Returns False if it hangs in a driver; it then ends when the driver returns."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def wake(self) -> None:
        """Wake the thread, so that it checks which sources are due. Never waits."""
        self._wakeups.put(None)

    def request(self, everything: bool = True) -> threading.Event:
        """Request a reading of every source, or of what is due. The returned event is set when they were read."""
        done = threading.Event()
        self._requests.append((done, everything))
        self.wake()
        if self._ended:
            done.set()
        return done

    def _run(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            # Writing to a connection that the server closed raises SIGPIPE, which ends programs that do not ignore it.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        while self.runners and not self._stopping:
            requests = [self._requests.popleft() for _ in range(len(self._requests))]
            pause = self._read_due(everything=any(everything for _, everything in requests))
            for done, _ in requests:
                done.set()
            if pause > 0 and not requests:
                self._sleep(pause)
        for runner in self.runners:
            runner.close()
        self._ended = True
        for _ in range(len(self._requests)):  # others add to them
            self._requests.popleft()[0].set()

    def _sleep(self, seconds: float) -> None:
        self.wakes_at = self._clock() + seconds
        with suppress(queue.Empty):
            self._wakeups.get(timeout=None if seconds == inf else min(seconds, threading.TIMEOUT_MAX))
            while True:
                self._wakeups.get_nowait()
        self._clock()
        self.wakes_at = inf

    def _read_due(self, everything: bool) -> float:
        """Read the sources that are due, or everything.

        Returns:
            Seconds until a source is due; 0 if one was read.
        """
        now = self._clock()
        pauses = [  # a failed source is opened when its retry is due
            0.0 if everything and runner.state is not State.FAILED else runner.next_reading(now) - now
            for runner in self.runners
        ]
        first = min(pauses)
        if first > 0:
            return min(first, *(runner.poll for runner in self.runners))
        for runner, pause in zip(self.runners, pauses):
            if pause <= 0.0 and not self._stopping:
                runner.read(everything)
                cpu_time = time.thread_time()
                runner.cpu_time += cpu_time - self._cpu_time
                self._cpu_time = cpu_time
        self.runners = [runner for runner in self.runners if runner.state is not State.ABSENT]
        self._after_reading()
        return 0.0


class FormerThreads:
    """Threads of earlier sessions that may hang. Their sources are not opened again before they end."""

    def __init__(self) -> None:
        self._by_source: dict[str, ReaderThread] = {}

    def add(self, thread: ReaderThread) -> None:
        """Keep a thread that was asked to end, unless an earlier one hangs in the same driver."""
        for runner in thread.runners:
            if isinstance(runner, SourceRunner):
                former = self._by_source.get(runner.name)
                if former is None or former.join(0.0):
                    self._by_source[runner.name] = thread

    def wait_for(self, source: str) -> None:
        """Wait a moment for the thread of a source.

        Raises:
            TimeoutError: It hangs.
        """
        former = self._by_source.get(source)
        if former is not None and not former.join(_FORMER_JOIN):
            raise TimeoutError("it has not responded since an earlier session")


def start_all(threads: Iterable[ReaderThread]) -> None:
    """Start as many threads as the limits of threads and memory allow, and log a warning about the others."""
    missing: list[str] = []
    reason = None
    for thread in threads:
        try:
            thread.start()
        except RuntimeError as error:
            missing += [runner.name for runner in thread.runners if isinstance(runner, SourceRunner)]
            reason = error
    if missing:
        _LOG.warning("Sources that cannot be read (%s): %s", reason, ", ".join(missing))


def read_all(threads: Sequence[ReaderThread], seconds: float, everything: bool = True) -> None:
    """Read every source now, or what is due, and wait for them for some seconds in total; not from a callback."""
    deadline = time.monotonic() + seconds
    for done in [thread.request(everything) for thread in threads]:
        done.wait(max(0.0, deadline - time.monotonic()))
