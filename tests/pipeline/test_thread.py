"""The threads that read sources: fresh readings, hanging sources, shared threads and their end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from io import StringIO
from math import inf
from types import SimpleNamespace

import pytest
from tests.support.children import scene
from tests.support.stage import ENERGY, POWER, USERS, Clock, Stage, fail, warnings
from tests.support.waiting import wait_for

from opentelemetry.instrumentation.hardware.model import Point, Unavailable
from opentelemetry.instrumentation.hardware.pipeline import runner as source_runner
from opentelemetry.instrumentation.hardware.pipeline import thread as reader_thread
from opentelemetry.instrumentation.hardware.pipeline.clock import RunningClock
from opentelemetry.instrumentation.hardware.pipeline.collector import Reader
from opentelemetry.instrumentation.hardware.pipeline.counters import CounterStore
from opentelemetry.instrumentation.hardware.pipeline.runner import SourceRunner, State
from opentelemetry.instrumentation.hardware.pipeline.schedule import CollectionSchedule
from opentelemetry.instrumentation.hardware.pipeline.session import Session
from opentelemetry.instrumentation.hardware.pipeline.thread import ReaderThread, read_all
from opentelemetry.instrumentation.hardware.settings import Config


@pytest.fixture(autouse=True)
def _everything_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "opentelemetry.instrumentation.hardware")


@contextmanager
def running(*stages: Stage) -> Iterator[None]:
    """Read the sources by threads, which have ended afterwards."""
    threads = [each for stage in stages for each in stage.threads]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        for each in threads:
            each.stop()
        for each in threads:
            assert each.join(20.0), f"the thread of {each.name} did not end"


def ours() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("otel-hardware-")]


def test_thread_reads_at_the_interval() -> None:
    stage = Stage(interval=0.02)
    begun = time.monotonic()
    calls: list[float] = []

    def clock() -> float:
        calls.append(time.monotonic())
        return calls[-1]

    thread = ReaderThread(
        "player",
        [SourceRunner(stage.player.make, "player", CollectionSchedule(begun, 60.0), CounterStore())],
        clock=clock,
    )
    thread.start()
    try:
        wait_for(lambda: len(stage.player.readings) >= 10, 30, "ten readings")
        assert time.monotonic() - begun >= 9 * 0.02, "it reads without a pause"
    finally:
        thread.stop()
        assert thread.join(20.0)
    assert len(calls) <= 10 * len(stage.player.readings), "it polls the clock between two readings"


def test_idle_thread_sleeps() -> None:
    stage, other = Stage(interval=3600.0, expected=3600.0), Stage(interval=3600.0, expected=3600.0)
    with running(stage, other):
        stage.read_now(10.0)
        calls = stage.clock.calls
        for _ in range(200):
            other.read_now(10.0)
        assert stage.clock.calls - calls < 100, "the idle thread polls the clock"


def test_woken_thread_reads_what_became_due_earlier() -> None:
    stage = Stage(interval=3600.0, expected=3600.0)
    with running(stage):
        wait_for(lambda: stage.runner.state is State.UP, 10, "first reading")
        stage.clock.now += 3600.5
        stage.threads[0].wake()
        wait_for(lambda: len(stage.player.readings) == 2, 30, "second reading")


def test_request_that_is_made_while_the_thread_ends_is_answered() -> None:
    for _ in range(20):
        stage = Stage(interval=3600.0, expected=3600.0)
        (thread,) = stage.threads
        is_over = threading.Event()

        def ask(thread: ReaderThread = thread, is_over: threading.Event = is_over) -> list[threading.Event]:
            requests = []
            while not is_over.is_set():
                requests.append(thread.request())
                time.sleep(0.00001)  # else the thread has no time to end
            return requests

        with ThreadPoolExecutor(4) as pool:
            asking = [pool.submit(ask) for _ in range(4)]
            thread.start()
            thread.request().wait(20.0)
            thread.stop()
            ended = thread.join(20.0)
            is_over.set()
            assert ended
            assert all(request.is_set() for requests in asking for request in requests.result())


def test_fresh_reads_every_source() -> None:
    stage = Stage(interval=3600.0, expected=3600.0, names=("player", "neighbour"))
    stage.player.slow = lambda now: [USERS(1)]
    with running(stage):
        wait_for(lambda: all(each.state is State.UP for each in stage.runners.values()), 10, "first reading")
        for round_ in range(2, 5):
            stage.clock.now += 20.0
            stage.read_now(10.0)
            assert [len(player.readings) for player in stage.players.values()] == [round_, round_]
            assert len(stage.player.slow_readings) == round_, "read_now() did not include the slow reading"
            assert stage.collect().read["player"] == stage.clock.now


def test_fresh_neither_shortens_nor_waits_for_backoff_of_failed_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_runner, "RETRY", (3600.0, 3600.0))
    stage = Stage()
    (thread,) = stage.threads
    stage.player.open = fail(OSError("no"))
    with running(stage):
        wait_for(lambda: stage.runner.state is State.FAILED, 10, "failure")
        for _ in range(5):
            assert thread.request().wait(20.0)
        assert len(stage.player.opened) == 1
        stage.clock.now += 3600.5
        assert thread.request().wait(20.0)
        assert len(stage.player.opened) == 2


def test_read_all_waits_at_most_its_limit_for_all_threads_together(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    waits: list[float] = []

    class Hanging(threading.Event):
        """An event that is never set; waiting for it takes its time on the clock."""

        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            clock.now += timeout or 0.0
            return False

    threads = [ReaderThread(name, []) for name in "abc"]
    for thread in threads:
        monkeypatch.setattr(thread, "request", lambda everything: Hanging())
    monkeypatch.setattr(reader_thread, "time", SimpleNamespace(monotonic=clock))
    read_all(threads, 0.5)
    assert waits == pytest.approx([0.5, 0.0, 0.0])


def test_join_waits_at_most_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    thread = Stage().threads[0]
    monkeypatch.setattr(thread, "_thread", SimpleNamespace(join=waits.append, is_alive=lambda: True))
    for limit in (0.5, -1.0):
        assert not thread.join(limit)
    assert waits == [0.5, 0.0]


def test_request_of_what_is_due_reads_nothing_else() -> None:
    stage = Stage(interval=3600.0, expected=3600.0)
    (thread,) = stage.threads
    with running(stage):
        wait_for(lambda: stage.up() == {"player": 1}, 10, "first reading")
        assert thread.request(everything=False).wait(20.0)
        assert len(stage.player.readings) == 1
        stage.clock.now += 3600.5
        assert thread.request(everything=False).wait(20.0)
        assert len(stage.player.readings) == 2


def test_request_to_an_ended_thread_returns_at_once() -> None:
    stage = Stage()
    with running(stage):
        stage.read_now(10.0)
    assert stage.threads[0].request().is_set()


def test_collection_after_a_stop_of_the_process_is_complete() -> None:
    """As after SIGSTOP and SIGCONT: the threads should have read long ago, and none has run."""
    session = Session(Config(sources=["process"]), interval=5.0, clock=(clock := Clock()))
    reader = Reader()
    session.start()
    try:
        for _ in range(3):
            clock.now += 5.0
            session.read_now(20.0)
            session.collect(reader)
        (runner,), (thread,) = session.runners, session.threads
        wait_for(lambda: thread.wakes_at < inf, 20, "sleep of the thread")
        before, read = session.clock(), runner.points(session.clock())
        assert read
        clock.now += 1000.0
        assert before <= session.clock() <= thread.wakes_at
        assert runner.points(session.clock()) == read
        assert runner.health(session.clock()) is None
        session.collect(reader)
    finally:
        session.close()


def test_running_clock_leaves_out_stops_only() -> None:
    raw = Clock()
    wakes = [inf]
    clock = RunningClock(lambda: wakes[0], raw)
    raw.now += 100.0
    assert clock() == 1100.0, "no thread should have woken"
    wakes[0] = 1110.0
    raw.now += 9.5
    assert clock() == 1109.5
    raw.now += 1.4
    assert clock() == pytest.approx(1110.9), "a thread is a little late on a busy machine"
    wakes[0] = 1112.9
    raw.now += 3600.0
    assert clock() == pytest.approx(1112.9), "it was stopped when the thread should have woken"
    raw.now += 0.5
    assert clock() == pytest.approx(1113.4)
    raw.now += 3600.0
    assert clock() == pytest.approx(1113.4), "stopped again before the thread ran"
    wakes[0] = inf
    raw.now += 50.0
    assert clock() == pytest.approx(1163.4), "the thread hangs in its driver: the time counts"


def together() -> Stage:
    """Three sources that share a thread; only the test moves the clock."""
    return Stage(interval=2.0, expected=3600.0, names=("player", "neighbour", "third"), together=True)


def test_shared_thread_reads_all_sources_together() -> None:
    stage = together()
    with running(stage):
        stage.read_now(10.0)
        assert len(ours()) == 1
        stage.clock.now += 1.0
        stage.runners["third"].read()  # out of step
        read = [player.readings for player in stage.players.values()]
        before = [len(each) for each in read]
        for _ in range(4):
            stage.clock.now += 1.95  # the second and third come due, or nearly
            stage.threads[0].wake()
            wait_for(lambda: {each[-1] for each in read} == {stage.clock.now}, 10, "reading of all")
            stage.clock.now += 0.05
        stage.read_now(10.0)
    assert read[0][before[0] :] == read[1][before[1] :]


def test_failure_of_source_in_shared_thread_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    stage = together()
    failing, absent, well = stage.players.values()
    failing.read = fail(OSError("no"))
    absent.open = fail(Unavailable("no such device"))
    with running(stage):
        for _ in range(5):
            stage.read_now(10.0)
        assert [each.state for each in stage.runners.values()] == [State.FAILED, State.ABSENT, State.UP]
        assert (len(failing.opened), len(absent.opened)) == (1, 1), (
            "read_now() reopened a source that failed or is absent"
        )
        assert len(well.readings) >= 5
        failing.read = lambda now: [POWER(1.0)]
        stage.clock.now += 1.5
        stage.read_now(10.0)
        assert stage.up() == {"player": 1, "third": 1}
    assert [len(player.closed) for player in stage.players.values()] == [2, 1, 1]
    assert len(warnings(caplog)) == 1


def test_log_filter_of_the_program_that_raises_in_our_threads_ends_none() -> None:
    """As one that needs the request of the thread. The program has it in its own threads only."""

    def needs_a_request(record: logging.LogRecord) -> bool:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("Working outside of request context.")
        return True

    stage, log, handler = Stage(), logging.getLogger("opentelemetry"), logging.StreamHandler(StringIO())
    handler.addFilter(needs_a_request)
    log.addHandler(handler)
    try:
        with running(stage):
            stage.player.read = fail(OSError("the driver has failed"))
            stage.read_now(10.0)
            assert stage.up() == {"player": 0}
            stage.clock.now += 5.0
            stage.player.read = lambda now: [POWER(1.0)]
            stage.read_now(10.0)
            assert stage.up() == {"player": 1}, "the thread has ended"
    finally:
        log.removeHandler(handler)


def test_thread_ends_when_all_its_sources_are_absent() -> None:
    stage = together()
    for player in stage.players.values():
        player.open = fail(Unavailable("no such device"))
    with running(stage):
        wait_for(lambda: ours() == [], 10, "end of the thread")
        stage.read_now(10.0)
    assert [len(player.opened) for player in stage.players.values()] == [1, 1, 1]


def test_cpu_time_of_shared_thread_is_counted_per_source() -> None:
    stage = together()
    stage.player.read = lambda now: [ENERGY(sum(range(300_000)))]
    with running(stage):
        stage.read_now(10.0)
        stage.read_now(10.0)
    expensive, *cheap = [each.cpu_time for each in stage.runners.values()]
    assert all(0 < other < expensive for other in cheap)


def test_stop_closes_sources_and_ends_threads() -> None:
    stage = Stage(names=("player", "neighbour"))
    before = ours()
    with running(stage):
        wait_for(lambda: all(each.state is State.UP for each in stage.runners.values()), 10, "first reading")
        assert len(ours()) == len(before) + 2
    assert ours() == before
    for player in stage.players.values():
        assert len(player.opened) == len(player.closed) == 1


def test_join_of_hanging_thread_times_out_and_thread_ends_later() -> None:
    stage = Stage()
    released = threading.Event()

    def hang() -> None:
        released.wait(60.0)

    stage.player.open = hang
    stage.threads[0].start()
    wait_for(lambda: stage.runner.busy_since is not None, 10, "attempt to open the source")
    stage.threads[0].stop()
    assert not stage.threads[0].join(0.01)
    released.set()
    assert stage.threads[0].join(20.0)
    assert len(stage.player.closed) == 1


def test_join_of_thread_that_was_never_started_returns() -> None:
    stage = Stage()
    stage.threads[0].stop()
    assert stage.threads[0].join(0.0)


def test_reopening_sources_while_another_thread_collects() -> None:
    stage = Stage(interval=0.5, expected=1.0)
    failing = False

    def read(now: float) -> list[Point]:
        nonlocal failing
        failing = not failing
        if failing:
            raise OSError("every other time")
        return [POWER(1.0)]

    stage.player.read = read
    done = threading.Event()

    def collect() -> None:
        while not done.is_set():
            stage.collector.collect({})

    with running(stage):
        collecting = threading.Thread(target=collect)
        collecting.start()
        try:
            for _ in range(300):
                stage.clock.now += 61.0
                stage.read_now(5.0)
        finally:
            done.set()
            collecting.join(20.0)
    assert not collecting.is_alive()
    assert len(stage.player.opened) >= 100


@pytest.mark.whole
def test_closed_connections_do_not_end_a_program_with_the_default_action_of_sigpipe() -> None:
    assert scene("processes/closed_connections") == {"clear": 0, "encrypted": 0}
