"""ReaderThread: a thread, and the sources that it reads in turn.

A source that may wait for its driver has a thread of its own, so that it holds up nobody else. Those that never wait
share one: beside a busy program it is the hand-over of the interpreter lock that disturbs, and it is one then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State

_DOZE = 5.0
"""The longest sleep: a rhythm that was learned meanwhile is noticed after so many seconds."""

_ALONG = 0.1
"""What is due within so much of its own period, and so many seconds, is read along with what is due now."""

_LOOKS = 10
"""Parts of a wait; each counts as what it was meant to last, however long it was."""


class ReaderThread:
    """One thread. It opens its sources and reads each when its time comes, or when somebody asks.

    Args:
        name: of the thread.
        runners: the sources; those that are not there are left out from their first reading on.
        after: called by the thread after each round of readings.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        runners: Sequence[SourceRunner],
        after: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.runners = runners
        self.name = name
        self._after = after
        self._clock = clock
        self._used = 0.0
        self._wake = threading.Event()
        self._answered = threading.Condition()
        self._asked = self._served = 0
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        thread = threading.Thread(target=self._run, name=f"otel-hardware-{self.name}", daemon=True)
        thread.start()  # raises where the process may have no more threads
        self._thread = thread

    def stop(self) -> None:
        """Ask the thread to close its sources and end; see :meth:`join`."""
        self._stopping = True
        self._wake.set()

    def join(self, seconds: float) -> bool:
        """Wait for the thread to end; False for one that hangs in a driver, which ends when the driver lets it."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(max(0.0, seconds))
        return not self._thread.is_alive()

    def ask(self) -> None:
        """Have the sources read as soon as the thread can; wait with :meth:`answered`."""
        with self._answered:
            self._asked += 1
        self._wake.set()

    def answered(self, seconds: float) -> bool:
        """Wait until what was asked for is there, at most so long. Never called from a callback.

        Returns:
            Whether the readings were made (or tried) in time.
        """
        with self._answered:
            ticket = self._asked
            return self._answered.wait_for(lambda: self._served >= ticket or self._over(), max(0.0, seconds))

    def _run(self) -> None:
        while not self._over():
            asked = self._asked
            pause = self._round(asked > self._served)
            if pause > 0 and asked == self._served:
                self._wake.wait(min(_DOZE, pause))
                self._wake.clear()
            self._serve(asked)
        for runner in self.runners:
            runner.close()
        self._serve(self._asked)

    def _round(self, wanted: bool) -> float:
        """Read what is due, or everything that somebody wants.

        Returns:
            Seconds until something is due; 0 where something was.
        """
        now = self._clock()
        pauses = [self._pause(runner, wanted, now) for runner in self.runners]
        first = min(pauses)
        if first > 0:
            return first
        for runner, pause in zip(self.runners, pauses):
            if (pause <= 0 or pause <= _ALONG * min(1.0, runner.period())) and not self._stopping:
                runner.read(wanted)
                used = time.thread_time()
                runner.cpu_time += used - self._used
                self._used = used
        if State.ABSENT in [runner.state for runner in self.runners]:  # for good
            self.runners = [runner for runner in self.runners if runner.state is not State.ABSENT]
        self._after()
        return 0.0

    def _pause(self, runner: SourceRunner, wanted: bool, now: float) -> float:
        if wanted and runner.state is not State.FAILED:  # an ill one has its pause, whoever asks
            return 0.0
        return runner.next_reading(now) - now

    def _over(self) -> bool:
        """Whether there is nothing more to read."""
        return self._stopping or not self.runners

    def _serve(self, asked: int) -> None:
        """Tell those who wait that what they asked for was done."""
        if asked > self._served:
            with self._answered:
                self._served = asked
                self._answered.notify_all()


def read_all(rounds: Sequence[ReaderThread], seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
    """Have every source read now, and wait for all of them together at most so long. Never called from a callback.

    Time in which the whole program stood still, as where its container has used up its CPU, hardly counts.
    """
    for each in rounds:
        each.ask()
    left, look = seconds, seconds / _LOOKS
    for each in rounds:
        answered = False
        while not answered and left > 0:
            begun = clock()
            answered = each.answered(min(look, left))
            left -= min(look, clock() - begun) if answered else look
