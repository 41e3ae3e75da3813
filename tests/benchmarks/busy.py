"""A reading beside a thread that computes without pause: who waits how long for the interpreter lock.

The computing thread and the threads that read are on CPUs of their own, as an idle machine's scheduler puts them. There
every call that releases the lock waits up to 5 ms to get it back.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from tests.benchmarks import peer
from tests.benchmarks.figure import Figure
from tests.benchmarks.steady import in_turn, work, yardstick
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import Config
from opentelemetry.instrumentation.hardware.pipeline.runner import State
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread
from opentelemetry.instrumentation.hardware.system.files import LocalFiles

_PAUSE = 0.05
"""Seconds between two readings."""


class Reading(Protocol):
    """Something that reads in threads of its own."""

    def begin(self) -> None:
        """Start one reading; does not wait."""

    def done(self) -> bool:
        """Whether the reading is there."""


def figures(seconds: float) -> list[Figure]:
    theirs = peer.Callbacks()
    peer.instrument(theirs)
    theirs.read()
    with _apart() as elsewhere:
        with elsewhere:
            ours, official = _Ours(), _Official(theirs.read)

        def stick() -> float:
            here = yardstick()
            with elsewhere:
                return max(here, yardstick())

        readings: dict[str, Reading] = {"ours": ours.before_a_collection, "apart": ours.apart, "peer": official}
        took = in_turn(dict(_runs(readings)), seconds, stick)
        ours.close()
        official.close()
    return took.marked(
        Figure("time until it is there", took["ours"], "ms", peer.NAME, took["peer"], 20.0),
        Figure("the busy thread waits", took["ours waits"], "ms", peer.NAME, took["peer waits"], 1.0),
        Figure("... and for file systems", took["apart waits"], "ms"),
    )


def _runs(readings: Mapping[str, Reading]) -> Iterator[tuple[str, Callable[[], float]]]:
    """For each reading, how long it takes, and how long this thread, which is busy, waits for it; in milliseconds."""
    for name, reading in readings.items():
        beside = _Beside(reading)
        yield name, beside.latency
        yield f"{name} waits", beside.waited


class _Beside:
    """A reading beside this thread.

    The wait is the wall time until the reading is there, less this thread's CPU time, less the time that the scheduler
    kept it waiting for a CPU. Time that a hypervisor takes away is in the wall time and in the CPU time: it cancels.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._queue = Queue()
        self._waited = 0.0

    def latency(self) -> float:
        _compute(_PAUSE)
        queued, begun, used = self._queue.seconds(), time.perf_counter(), time.thread_time()
        self._reading.begin()
        while not self._reading.done():
            work(1000)
        took = time.perf_counter() - begun
        working = time.thread_time() - used + self._queue.seconds() - queued
        self._waited = 1e3 * max(0.0, took - working)  # three clocks, of which none is exact
        return 1e3 * took

    def waited(self) -> float:
        """During the reading that was timed last."""
        return self._waited


class Queue:
    """How long the thread that makes this has waited for a CPU; read without releasing the interpreter lock."""

    def __init__(self) -> None:
        self._kernel = LocalFiles()

    def seconds(self) -> float:
        return int(self._kernel.read("/proc/thread-self/schedstat").split()[1]) / 1e9


def _compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        work(1000)


@contextmanager
def _apart() -> Iterator[_Elsewhere]:
    """Keep this thread on the first CPU, and threads that it starts inside of what this yields on the last one."""
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
    """Some of our threads, which read when asked, as they do for a collection."""

    def __init__(self, rounds: Sequence[ReaderThread]) -> None:
        self._rounds = rounds

    def begin(self) -> None:
        for each in self._rounds:
            each.ask()

    def done(self) -> bool:
        return all(each._served == each._asked for each in self._rounds)


class _Ours:
    """All sources: those that are read before each collection, and those that are read in between only."""

    def __init__(self) -> None:
        self._session = Session(Config(sample_interval=3600.0), environ={}, interval=3600.0)
        self._session.start()
        runners = self._session.runners
        wait_for(lambda: all(runner.state is not State.STARTING for runner in runners), 30, "first reading")
        self.before_a_collection, self.apart = (
            _Asked([each for each in self._session.threads if {*each.runners} & {*some}])
            for some in (
                [runner for runner in runners if runner.state is State.UP and runner.sample_before_collection()],
                [runner for runner in runners if runner.state is State.UP and not runner.sample_before_collection()],
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
