"""The memory that an application shares with its agents, one after the other."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.children import descriptors
from tests.stage import Clock

from opentelemetry.instrumentation.hardware import Config, agent
from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, Series

pytestmark = pytest.mark.skipif(not agent.is_supported(), reason="an agent needs pidfd_open(2) of Linux 5.3")

GPU = Series(c.HW_ENERGY, {c.HW_ID: "GPU-1", c.HW_NAME: "GPU 0", c.HW_TYPE: "gpu"})
PROCESS = Series(c.PROCESS_CPU_TIME)


@pytest.fixture
def descriptor() -> Iterator[int]:
    from opentelemetry.instrumentation.hardware.pipeline import shared_ledgers

    descriptor = shared_ledgers.create()
    yield descriptor
    os.close(descriptor)


def agent_reads(descriptor: int, *points: Point) -> None:
    """Make the first readings of an agent."""
    from opentelemetry.instrumentation.hardware.pipeline.shared_ledgers import SharingDemand

    clock = Clock()
    ledger = SharingDemand(descriptor).ledger(clock)
    ledger.use(frozenset({"GPU-1"}))
    for _ in range(3):
        ledger.add(points)
        clock.now += 0.1


def test_maps_keep_no_descriptor_that_the_program_could_close(descriptor: int) -> None:
    from opentelemetry.instrumentation.hardware.pipeline.shared_ledgers import AgentLedgers

    application = AgentLedgers(descriptor, Config.read({}))
    assert [name for name, target in descriptors().items() if "otel-hardware" in target] == [str(descriptor)]
    assert not application.ledgers


def test_rows_of_the_next_agent_take_the_place_of_those_of_the_last(descriptor: int) -> None:
    """Also if no span ended between the two agents, which may measure other things in the same ledger."""
    from opentelemetry.instrumentation.hardware.pipeline.shared_ledgers import AgentLedgers

    application = AgentLedgers(descriptor, Config.read({}))
    found = []
    for point in (GPU, 1.0), (PROCESS, 1.0), (GPU, 2.0):
        agent_reads(descriptor, point)
        (ledger,) = application.ledgers
        rows = ledger.rows
        assert rows is not None
        found.append((rows.devices, bool(rows.has_process), rows.count))
    assert found == [(1, False, 3), (1, True, 3), (1, False, 3)]
