"""Runtimes of neuron-monitor that belong to the observed program, and what they executed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from tests.sources.machines import STRANGER
from tests.sources.npus import (
    CHILD,
    CONTAINER,
    HOST,
    listing,
    npu_host,
    old_files,
    open_trainium,
    program,
    reports_of,
    runtime,
)
from tests.sources.reading import all_of, by_id, often, series_of, value

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.system.holders import HeldDevice

RESULT, TAG = c.NEURON_RESULT, c.NEURON_TAG


def test_reused_runtime_pid_is_not_attributed_to_the_program() -> None:
    files = HOST | {"/dev/neuron0": ""}
    drivers = npu_host(files | program(CHILD), reports_of(runtime(CHILD, (0,), 1)))
    source = open_trainium(drivers)
    assert series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT)
    drivers.become(npu_host(files | program(), reports_of(runtime(CHILD, (0,), 1)), up=1001.0))
    all_of(source)
    assert not series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT), "the process tree is read again"
    drivers.become(npu_host(files | program(CHILD), reports_of(runtime(CHILD, (0,), 1)), up=1001.0))
    all_of(source)
    assert series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT)
    drivers.become(npu_host(files | program(), reports_of(), up=1002.0))
    assert not series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT)
    drivers.become(npu_host(files | program(), reports_of(runtime(CHILD, (0,), 1)), up=1004.0))
    assert not series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT)


def test_runtimes_without_tags_are_summed_and_have_no_latency() -> None:
    drivers = npu_host(
        HOST | {"/dev/neuron0": ""} | program(CHILD), reports_of(runtime(STRANGER, (0,), 1), runtime(CHILD, (1,), 1))
    )
    source = open_trainium(drivers)
    points = all_of(source)
    assert value(points, c.AWS_NEURON_EXECUTION_COUNT, {RESULT: "completed"}) == 5200
    assert value(points, c.AWS_NEURON_RUNTIME_MEMORY_USAGE, {c.NEURON_MEMORY_TYPE: "host"}) == 2 * 610_705_409
    assert not series_of(points, c.AWS_NEURON_EXECUTION_LATENCY)
    assert any("NEURON_PROCESS_TAG" in sentence for sentence in source.unsupported)


@pytest.mark.parametrize(
    ("files", "tags", "tag", "expected"),
    [
        (CONTAINER, ("a", "b"), "b", {"b"}),
        (CONTAINER, ("a", "b"), "c", set()),
        (CONTAINER, ("a", "a"), "a", set()),
        (CONTAINER, ("a", "b"), "", set()),
        (HOST, ("a", "b"), "b", set()),
        (CONTAINER, ("b", str(STRANGER)), "b", {"b"}),  # the second runtime is in another container
    ],
)
def test_process_tag_matches_a_runtime_in_a_pid_namespace(
    files: Mapping[str, str], tags: tuple[str, ...], tag: str, expected: set[str]
) -> None:
    runtimes = [runtime(70 + number, (number,), 1, each) for number, each in enumerate(tags)]
    drivers = npu_host({**files, "/dev/neuron0": ""} | program(opens="/dev/neuron0"), reports_of(*runtimes))
    points = all_of(open_trainium(drivers, environ={"NEURON_PROCESS_TAG": tag} if tag else {}))
    assert {series.attributes[TAG] for series in series_of(points, c.AWS_NEURON_EXECUTION_COUNT)} == expected


@pytest.mark.parametrize(
    ("tags", "ours"),
    [
        ((STRANGER, 999), 1),  # a runtime without a tag is tagged with its PID in its container
        ((999, 998), 0),
        ((STRANGER, STRANGER), 0),
        ((CHILD,), 0),
    ],
)
def test_default_tag_matches_a_runtime_by_its_pid_in_the_container(tags: tuple[int, ...], ours: int) -> None:
    runtimes = [runtime(70 + place, (place,), 1, str(tag)) for place, tag in enumerate(tags)]
    files = CONTAINER | {"/dev/neuron0": ""} | program(CHILD, opens="/dev/neuron0")  # the child uses no core
    source = open_trainium(npu_host(files, reports_of(*runtimes)), environ={})
    points = all_of(source)
    assert series_of(points, c.HW_NPU_UTILIZATION), "cores are reported for the host"
    counts = series_of(points, c.AWS_NEURON_EXECUTION_COUNT)
    assert [number for series, number in counts.items() if series.attributes[RESULT] == "completed"] == ours * [2600]
    assert all(TAG not in series.attributes for series in counts), "pids are not attributes"
    assert any(
        "NEURON_PROCESS_TAG that no other process has" in sentence for sentence in source.unsupported
    ) is not bool(ours)


def test_job_member_starts_neuron_monitor_when_it_uses_a_core() -> None:
    stream = reports_of(runtime(STRANGER, (0,), 1))
    drivers = npu_host(HOST | old_files(1, 2, 1) | program(), stream)
    source = open_trainium(drivers, is_reporter=False)
    all_of(source)
    assert not all_of(source)
    assert not stream.opened, "a worker that uses no core does not start the tool"
    drivers.become(npu_host(HOST | old_files(1, 2, 1) | program(opens="/dev/neuron0"), stream))
    all_of(source)
    points = all_of(source)
    assert {series.metric.scope.value for series in points} == {"process"}
    assert json.loads(stream.opened[0][2])["system_metrics"] == []


def test_core_utilization_is_summed_over_runtimes() -> None:
    """Older tools list all cores of a device for each runtime, unused ones with 0."""
    first, second, third = runtime(70, (0, 2), 1), runtime(71, (0, 2), 0), runtime(72, (2, 4), 2)
    points = all_of(open_trainium(npu_host(HOST | {"/dev/neuron0": ""} | program(), reports_of(first, second, third))))
    assert by_id(points, c.HW_NPU_UTILIZATION) == {"neuroncore0": 0.400625, "neuroncore2": 1.0, "neuroncore4": 0.935}
    tensors = by_id(points, c.AWS_NEURON_NEURONCORE_MEMORY_USAGE, {c.NEURON_MEMORY_CATEGORY: "tensors"})
    assert tensors == {"neuroncore0": 2 * 943_608, "neuroncore2": 3 * 943_608, "neuroncore4": 943_608}


def test_runtime_uses_only_some_of_the_cores_that_it_lists() -> None:
    ours, other = (listing(runtime(pid, (core,), 1), range(4)) for pid, core in ((STRANGER, 1), (4242, 2)))
    drivers = npu_host(HOST | old_files(2, 2, 1) | program(), reports_of(ours, other))
    points = all_of(open_trainium(drivers, settings={"devices": "process"}))
    assert by_id(points, c.HW_NPU_UTILIZATION).keys() == {"neuroncore1"}
    held: dict[str, Sequence[HeldDevice]] = {}
    all_of(open_trainium(drivers, all_processes=True, held=held))
    found = {(device.attributes[c.HW_ID], user.pid) for device in held["trainium"] for user in device.users or ()}
    assert found == {("neuron0", STRANGER), ("neuron1", 4242)}


def test_idle_runtime_without_memory_may_use_all_cores_that_it_lists() -> None:
    idle = listing(runtime(STRANGER, (), 1), range(2))
    drivers = npu_host(HOST | old_files(1, 4, 1) | program(), reports_of(idle))
    points = all_of(open_trainium(drivers, settings={"devices": "process"}))
    assert by_id(points, c.HW_NPU_UTILIZATION).keys() == {"neuroncore0", "neuroncore1"}


def test_every_runtime_is_reported_without_an_observed_program() -> None:
    drivers = npu_host(
        HOST | {"/dev/neuron0": ""} | program(), reports_of(runtime(70, (0,), 1, "a"), runtime(71, (1,), 1, "b"))
    )
    points = all_of(open_trainium(drivers, all_processes=True))
    assert {series.attributes[TAG] for series in series_of(points, c.AWS_NEURON_EXECUTION_COUNT)} == {"a", "b"}


def test_execution_counter_adds_up_over_runtimes() -> None:
    stream = reports_of(runtime(STRANGER, (0,), 1))
    drivers = npu_host(HOST | {"/dev/neuron0": ""} | program(CHILD), stream)
    source = open_trainium(drivers)
    counts, errors = [], []
    for pid in (STRANGER, STRANGER, CHILD):
        stream.lines = reports_of(runtime(pid, (0,), 1)).lines
        points = often(source)
        counts.append(value(points, c.AWS_NEURON_EXECUTION_COUNT, {RESULT: "completed"}))
        errors.append(value(points, c.AWS_NEURON_EXECUTION_ERRORS, {c.ERROR_TYPE: "generic"}))
    assert counts == [2600, 5200, 7800]
    assert errors == [23_673, 23_673, 2 * 23_673], "each process has its own running totals"


def test_error_counter_continues_after_a_reset() -> None:
    stream = reports_of()
    source = open_trainium(npu_host(HOST | {"/dev/neuron0": ""} | program(), stream))
    counts = []
    for errors in (20, 5, 5, 9):
        ours = runtime(STRANGER, (0,), 1)
        ours["report"]["execution_stats"]["error_summary"]["generic"] = errors
        stream.lines = reports_of(ours).lines
        counts.append(value(often(source), c.AWS_NEURON_EXECUTION_ERRORS, {c.ERROR_TYPE: "generic"}))
    assert counts == [20, 25, 25, 29]
