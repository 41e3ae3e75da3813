"""Energy and shares of spans that nest and overlap: the real TracerProvider on a simulated power trace and clock."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support import children
from tests.support.interrupted import Interrupted
from tests.support.recorded import Recorded, Rowed
from tests.support.stage import PATIENT, Clock

from opentelemetry import trace
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Series
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.spans.demand import INTERVAL
from opentelemetry.instrumentation.hardware.spans.ledger import Ledger
from opentelemetry.instrumentation.hardware.spans.operations import EnergyByOperation
from opentelemetry.instrumentation.hardware.spans.recorder import SpanRecorder
from opentelemetry.instrumentation.hardware.spans.rows import Rows
from opentelemetry.instrumentation.hardware.spans.shares import Share, Shares

EPOCH = 4e9  # the difference between the two clocks, in the future: no span seems to be made after the fact

ENERGY = Series(c.HW_ENERGY, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"})

SHARE, METHOD = c.SPAN_SHARE_ENERGY.name, c.SPAN_SHARE_METHOD.name

Power = Callable[[float], float]  # joules since the beginning, at a time


def constant(now: float) -> float:
    return 100.0 * now


def wavering(seed: int) -> Power:
    """A power of 100 to 500 W that changes by at most 100 W per second."""
    dice = random.Random(seed)
    waves = [(dice.uniform(20.0, 66.0), dice.uniform(0.1, 0.5), dice.uniform(0.0, 6.0)) for _ in range(3)]
    return lambda now: 300.0 * now - sum(watts / rate * math.cos(rate * now + phase) for watts, rate, phase in waves)


class Simulation:
    """A program whose spans begin and end at given times, beside a GPU that is read ten times per second."""

    def __init__(self, joules: Power = constant, shares: str = "equal", **settings: Any) -> None:
        self.clock = Clock(100.0)
        self.joules = joules
        self.ledger = Ledger(Rows, self.clock, self._wall)
        self.ledger.use({"GPU-1"}, is_known=True)
        self.recorder = SpanRecorder()
        self.recorder.open(Rowed(Config(spans_shares=shares, **settings), lambda: self.ledger.rows))
        self.shares = Shares(lambda: self.ledger.rows, shares == "tokens", self.clock, self._wall)
        self.recorder.shares = self.recorder._dividing = self.shares
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(Recorded(self.recorder))
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("simulation")
        self.spans: dict[str, trace.Span] = {}
        self._next_reading = self.clock.now
        self.go_to(100.3)
        self.shares.advance()
        self.begin = self.clock.now

    def _wall(self) -> float:
        return EPOCH + self.clock.now

    def go_to(self, instant: float) -> None:
        while self._next_reading <= instant:
            self.clock.now = self._next_reading
            self.ledger.add([ENERGY(self.joules(self.clock.now))], {"GPU-1": self._wall()})
            self._next_reading += INTERVAL
        self.clock.now = instant

    def start(self, instant: float, name: str, parent: str | None = None) -> None:
        self.go_to(instant)
        context = trace.set_span_in_context(self.spans[parent] if parent else trace.INVALID_SPAN)
        self.spans[name] = self.tracer.start_span(name, context, start_time=int(1e9 * self._wall()))

    def end(self, instant: float, name: str, **attributes: int) -> None:
        self.go_to(instant)
        span = self.spans.pop(name)
        span.set_attributes({key.replace("__", "."): value for key, value in attributes.items()})
        span.end(int(1e9 * self._wall()))

    def attributes(self) -> dict[str, dict[str, Any]]:
        return {span.name: dict(span.attributes or {}) for span in self.exporter.get_finished_spans()}

    def found(self) -> dict[str, float]:
        return {name: each[SHARE] for name, each in self.attributes().items() if SHARE in each}

    def total(self) -> float:
        """What the shares of all spans and the rest must be."""
        self.shares.advance()
        return self.joules(self.clock.now) - self.joules(self.begin)


def near(expected: float) -> Any:
    return pytest.approx(expected, rel=0.005)


def exact(expected: float) -> Any:
    """Nearly: values have four significant digits."""
    return pytest.approx(expected, rel=6e-4)


def test_spans_at_the_same_time_have_equal_parts() -> None:
    program = Simulation()
    program.start(110.0, "a")
    program.start(115.0, "b")
    program.end(120.0, "a")
    program.end(125.0, "b")
    program.go_to(130.0)
    assert program.found() == {"a": exact(750.0), "b": exact(750.0)}
    assert METHOD not in program.attributes()["a"]
    assert program.attributes()["a"][c.SPAN_ENERGY.name] == exact(1000.0)
    assert program.total() == exact(1500.0 + program.shares.unattributed)


def test_span_with_open_children_has_none() -> None:
    program = Simulation()
    program.start(110.0, "parent")
    program.start(112.0, "child", "parent")
    program.start(113.0, "grandchild", "child")
    program.end(115.0, "grandchild")
    program.end(116.0, "child")
    program.end(120.0, "parent")
    assert program.found() == {"grandchild": exact(200.0), "child": exact(200.0), "parent": exact(600.0)}


def test_power_that_jumps_where_a_child_begins_and_ends_is_that_of_the_child() -> None:
    program = Simulation(lambda now: 100.0 * now + 600.0 * (max(0.0, now - 111.0) - max(0.0, now - 112.0)))
    program.start(110.0, "parent")
    program.go_to(110.95)
    program.shares.advance()
    program.start(111.0, "child", "parent")
    program.go_to(111.95)
    program.shares.advance()
    program.end(112.0, "child")
    program.end(113.0, "parent")
    assert program.found() == {"parent": near(200.0), "child": near(700.0)}


def test_power_that_jumps_after_the_newest_reading_is_divided_where_the_child_begins() -> None:
    """Another source, such as the process, is read between the begin of the child and the next reading of the GPU."""
    program = Simulation(lambda now: 100.0 * now + 600.0 * max(0.0, now - 110.9))
    program.start(110.0, "parent")
    program.start(110.96, "child", "parent")
    program.go_to(110.97)
    program.shares.advance()
    program.end(111.96, "child")
    program.end(113.0, "parent")
    assert program.found() == {"parent": near(860.0), "child": near(700.0)}


def test_share_of_a_span_that_is_too_short_to_be_measured_is_that_of_its_parent() -> None:
    program = Simulation()
    program.start(110.0, "parent")
    program.start(112.0, "short", "parent")
    program.end(112.05, "short")
    program.end(120.0, "parent")
    assert program.found() == {"parent": exact(1000.0)}
    program.start(130.0, "root")
    program.end(130.05, "root")
    program.go_to(140.0)
    assert program.found() == {"parent": exact(1000.0)}, "that of a root is unattributed"
    program.start(150.0, "early")
    program.start(150.01, "late", "early")
    program.start(150.02, "later", "late")
    program.end(150.05, "early")
    program.end(150.06, "later")
    program.end(150.07, "late")
    program.go_to(160.0)
    assert program.total() == exact(1000.0 + program.shares.unattributed)


def test_child_may_outlive_its_parent() -> None:
    program = Simulation()
    program.start(110.0, "parent")
    program.start(112.0, "child", "parent")
    program.end(115.0, "parent")
    program.end(120.0, "child")
    assert program.found() == {"parent": exact(200.0), "child": exact(800.0)}


def test_ancestors_that_have_ended_are_released() -> None:
    """As in a program in which each task starts the next one before it ends."""
    program = Simulation()
    tracer = program.provider.get_tracer("chain")

    def shares() -> int:
        return sum(isinstance(each, Share) for each in gc.get_objects())

    before, last = shares(), tracer.start_span("0")
    for number in range(100):
        span = tracer.start_span(str(number), trace.set_span_in_context(last))
        last.end()
        last = span
    assert shares() - before <= 2
    last.end()


def test_tokens_weigh_the_parts() -> None:
    program = Simulation(shares="tokens")
    program.start(110.0, "first")
    program.end(120.0, "first", gen_ai__usage__input_tokens=500, gen_ai__usage__output_tokens=1500)
    program.start(130.0, "slow")
    program.start(130.0, "fast")
    program.end(140.0, "slow", gen_ai__usage__prompt_tokens=400, gen_ai__usage__completion_tokens=600)
    program.end(140.0, "fast", gen_ai__usage__output_tokens=3000)
    found = program.found()
    assert found["first"] == exact(1000.0)
    assert found["slow"] == exact(1000.0 * 100 / (100 + 200)), "the other one was expected to be like the first"
    assert found["slow"] + found["fast"] == exact(1000.0)
    assert {each[METHOD] for each in program.attributes().values()} == {"tokens"}


def test_span_without_tokens_counts_as_a_mean_one() -> None:
    program = Simulation(shares="tokens")
    program.start(110.0, "other")
    program.start(110.0, "model")
    program.end(120.0, "other")
    program.end(120.0, "model", gen_ai__usage__output_tokens=100)
    assert program.found() == {"other": exact(500.0), "model": exact(500.0)}
    assert [each[METHOD] for each in program.attributes().values()] == ["equal", "tokens"]


def test_span_that_is_made_after_the_fact_has_no_share() -> None:
    program = Simulation()
    now = int(1e9 * (EPOCH + 109.0))
    program.go_to(110.0)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("time.time_ns", lambda: now + 10**9)
        program.tracer.start_span("late", start_time=now - 8 * 10**9).end(now)
    assert SHARE not in program.attributes()["late"]
    assert program.attributes()["late"][c.SPAN_ENERGY.name] == exact(800.0)
    assert program.total() == exact(program.shares.unattributed)


def test_spans_that_are_left_out_take_no_part() -> None:
    program = Simulation(spans_filter=["-name:health"])
    program.start(110.0, "request")
    program.start(110.0, "health")
    program.end(120.0, "health")
    program.end(120.0, "request")
    assert program.found() == {"request": exact(1000.0)}


def test_span_that_is_forgotten_is_released() -> None:
    program = Simulation()
    program.start(110.0, "forgotten")
    program.start(110.0, "other")
    program.go_to(115.0)
    del program.spans["forgotten"]
    gc.collect()
    program.end(120.0, "other")
    program.go_to(125.0)
    assert program.total() == exact(program.found()["other"] + program.shares.unattributed)
    assert not program.shares._open


def test_energy_is_counted_when_it_is_known() -> None:
    """A source that is read late, and a second device that comes into use."""
    program = Simulation()
    program.start(110.0, "a")
    program._next_reading = 140.0
    program.clock.now = 130.0  # the newest reading is too old to be extrapolated
    program.shares.advance()
    program.end(150.0, "a")
    program.go_to(151.0)
    program.ledger.use((), is_known=True)
    program.shares.advance()
    program.ledger.use({"GPU-1"}, is_known=True)
    program.go_to(160.0)
    assert program.found() == {"a": exact(4000.0)}
    assert program.total() == exact(4000.0 + program.shares.unattributed)


def test_slots_of_a_long_span_are_bounded() -> None:
    program = Simulation(shares="tokens")
    program.start(110.0, "long")
    for number in range(2000):
        program.clock.now = 110.0 + 0.2 * number  # without readings
        program.shares.begin(number, None)
        program.shares.end(number)
    assert len(program.shares._timeline.slots) <= 600
    assert len(program.shares._open) == 1


def test_notes_are_bounded_when_our_threads_are_blocked() -> None:
    program = Simulation()
    for number in range(10_000):
        program.shares.begin(number, None)
        program.shares.forget(number)
        assert len(program.shares._notes) <= 2002


@pytest.mark.parametrize("method", ["equal", "tokens"])
def test_span_of_a_signal_handler_leaves_the_shares_right(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """The handler runs at each line once."""
    program = Simulation(shares=method)

    def interrupt() -> None:
        context = trace.set_span_in_context(program.spans["parent"])
        begin = int(1e9 * (EPOCH + program.clock.now))
        program.tracer.start_span("handler", context, start_time=begin).end(begin)

    for number in range(1, 10_000):
        now = 110.0 + 2 * number
        program.start(now, "parent")
        with Interrupted(Shares, number, interrupt) as interrupted:
            program.start(now + 0.2, "child", "parent")
            program.end(now + 0.8, "child", gen_ai__usage__output_tokens=10)
        program.end(now + 1.5, "parent")
        program.go_to(now + 1.9)
        if interrupted.lines < number:
            break
    assert number > 30
    assert caplog.messages == []
    assert (program.shares._open, program.shares._leaves) == ({}, 0)
    every: list[Any] = [span.attributes for span in program.exporter.get_finished_spans()]
    found = sum(each.get(SHARE, 0.0) for each in every)
    assert program.total() == exact(found + program.shares.unattributed)


@pytest.mark.parametrize("is_dropped", [False, True])
def test_span_may_end_while_another_thread_uninstruments(is_dropped: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The other thread is as fast as to do it between two lines."""
    for number in range(1, 10_000):
        program = Simulation()
        program.start(110.0, "span")
        with Interrupted(SpanRecorder, number, program.recorder.close) as interrupted:
            if is_dropped:
                program.spans.clear()
            else:
                program.start(111.0, "child", "span")
                program.end(112.0, "child")
        if interrupted.lines < number:
            break
        assert len(program.attributes()) == (not is_dropped)
    assert number > 4
    assert caplog.messages == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork beside threads
