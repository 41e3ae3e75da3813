"""The memory that a program shares with its agents, one after the other."""

from __future__ import annotations

import mmap
import os
import signal
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
from tests.support.children import descriptors
from tests.support.stage import Clock

from opentelemetry.instrumentation.hardware import Config, agent
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, Series
from opentelemetry.instrumentation.hardware.spans.ledger import Ledger
from opentelemetry.instrumentation.hardware.spans.rows import ACCELERATOR, PROCESS, USED
from opentelemetry.instrumentation.hardware.spans.shared import OPEN, AgentDemand, AgentReadings, ProgramDemand, create

pytestmark = pytest.mark.skipif(not agent.is_supported(), reason="an agent needs pidfd_open(2) of Linux 5.3")

GPU = Series(c.HW_ENERGY, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"})
CPU_TIME = Series(c.PROCESS_CPU_TIME)


@pytest.fixture
def descriptor() -> Iterator[int]:
    descriptor = create()
    yield descriptor
    os.close(descriptor)


def agent_reads(descriptor: int, *points: Point) -> None:
    """Make the first readings of an agent."""
    clock = Clock()
    ledger = Ledger(AgentDemand(descriptor).room, clock, clock)
    ledger.use({"GPU-1"}, is_known=True)
    for _ in range(3):
        ledger.add(points)
        clock.now += 1.0


def test_maps_keep_no_descriptor_that_the_program_could_close(descriptor: int) -> None:
    program = AgentReadings(descriptor, Config.read({}))
    assert [name for name, target in descriptors().items() if "otel-hardware" in target] == [str(descriptor)]
    assert not program.span_rows


def test_rows_of_the_next_agent_take_the_place_of_those_of_the_last(descriptor: int) -> None:
    """It may measure other things in the same room."""
    program = AgentReadings(descriptor, Config.read({}))
    assert program.has_accelerators, "it is not known yet"
    found = []
    for point in (GPU, 1.0), (CPU_TIME, 1.0), (GPU, 2.0):
        agent_reads(descriptor, point)
        (rows,) = program.span_rows
        found.append((rows.kind, rows.use, program.has_accelerators, rows.newest))
    assert found == [(ACCELERATOR, USED, True, 1002.0), (PROCESS, 0, False, 1002.0), (ACCELERATOR, USED, True, 1002.0)]


def test_agent_knows_whether_a_span_is_open(descriptor: int) -> None:
    demand = AgentReadings(descriptor, Config.read({})).demand
    seen = AgentDemand(descriptor)
    assert demand is not None
    assert not seen.is_tracing
    demand.is_tracing = True
    assert seen.is_tracing
    assert seen.due(0.1, 90.0, 0.0) == 90.1, "at the start"
    assert seen.due(0.1, 100.0, 0.0) == 101.0
    demand.begin(1, 90.0)
    assert seen.due(0.1, 100.0, 0.0) == pytest.approx(100.1)
    demand.end(1)
    assert seen.due(0.1, 100.0, 0.0) == 101.0


def test_spans_of_each_forked_process_count(descriptor: int) -> None:
    """The end of one hid the open spans of the others, and a child kept those of its parent."""
    demand = AgentReadings(descriptor, Config.read({})).demand
    seen = AgentDemand(descriptor)
    demand.begin(1, 90.0)
    orders, answers = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        demand.join()
        while order := os.read(orders[0], 1):  # a span begins or ends
            demand.begin(2, 91.0) if order == b"b" else demand.end(2)
            os.write(answers[1], order)
        os._exit(1)

    def tell(order: bytes) -> None:
        os.write(orders[1], order)
        os.read(answers[0], 1)

    try:
        tell(b"b")
        tell(b"e")
        assert seen.is_open, "the end in the child hides the span of the program"
        tell(b"b")
        demand.end(1)
        assert seen.is_open, "the end in the program hides the span of the child"
        tell(b"e")
        assert not seen.is_open, "the child has a span of its parent"
        tell(b"b")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for end in (*orders, *answers):
            os.close(end)
    assert not seen.is_open, "the child was killed while a span was open"


def test_two_processes_whose_pids_lead_to_the_same_place_both_count() -> None:
    """Of 512 numbers, those of two workers may differ by a multiple. The end of one hid the open span of the other."""
    memory = memoryview(mmap.mmap(-1, 8 * (OPEN + 2))).cast("d")
    demand = ProgramDemand(memory)
    demand.begin(1, 90.0)
    child = os.getpid() + 1
    while (child - os.getpid()) % 2:
        child = os.fork()
        if not child:
            demand.join()
            demand.begin(2, 91.0)
            demand.end(2)
            os._exit(0)
        os.waitpid(child, 0)
    assert [*memory[OPEN:]].count(0.0) == 1, "the child has hidden the span of its parent"


class Meanwhile(list[float]):
    """The memory of a demand. When it is set, other threads begin or end spans."""

    def __init__(self, *others: Callable[[], object]) -> None:
        super().__init__((0.0, -inf, 0.0))
        self.others = iter(others)

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(at, value)
        if at == len(self) - 1:
            before = self[at]
            next(self.others, lambda: None)()
            super().__setitem__(at, before)  # this thread was the last one to write


def test_readings_stay_frequent_when_a_span_begins_while_the_last_one_ends() -> None:
    demand: ProgramDemand = ProgramDemand(memory := Meanwhile(lambda: None, lambda: demand.begin(2, 98.0)))
    demand.begin(1, 97.0)
    demand.end(1)
    assert memory[OPEN]
    demand.end(2)
    assert not memory[OPEN]


def test_readings_get_seldom_when_two_spans_end_at_the_same_time() -> None:
    begin_and_end = lambda: demand.begin(2, 98.0), lambda: None, lambda: demand.end(2)
    demand: ProgramDemand = ProgramDemand(memory := Meanwhile(lambda: None, *begin_and_end))
    demand.begin(1, 97.0)
    demand.end(1)
    assert not memory[OPEN]


def test_each_span_asks_an_agent_for_a_reading(descriptor: int) -> None:
    demand = AgentReadings(descriptor, Config.read({})).demand
    seen = AgentDemand(descriptor)
    demand.is_tracing = True
    seen.due(0.1, 10.0, 0.0)  # the first reading was long ago
    for start in (100.0, 100.5):
        demand.begin(1, start)
        demand.end(1)
        assert seen.due(0.1, start - 0.1, 0.0) == start


def test_more_devices_than_there_is_room_for_are_left_out(descriptor: int) -> None:
    agent = AgentDemand(descriptor)
    for _ in range(70):
        agent.room().clear(ACCELERATOR)
    assert len(AgentReadings(descriptor, Config.read({})).span_rows) == 64


@pytest.mark.parametrize("value", [-1.0, 1e308, float("inf"), float("nan")])
def test_wild_number_of_devices_is_survived(descriptor: int, value: float) -> None:
    AgentDemand(descriptor)._rooms[0] = value
    assert AgentReadings(descriptor, Config.read({})).span_rows == ()
