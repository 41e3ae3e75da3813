"""Beside a program that computes without pause: what a reading does with the interpreter lock, and who waits for it.

The program's thread and those that read are on CPUs of their own, as the scheduler of an idle machine would have it;
there every call that lets go of the lock waits up to 5 ms to have it back.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from tests.benchmarks import peer
from tests.benchmarks.figure import Figure
from tests.benchmarks.locks import releases
from tests.benchmarks.ours import ByHand
from tests.benchmarks.steady import in_turn, work, yardstick
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.kernel import Linux
from opentelemetry.instrumentation.hardware.poller import State
from opentelemetry.instrumentation.hardware.rounds import Rounds
from opentelemetry.instrumentation.hardware.session import Session

_PAUSE = 0.05
"""Seconds between two readings."""


class Reading(Protocol):
    """Something that reads in threads of its own."""

    def begin(self) -> None:
        """Have it read once; does not wait."""

    def done(self) -> bool:
        """Whether it has."""


def figures(quick: bool) -> list[Figure]:
    theirs = peer.Callbacks()
    peer.instrument(theirs)
    theirs.read()
    whole = ByHand()
    whole.wait()
    let_go, peers = releases(whole.read), releases(theirs.read)
    with _apart() as elsewhere:
        with elsewhere:
            ours = _Ours()
        wait, latency = beside(ours.before_a_collection, 10 if quick else 60, elsewhere)
        apart, _ = beside(ours.apart, 5 if quick else 30, elsewhere)
        ours.close()
        with elsewhere:
            official = _Official(theirs.read)
        peer_wait, peer_latency = beside(official, 2 if quick else 15, elsewhere)
        official.close()
    return [
        Figure("lock releases of a reading of every source", let_go, "", peer.NAME, peers, 12.0),
        Figure("latency of one for a collection, beside a busy thread", latency, "ms", peer.NAME, peer_latency, 20.0),
        Figure("  what the busy thread waits for it", wait, "ms", peer.NAME, peer_wait, 1.0),
        Figure("  and for the file systems, every 10 s", apart, "ms"),
    ]


def beside(reading: Reading, times: int, elsewhere: _Elsewhere) -> tuple[float, float]:
    """What this thread, busy, waits for one reading, and how long the reading takes; medians in milliseconds.

    From the moment that a reading is asked for until it is there: wall time, less CPU time, less what the scheduler
    kept the thread waiting for a CPU. A hypervisor that takes the CPU away shows in both times, so it cancels; one that
    makes the other CPU slow shows in the yardstick there.
    """
    latencies: list[float] = []
    queue = Queue()

    def wait() -> float:
        _compute(_PAUSE)
        queued, begun, used = queue.seconds(), time.perf_counter(), time.thread_time()
        reading.begin()
        while not reading.done():
            work(1000)
        latencies.append(time.perf_counter() - begun)
        return 1e3 * (latencies[-1] - (time.thread_time() - used) - (queue.seconds() - queued))

    def there() -> float:
        with elsewhere:
            return yardstick()

    return in_turn({"wait": wait}, times, there)["wait"], 1e3 * statistics.median(latencies)


class Queue:
    """How long the thread that makes this has waited for a CPU; read without letting go of the interpreter lock."""

    def __init__(self) -> None:
        self._kernel = Linux()

    def seconds(self) -> float:
        return int(self._kernel.read("/proc/thread-self/schedstat").split()[1]) / 1e9


def _compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        work(1000)


@contextmanager
def _apart() -> Iterator[_Elsewhere]:
    """This thread on the first CPU; threads that begin within what this gives, on the last one."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        yield _Elsewhere(max(cpus), min(cpus))
    finally:
        os.sched_setaffinity(0, cpus)


class _Elsewhere:
    def __init__(self, there: int, here: int) -> None:
        self._there, self._here = there, here

    def __enter__(self) -> None:
        os.sched_setaffinity(0, {self._there})

    def __exit__(self, *_: object) -> None:
        os.sched_setaffinity(0, {self._here})


class _Asked:
    """Some of our threads, which read as in a program when a collection has asked for it."""

    def __init__(self, rounds: Sequence[Rounds]) -> None:
        self._rounds = rounds

    def begin(self) -> None:
        for each in self._rounds:
            each.ask()

    def done(self) -> bool:
        return all(each._served == each._asked for each in self._rounds)


class _Ours:
    """All sources: those that are read before each collection, and those that are only read in between."""

    def __init__(self) -> None:
        self._session = Session(Config(sample_interval=3600.0), environ={}, interval=3600.0)
        self._session.start()
        pollers = self._session.board.pollers
        wait_for(lambda: all(poller.state is not State.STARTING for poller in pollers), 30, "first reading")
        self.before_a_collection, self.apart = (
            _Asked([each for each in self._session.rounds if {*each.pollers} & {*some}])
            for some in (
                [poller for poller in pollers if poller.state is State.UP and poller.punctual()],
                [poller for poller in pollers if poller.state is State.UP and not poller.punctual()],
            )
        )

    def close(self) -> None:
        self._session.close()


class _Official(threading.Thread):
    """The official package reads in the thread that collects."""

    def __init__(self, read: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._read = read
        self._asked = threading.Event()
        self._idle = True
        self._over = False
        self.start()

    def run(self) -> None:
        while self._asked.wait() and not self._over:
            self._asked.clear()
            self._read()
            self._idle = True

    def begin(self) -> None:
        self._idle = False
        self._asked.set()

    def done(self) -> bool:
        return self._idle

    def close(self) -> None:
        self._over = True
        self._asked.set()
        self.join()