def test_forked_child_has_no_shares() -> None:
    """The lock may be held by a thread of the parent."""
    program = Simulation()
    program.start(110.0, "span")
    with program.shares._lock:
        pid = os.fork()
        if not pid:
            status = 1
            try:
                with ThreadPoolExecutor(1) as other:
                    other.submit(program.end, 120.0, "span").result(10.0)
                status = 0 if program.found() == {} else 2
            finally:
                os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_span_that_a_finalizer_ends_at_exit_does_not_hang() -> None:
    """The interpreter stops daemon threads wherever they are, also where they have the lock."""
    program = """
import builtins, os, threading, time
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.instrumentation.hardware import HardwareSpanProcessor
processor = HardwareSpanProcessor(sources=["process"], spans_shares="equal")
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(processor)
class Request:
    def __init__(self):
        self.span = provider.get_tracer("program").start_span("request")
    def __del__(self, write=os.write):
        self.span.end()
        write(1, b"ended\\n")
builtins.request = Request()  # ends after the threads
has_lock = threading.Event()
def hold():
    with processor._recorder.shares._lock:
        has_lock.set()
        time.sleep(1e6)
threading.Thread(target=hold, daemon=True).start()
has_lock.wait()
"""
    outcome = children.run([sys.executable, "-c", program])
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (0, "ended\n", "")


def test_unattributed_energy_never_decreases() -> None:
    """The power ends between two readings: what was extrapolated until the second one is too much."""
    program = Simulation(lambda now: 100.0 * min(now, 110.21))
    values = []
    for number in range(60):
        program.go_to(109.0 + 0.037 * number)
        program.shares.advance()
        values.append(program.shares.unattributed)
    assert values == sorted(values)
    assert values[-1] == pytest.approx(program.total(), abs=10.0), "at most the energy of one interval more"


def by_operation(program: Simulation) -> Callable[[], dict[str, tuple[int, float]]]:
    """Add the metric to a program. Returns a function that collects count and joules by name."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    program.recorder._metric = EnergyByOperation(meters.get_meter(__name__))

    def collect() -> dict[str, tuple[int, float]]:
        data = reader.get_metrics_data()
        assert data is not None
        points: Any = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
        return {point.attributes[c.SPAN_NAME]: (point.count, point.sum) for point in points}

    return collect


def test_operation_without_energy_counts_where_the_energy_is_known() -> None:
    """What was extrapolated for the span before is all that the device used."""
    program = Simulation(lambda now: 100.0 * min(now, 110.21))
    collect = by_operation(program)
    for begin, name in ((110.22, "before"), (110.28, "short")):
        program.start(begin, name)
        program.end(begin + 0.05, name)
    program.ledger.use((), is_known=True)
    program.start(110.4, "unknown")
    program.end(110.45, "unknown")
    assert collect() == {"before": (1, near(5.0)), "short": (1, 0.0)}


def test_operations_and_unattributed_energy_add_up() -> None:
    program = Simulation()
    collect = by_operation(program)
    for number in range(100):
        program.start(110.0 + 0.1 * number, "short root")
        program.start(110.01 + 0.1 * number, "short child", "short root")
        program.end(110.03 + 0.1 * number, "short child")
        program.end(110.06 + 0.1 * number, "short root")
    program.start(130.0, "long")
    program.end(135.0, "long")
    program.go_to(140.0)
    found = collect()
    assert found == {"short root": (100, near(400.0)), "short child": (100, near(200.0)), "long": (1, near(500.0))}
    assert program.total() == near(sum(joules for _, joules in found.values()) + program.shares.unattributed)


# -- any spans

# Of each span: when it begins, its length, the number of its parent, where it begins and ends, and its tokens.
Plan = Sequence[tuple[float, float, int, int, int]]

PLANS = st.lists(
    st.tuples(
        st.floats(0.0, 30.0), st.floats(0.01, 40.0), st.integers(0, 12), st.integers(0, 8), st.integers(0, 10_000)
    ),
    min_size=1,
    max_size=12,
)


@contextmanager
def carriers() -> Iterator[list[Callable[[Callable[[], None]], object]]]:
    """Ways to call a function: in this thread, in two others, in a task of a loop."""
    loop = asyncio.new_event_loop()

    async def task(call: Callable[[], None]) -> None:
        await asyncio.sleep(0)
        call()

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        yield [
            lambda call: call(),
            lambda call: [each.submit(call).result() for each in (one, other)[:1]],
            lambda call: loop.run_until_complete(task(call)),
        ]
    loop.close()


def tokens(count: int) -> dict[str, int]:
    return {"gen_ai__usage__output_tokens": count} if count else {}


def run(program: Simulation, plan: Plan) -> None:
    """Begin and end the spans of a plan."""
    events: list[tuple[float, int, int]] = []
    for number, (begin, length, *_) in enumerate(plan):
        events += [(105.0 + begin, 0, number), (105.0 + begin + length, 1, number)]
    with carriers() as ways:
        for instant, is_end, number in sorted(events):
            _, _, parent, way, output = plan[number]
            if is_end:
                ways[way // 3](lambda: program.end(instant, str(number), **tokens(output)))  # noqa: B023
            else:
                known = str(parent) if str(parent) in program.spans else None
                ways[way % 3](lambda: program.start(instant, str(number), known))  # noqa: B023
    program.go_to(200.0)


@given(PLANS, st.integers(0, 1000), st.sampled_from(["equal", "tokens"]))
@PATIENT
def test_energy_is_the_integral_of_power_and_shares_add_up(plan: Plan, seed: int, method: str) -> None:
    program = Simulation(wavering(seed), method)
    run(program, plan)
    attributes = program.attributes()
    assert len(attributes) == len(plan)
    for number, (begin, length, *_) in enumerate(plan):
        found = attributes[str(number)]
        if length >= 2.0:
            exact = program.joules(105.0 + begin + length) - program.joules(105.0 + begin)
            assert found[c.SPAN_ENERGY.name] == near(exact)
        if length > 2 * INTERVAL:
            assert 0.0 <= found[SHARE] <= found[c.SPAN_ENERGY.name]
    assert program.total() == near(sum(program.found().values()) + program.shares.unattributed)
    assert program.shares._open == {}


def test_energy_of_children_that_are_dropped_is_not_that_of_their_parent() -> None:
    program = Simulation()
    program.start(110.0, "parent")
    for number in range(100):
        program.start(110.0 + 0.1 * number, "dropped", "parent")
        program.go_to(110.08 + 0.1 * number)
        del program.spans["dropped"]
    program.end(120.0, "parent")
    assert program.found() == {"parent": pytest.approx(200.0, rel=0.02)}


@pytest.mark.parametrize("method", ["equal", "tokens"])
@pytest.mark.parametrize("seed", range(4))
def test_shares_are_the_same_whenever_the_notes_are_taken_over(seed: int, method: str) -> None:
    """Short children of long spans, some of them at the same time."""
    late, at_once = Simulation(wavering(seed), method), Simulation(wavering(seed), method)
    for program in late, at_once:
        dice = random.Random(seed)
        for name in "abc":
            program.start(105.0 + dice.uniform(0.0, 0.5), name, dice.choice([None, *program.spans]))
        instant, count = 106.0, 0
        while instant < 112.0:
            instant += dice.uniform(0.001, 0.03)
            short = [name for name in program.spans if name.startswith("short")]
            if short and dice.random() < 0.5:
                program.end(instant, dice.choice(short), **tokens(dice.choice([0, 0, 1])))
            else:
                count += 1
                program.start(instant, f"short {count}", dice.choice("abc"))
            if program is at_once:
                with program.shares._lock:
                    program.shares._take_over()
        for name in reversed([*program.spans]):
            instant += 0.01
            program.end(instant, name, **tokens(100 if name in "abc" else 0))
        program.go_to(120.0)
        assert program.total() == near(sum(program.found().values()) + program.shares.unattributed)
    assert late.found() == pytest.approx(at_once.found(), rel=0.03)  # the newest energy is extrapolated
    assert late.shares.unattributed == pytest.approx(at_once.shares.unattributed, rel=0.03)


@pytest.mark.parametrize("method", ["equal", "tokens"])
@pytest.mark.parametrize("seed", range(3))
def test_64_overlapping_requests_add_up(seed: int, method: str) -> None:
    dice = random.Random(seed)
    plan = [
        (dice.uniform(0.0, 20.0), dice.uniform(19.0, 21.0), 99, dice.randrange(9), dice.randrange(100, 4000))
        for _ in range(64)
    ]
    program = Simulation(wavering(seed), method)
    run(program, plan)
    found = program.found()
    assert len(found) == 64
    assert program.total() == near(sum(found.values()) + program.shares.unattributed)
    if method == "tokens":  # more tokens, more energy: the rank correlation is high
        order = sorted(found, key=lambda name: found[name])
        ranks = [plan[int(name)][4] for name in order]
        assert sum(ranks[32:]) > 1.7 * sum(ranks[:32])


def test_first_span_has_a_share_although_the_session_takes_long_to_start() -> None:
    """It was taken for one that was made after the fact."""

    class Slow(Rowed):
        has_started = False

        def start(self) -> None:
            time.sleep(0.15)
            self.has_started = True

    recorder = SpanRecorder()
    recorder.open(Slow(Config(), lambda: ()))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Recorded(recorder))
    span = provider.get_tracer("program").start_span("first")
    assert recorder.shares is not None
    recorder.shares.advance()
    assert [*recorder.shares._open] == [span.get_span_context().span_id]
    span.end()
