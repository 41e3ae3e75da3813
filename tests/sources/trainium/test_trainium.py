"""Trainium and Inferentia: reports, their attribution to programs, sysfs files, and the tool in a real child."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.children import PROGRAMS, command, lives, run, started
from tests.samples import samples
from tests.sources.machines import STRANGER
from tests.sources.npus import (
    CHILD,
    CONTAINER,
    HOST,
    TRN1,
    TRN2,
    Npus,
    lines,
    moved_files,
    old_files,
    program,
    report,
    runtime,
)
from tests.sources.playing import Ahead, Playing, playing
from tests.sources.reading import all_of, often, opened, series_of, value
from tests.sources.tree import Speaking
from tests.stage import PATIENT
from tests.waiting import wait_for

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware import cli
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Series, Unavailable, Value
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.trainium import Trainium
from opentelemetry.instrumentation.hardware.sources.trainium.report import ECC, Hardware, parse
from opentelemetry.instrumentation.hardware.sources.trainium.sysfs import Sysfs
from opentelemetry.instrumentation.hardware.sources.trainium.tool import configuration, configured_period, period_for
from opentelemetry.instrumentation.hardware.wandb.trainium import KEYS, Probe

pytestmark = pytest.mark.usefixtures("no_child_is_left")
linux = pytest.mark.skipif(sys.platform != "linux", reason="Neuron's driver is one of Linux")

LONG = 60.0
RESULT, TAG = c.NEURON_RESULT, c.NEURON_TAG


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long timeouts for the first line of a child, for busy machines."""
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.trainium.driver._FIRST_REPORT", LONG)
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.drivers.streaming._FIRST_LINE", LONG)


def open_source(drivers: Drivers, pid: int = STRANGER, **more: Any) -> Trainium:
    settings = more.pop("settings", {})
    source = Trainium(SourceContext(Config.read(settings, {}), drivers, pid, **more))
    source.open()
    return source


def count(points: Mapping[Series, Value], series: Series) -> int:
    number = points[series]
    assert isinstance(number, int)
    return number


def reports_of(*runtimes: Mapping[str, Any], devices: int = 1, tick: int = 1) -> Speaking:
    return lines(report(runtimes, devices, tick, TRN1))


# -- reports


def test_neuron_report_is_parsed() -> None:
    parsed = parse(json.dumps(report([runtime(7, (2, 3), 1, "tag", v3d=True)], 2, 1, TRN2)).encode())
    (ours,) = parsed.runtimes
    assert (ours.pid, ours.tag) == (7, "tag")
    assert ours.percent == {2: 40.0625, 3: 20.03125}
    assert ours.used["host"] == sum(ours.host.values()) == 610_705_409
    assert ours.used["device"] == sum(sum(each.values()) for each in ours.cores.values())
    assert ours.results["completed"] == 2600
    assert ours.errors["generic"] == 23_673
    assert ours.latency["total", "p50"] == 0.003
    assert ours.latency["device", "p100"] == 0.008
    assert ours.cpu == {"user": 19.25, "system": 3.75}
    assert parsed.ecc[1] == {"mem_ecc_corrected": 8, "mem_ecc_uncorrected": 0, "sram_ecc_corrected": 1} | {
        "sram_ecc_uncorrected": 0
    }
    assert (parsed.hardware.memory, parsed.hardware.cores, parsed.hardware.logical) == (103_079_215_104, 4, 2)
    assert parsed.errors == ()


@pytest.mark.parametrize(
    "group", ["execution_stats", "memory_used", "neuroncore_counters", "neuron_runtime_vcpu_usage"]
)
def test_report_group_with_an_error_is_dropped(group: str) -> None:
    broken = runtime(7, (0,), 1)
    broken["report"][group]["error"] = "it is broken"
    parsed = parse(json.dumps(report([broken], 1, 1, TRN1)).encode())
    whole = parse(json.dumps(report([runtime(7, (0,), 1)], 1, 1, TRN1)).encode())
    lost = {
        "execution_stats": ("results", "errors", "latency"),
        "memory_used": ("used", "host", "cores"),
        "neuroncore_counters": ("percent",),
        "neuron_runtime_vcpu_usage": ("cpu",),
    }
    for name in ("used", "host", "cores", "percent", "results", "errors", "latency", "cpu"):
        expected = {} if name in lost[group] else getattr(whole.runtimes[0], name)
        assert getattr(parsed.runtimes[0], name) == expected
    assert parsed.errors == (f"{group} of 7: it is broken",)


def test_hardware_info_with_an_error_is_dropped() -> None:
    parsed = parse(
        json.dumps({**report([], 1, 1, TRN2), "neuron_hardware_info": {**TRN2, "error": "no driver"}}).encode()
    )
    assert parsed.hardware == Hardware()
    assert parsed.errors == ("neuron_hardware_info: no driver",)


def test_runtime_error_is_remarked_and_runtime_without_pid_is_dropped() -> None:
    broken, nobody = runtime(7, (0,), 1) | {"error": "it is gone"}, runtime(8, (1,), 1)
    del nobody["pid"]
    parsed = parse(json.dumps(report([broken, nobody], 1, 1, TRN1)).encode())
    assert [each.pid for each in parsed.runtimes] == [7]
    assert parsed.errors == ("runtime of 7: it is gone",)


@pytest.mark.parametrize("invalid", [True, "12", None, -1, 1e400, 1e30, [], {}, "NaN", 0.5])
def test_implausible_report_count_is_dropped(invalid: Any) -> None:
    ours = runtime(7, (0,), 1)
    ours["report"]["execution_stats"]["execution_summary"]["completed"] = invalid
    ours["report"]["memory_used"]["neuron_runtime_used_bytes"]["host"] = invalid
    document = report([ours], 1, 1, TRN1)
    document["system_data"]["neuron_hw_counters"]["neuron_devices"][0]["mem_ecc_corrected"] = invalid
    parsed = parse(json.dumps(document).encode().replace(b"Infinity", b"1e999"))
    assert "completed" not in parsed.runtimes[0].results
    assert "host" not in parsed.runtimes[0].used
    assert "mem_ecc_corrected" not in parsed.ecc[0]


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(100.4, 100), (100, 100), (0, 0), (101.5, None), (-0.1, None), ("50", None), (True, None)],
)
def test_core_utilization_above_100_percent_is_dropped(percent: Any, expected: float | None) -> None:
    ours = runtime(7, (0,), 1)
    ours["report"]["neuroncore_counters"]["neuroncores_in_use"]["0"]["neuroncore_utilization"] = percent
    parsed = parse(json.dumps(report([ours], 1, 1, TRN1)).encode())
    assert parsed.runtimes[0].percent.get(0) == expected


def test_invalid_core_numbers_and_unprintable_tags_are_dropped() -> None:
    ours = runtime(7, (0,), 1, "job\x1b[31m\u202e")
    cores = ours["report"]["neuroncore_counters"]["neuroncores_in_use"]
    names = ("-1", "x", "", "4096", "9" * 5000, "\u0663", "\u00b2")
    cores |= {name: {"neuroncore_utilization": 50} for name in names}
    (parsed,) = parse(json.dumps(report([ours], 1, 1, TRN1)).encode()).runtimes
    assert list(parsed.percent) == [0]
    assert parsed.tag == ""


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"level=warning",
        b'{"neuron_runtime_data": [',
        b'{"a": 1}',
        b"[" * 100_000,
        b'{"system_data": NaN}',
    ],
)
def test_line_that_is_no_report_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a report"):
        parse(line)


_LEAF = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=2)
)


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document, as keys and indices."""
    if place:
        yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from _places(each, (*place, name))


def _exchange(document: Any, place: tuple[Any, ...], value: object) -> None:
    """Put another value at a path, if it still exists."""
    for name in place[:-1]:
        try:
            document = document[name]
        except (TypeError, LookupError):
            return
    with suppress(TypeError, LookupError):
        document[place[-1]] = value


_WHOLE = json.dumps(report([runtime(STRANGER, (0, 1), 1), runtime(8, (1, 2), 2)], 2, 1, TRN2))
_EXCHANGES = st.lists(st.tuples(st.sampled_from([*_places(json.loads(_WHOLE))]), _LEAF), max_size=12)


@PATIENT
@given(_EXCHANGES)
@example([])
def test_random_reports_give_plausible_values(exchanges: list[tuple[tuple[Any, ...], Any]]) -> None:
    document = json.loads(_WHOLE)
    for place, leaf in exchanges:
        _exchange(document, place, leaf)
    text = json.dumps(document)
    drivers = Npus(HOST | {"/dev/neuron0": ""} | program(), Speaking([text.encode()]))
    source = open_source(drivers)
    for series, number in (*source.read(), *source.read_slow()):
        assert isinstance(number, (int, float))
        assert math.isfinite(number)
        assert number >= 0
        if series.metric.unit == "1":
            assert number <= 1
        if number == 0:
            assert "0" in text


# -- recorded output


@pytest.mark.parametrize("path", samples("neuron/neuron-monitor_trn1.2xlarge_neuroncc-2.3.stream.jsonl"))
def test_recorded_neuron_monitor_output_is_parsed(path: Path) -> None:
    first, second, third = path.read_bytes().splitlines()
    parsed = parse(first)
    assert parsed.errors == ()
    assert parsed.ecc == {0: dict.fromkeys(ECC, 0)}
    assert (parsed.hardware.cores, parsed.hardware.memory, parsed.hardware.logical) == (2, None, None)
    values = dict(pair for key in KEYS for pair in key.values(parsed.runtimes[0]))
    host = {"application_memory": 609656832, "constants": 0, "dma_buffers": 1048576, "tensors": 0}
    zeros = dict.fromkeys(("constants", "model_shared_scratchpad", "runtime_memory", "tensors"), 0)
    cores = {
        0: zeros | {"constants": 196608, "model_code": 101125344, "tensors": 943608},
        1: zeros | {"model_code": 32768},
    }
    assert values == {
        "trn.0.neuroncore_utilization": 1.3631567613356375,
        "trn.1.neuroncore_utilization": 0,
        "trn.host_total_memory_usage": 610705408,
        "trn.neuron_device_total_memory_usage": 102298328,
        **{f"trn.host_total_memory_usage.{name}": size for name, size in host.items()},
        **{f"trn.host_memory_usage.{name}": size for name, size in host.items()},
        **{
            f"trn.{core}.neuroncore_memory_usage.{name}": size
            for core, all_ in cores.items()
            for name, size in all_.items()
        },
    }
    speaking = Speaking([first])
    source = open_source(Npus(HOST | {"/dev/neuron0": ""} | program(1337, 16851), speaking))
    completed = Series(c.AWS_NEURON_EXECUTION_COUNT, {RESULT: "completed"})
    errors = Series(c.AWS_NEURON_EXECUTION_ERRORS, {c.ERROR_TYPE: "generic"})
    totals = [(count(all_of(source), completed), count(all_of(source), errors))]
    for line in (second, third):
        speaking.lines = [line]
        once = often(source)
        speaking.lines = []
        totals.append((count(once, completed), count(once, errors)))
    assert totals[0][0] > 0
    assert totals[2][0] - totals[1][0] == 260
    assert totals[2][1] - totals[1][1] == 23749 - 23692


@pytest.mark.parametrize("path", samples("neuron/all-smi_neuron-monitor_trn1.2xlarge_no-runtime.json"))
def test_recorded_neuron_monitor_output_without_a_runtime_is_parsed(path: Path) -> None:
    parsed = parse(path.read_bytes())
    assert parsed.runtimes == ()
    assert (parsed.hardware.model, parsed.hardware.memory) == ("trainium", 34359738368)


# -- attribution


def test_runtimes_are_matched_by_pid_of_the_process_tree() -> None:
    ours, child, other = runtime(STRANGER, (0,), 1), runtime(CHILD, (1,), 1, "child"), runtime(4242, (2,), 1, "other")
    drivers = Npus(HOST | {"/dev/neuron0": ""} | program(CHILD), reports_of(ours, child, other))
    points = all_of(open_source(drivers))
    counts = {
        series.attributes.get(TAG): number
        for series, number in series_of(points, c.AWS_NEURON_EXECUTION_COUNT).items()
        if series.attributes[RESULT] == "completed"
    }
    assert counts == {None: 2600, "child": 2600}
    assert len(series_of(points, c.HW_NPU_UTILIZATION)) == 3, "cores are reported for the host"


def test_executions_of_other_pids_are_not_counted() -> None:
    runtimes = [runtime(STRANGER, (0,), 1), runtime(CHILD, (1,), 1), runtime(4242, (2,), 1)]
    files = HOST | {"/dev/neuron0": ""} | program(CHILD) | {f"/proc/{CHILD}/task/{CHILD}/children": ""}
    for pid, mine in ((STRANGER, 2), (CHILD, 1)):  # the parent of the ranks, and one of them
        points = all_of(open_source(Npus(files, reports_of(*runtimes)), pid))
        assert value(points, c.AWS_NEURON_EXECUTION_COUNT, {RESULT: "completed"}) == mine * 2600
        assert value(points, c.AWS_NEURON_EXECUTION_ERRORS, {c.ERROR_TYPE: "generic"}) == mine * 23_673


def test_reused_runtime_pid_is_not_attributed_to_the_program() -> None:
    files = HOST | {"/dev/neuron0": ""}
    drivers = Npus(files | program(CHILD), reports_of(runtime(CHILD, (0,), 1)))
    source = open_source(drivers)
    assert series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT)
    drivers.become(Npus(files | program(), reports_of(runtime(CHILD, (0,), 1)), up=1001.0))
    all_of(source)
    assert not series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT), "the process tree is read again"
    drivers.become(Npus(files | program(CHILD), reports_of(runtime(CHILD, (0,), 1)), up=1001.0))
    all_of(source)
    assert series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT)
    drivers.become(Npus(files | program(), reports_of(), up=1002.0))
    assert not series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT)
    drivers.become(Npus(files | program(), reports_of(runtime(CHILD, (0,), 1)), up=1004.0))
    assert not series_of(often(source), c.AWS_NEURON_EXECUTION_COUNT)


def test_runtimes_without_tags_are_summed_and_have_no_latency() -> None:
    drivers = Npus(
        HOST | {"/dev/neuron0": ""} | program(CHILD), reports_of(runtime(STRANGER, (0,), 1), runtime(CHILD, (1,), 1))
    )
    source = open_source(drivers)
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
    drivers = Npus({**files, "/dev/neuron0": ""} | program(opens="/dev/neuron0"), reports_of(*runtimes))
    points = all_of(open_source(drivers, environ={"NEURON_PROCESS_TAG": tag} if tag else {}))
    assert {series.attributes[TAG] for series in series_of(points, c.AWS_NEURON_EXECUTION_COUNT)} == expected


@pytest.mark.parametrize(
    ("tags", "ours"),
    [
        ((STRANGER, 999), 1),  # without a tag of its own, a runtime is tagged with its pid in its container
        ((999, 998), 0),
        ((STRANGER, STRANGER), 0),
        ((CHILD,), 0),
    ],
)
def test_default_tag_matches_a_runtime_by_its_pid_in_the_container(tags: tuple[int, ...], ours: int) -> None:
    runtimes = [runtime(70 + place, (place,), 1, str(tag)) for place, tag in enumerate(tags)]
    files = CONTAINER | {"/dev/neuron0": ""} | program(CHILD, opens="/dev/neuron0")  # the child uses no core
    source = open_source(Npus(files, reports_of(*runtimes)), environ={})
    points = all_of(source)
    assert series_of(points, c.HW_NPU_UTILIZATION), "cores are reported for the host"
    counts = series_of(points, c.AWS_NEURON_EXECUTION_COUNT)
    assert [number for series, number in counts.items() if series.attributes[RESULT] == "completed"] == ours * [2600]
    assert all(TAG not in series.attributes for series in counts), "pids are not attributes"
    assert any(
        "NEURON_PROCESS_TAG that no other process has" in sentence for sentence in source.unsupported
    ) is not bool(ours)


def test_first_torchrun_rank_reports_the_cores_and_others_only_their_own() -> None:
    ranks = [runtime(STRANGER, (0,), 1), runtime(CHILD, (1,), 1)]
    files = HOST | old_files(1, 2, 1) | program(opens="/dev/neuron0")
    points = [
        all_of(
            open_source(
                Npus(files | extra, reports_of(*ranks)),
                pid,
                is_reporter=not member,
                environ={"NEURON_PROCESS_TAG": "job"},
            )
        )
        for pid, member, extra in (
            (STRANGER, False, {}),
            (CHILD, True, {f"/proc/{CHILD}/task/{CHILD}/children": "", f"/proc/{CHILD}/fd/3": "/dev/neuron0"}),
        )
    ]
    first, other = ({series.metric.scope.value for series in each} for each in points)
    assert first == {"host", "process"}
    assert other == {"process"}


def test_job_member_starts_neuron_monitor_when_it_uses_a_core() -> None:
    stream = reports_of(runtime(STRANGER, (0,), 1))
    drivers = Npus(HOST | old_files(1, 2, 1) | program(), stream)
    source = open_source(drivers, is_reporter=False)
    all_of(source)
    assert not all_of(source)
    assert not stream.opened, "a worker that uses no core does not start the tool"
    drivers.become(Npus(HOST | old_files(1, 2, 1) | program(opens="/dev/neuron0"), stream))
    all_of(source)
    points = all_of(source)
    assert {series.metric.scope.value for series in points} == {"process"}
    assert json.loads(stream.opened[0][2])["system_metrics"] == []


def test_core_utilization_is_summed_over_runtimes() -> None:
    """Older tools list all cores of a device for each runtime, unused ones with 0."""
    first, second, third = runtime(70, (0, 2), 1), runtime(71, (0, 2), 0), runtime(72, (2, 4), 2)
    points = all_of(open_source(Npus(HOST | {"/dev/neuron0": ""} | program(), reports_of(first, second, third))))
    shares = {series.attributes[c.HW_ID]: share for series, share in series_of(points, c.HW_NPU_UTILIZATION).items()}
    assert shares == {"neuroncore0": 0.400625, "neuroncore2": 1.0, "neuroncore4": 0.935}
    sizes = series_of(points, c.AWS_NEURON_NEURONCORE_MEMORY_USAGE)
    tensors = {
        series.attributes[c.HW_ID]: size
        for series, size in sizes.items()
        if series.attributes[c.NEURON_MEMORY_CATEGORY] == "tensors"
    }
    assert tensors == {"neuroncore0": 2 * 943_608, "neuroncore2": 3 * 943_608, "neuroncore4": 943_608}


def test_every_runtime_is_reported_without_an_observed_program() -> None:
    drivers = Npus(
        HOST | {"/dev/neuron0": ""} | program(), reports_of(runtime(70, (0,), 1, "a"), runtime(71, (1,), 1, "b"))
    )
    points = all_of(open_source(drivers, all_processes=True))
    assert {series.attributes[TAG] for series in series_of(points, c.AWS_NEURON_EXECUTION_COUNT)} == {"a", "b"}


def test_execution_counter_adds_up_over_runtimes() -> None:
    stream = reports_of(runtime(STRANGER, (0,), 1))
    drivers = Npus(HOST | {"/dev/neuron0": ""} | program(CHILD), stream)
    source = open_source(drivers)
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
    source = open_source(Npus(HOST | {"/dev/neuron0": ""} | program(), stream))
    counts = []
    for errors in (20, 5, 5, 9):
        ours = runtime(STRANGER, (0,), 1)
        ours["report"]["execution_stats"]["error_summary"]["generic"] = errors
        stream.lines = reports_of(ours).lines
        counts.append(value(often(source), c.AWS_NEURON_EXECUTION_ERRORS, {c.ERROR_TYPE: "generic"}))
    assert counts == [20, 25, 25, 29]


# -- sysfs


@pytest.mark.parametrize("made", [old_files, moved_files])
def test_neuron_sysfs_files_are_found_in_old_and_new_places(made: Any) -> None:
    drivers = Npus(made(2, 4, 2), None)
    files = Sysfs(drivers.files())
    assert files.cores == {0: 4, 1: 4}
    assert files.text(1, "serial_number") == "00aa00bb00cc0001"
    assert files.text(0, "device_name") == "Inferentia2"
    assert files.errors(0, {}) == {
        "mem_ecc_uncorrected": 2,
        "mem_ecc_repairable_uncorrected": 0,
        "sram_ecc_uncorrected": 2,
    }
    assert files.power_percent(0) == 22.5
    sizes = {name: size for name, size in files.memory_by_category(1, 3).items() if size}
    assert sizes == {"dma_rings": 4096, "model_code": 4_000_000, "tensors": 1_500_000}
    assert (
        files.memory_used(1) == sum(sum(files.memory_by_category(1, core).values()) for core in range(4)) == 16_016_384
    )


def test_single_moved_sysfs_file_is_found_but_no_namesake() -> None:
    old, moved = "neuron0/neuron_core0/stats/memory_usage/device_mem", "neuron0/neuron_core0/memory/device_mem"
    power = "neuron0/stats/power/utilization"
    files = {path.replace(old, moved): content for path, content in old_files(1, 1, 1).items()}
    assert any(moved in path for path in files)
    for path in [path for path in files if path.endswith(power)]:
        files[path.replace(power, "neuron0/stats/utilization")] = "POWER_STATUS_VALID,1701,1.00,99.00,99.00"
        files[path.replace(power, "neuron0/deeper/still/power/utilization")] = (
            "POWER_STATUS_VALID,1701,1.00,99.00,99.00"
        )
        files[path.replace(power, "neuron0/deeper/power/utilization")] = files.pop(path)
    sysfs = Sysfs(Npus(files, None).files())
    assert sysfs.memory_used(0) == 1_000_000 + 1_000_000 + 4096
    assert sysfs.power_percent(0) == 21.5


def test_device_memory_is_dropped_when_one_core_is_unknown() -> None:
    files = old_files(1, 2, 1)
    del files["/sys/devices/virtual/neuron_device/neuron0/neuron_core1/stats/memory_usage/device_mem/total"]
    assert Sysfs(Npus(files, None).files()).memory_used(0) is None
    points = all_of(open_source(Npus(HOST | files | program(), reports_of(runtime(STRANGER, (0,), 1)))))
    sizes = runtime(STRANGER, (0,), 1)["report"]["memory_used"]["neuron_runtime_used_bytes"]
    assert [*series_of(points, c.HW_NPU_MEMORY_USAGE).values()] == [sizes["neuron_device"]], "as the runtimes report it"


def test_memory_limit_below_usage_is_dropped() -> None:
    for size, ratio in ((1 << 30, True), (1 << 20, False)):
        hardware = {**TRN1, "neuron_device_memory_size": size}
        drivers = Npus(HOST | old_files(1, 2, 1) | program(), lines(report([], 1, 1, hardware)))
        points = all_of(open_source(drivers))
        assert series_of(points, c.HW_NPU_MEMORY_USAGE)
        assert bool(series_of(points, c.HW_NPU_MEMORY_LIMIT)) is ratio
        assert bool(series_of(points, c.HW_NPU_MEMORY_UTILIZATION)) is ratio


def test_ecc_errors_fall_back_to_neuron_monitor() -> None:
    denied = PermissionError(13, "denied")
    files = {path: denied if "_ecc_" in path else content for path, content in old_files(1, 2, 1).items()}
    points = all_of(open_source(Npus(HOST | files | program(), reports_of())))
    errors = {series.attributes[c.ERROR_TYPE]: number for series, number in series_of(points, c.HW_ERRORS).items()}
    assert errors == {"mem_corrected": 8, "mem_uncorrected": 0, "sram_corrected": 0, "sram_uncorrected": 0}


def test_unloaded_and_reloaded_neuron_driver() -> None:
    here = HOST | old_files(2, 2, 1) | program()
    drivers = Npus(here, None)
    source = open_source(drivers)
    assert len(series_of(all_of(source), c.HW_NPU_INFO)) == 2
    drivers.become(Npus(HOST | program(), None))
    all_of(source)
    assert all_of(source) == {}
    assert source.errors == ["the Neuron driver has been unloaded"]
    drivers.become(Npus(HOST | moved_files(1, 2, 2) | program(), None))
    all_of(source)
    points = all_of(source)
    assert len(series_of(points, c.HW_NPU_INFO)) == len(series_of(points, c.HW_NPU_MEMORY_USAGE)) == 1
    assert source.errors == []


def test_memory_sample_reads_one_file_per_core() -> None:
    drivers = Npus(HOST | old_files(16, 8, 1) | program(), reports_of(devices=16))
    source = open_source(drivers)
    all_of(source)
    assert drivers.tree is not None
    drivers.tree.asked.clear()
    assert len(series_of(often(source), c.HW_NPU_MEMORY_USAGE)) == 16
    assert len(drivers.tree.asked) == 16 * 8


def test_sysfs_search_skips_unneeded_files() -> None:
    drivers = Npus(old_files(1, 2, 0), None)
    assert drivers.tree is not None
    Sysfs(drivers.files())
    assert not [path for path in drivers.tree.asked if path.endswith(("reset", "success/total"))]


@pytest.mark.parametrize(
    "text", ["0.00,0.00,0.00", "POWER_STATUS_INVALID,17,1.0,2.0,3.0", "", "POWER_STATUS_VALID,1,0,0,0.00"]
)
def test_invalid_power_status_is_dropped(text: str) -> None:
    files = old_files(1, 1, 0)
    files["/sys/devices/virtual/neuron_device/neuron0/stats/power/utilization"] = text
    assert Sysfs(Npus(files, None).files()).power_percent(0) is None


def test_broken_neuron_sysfs_gives_no_values() -> None:
    files = {path: PermissionError(13, "denied") if "stats" in path else "\x00?" for path in old_files(1, 2, 1)}
    source = open_source(Npus(HOST | files | program(), None))
    assert {series.metric for series in all_of(source)} == {c.HW_NPU_INFO}


@linux
def test_neuron_sysfs_files_are_never_opened_for_writing(tmp_path: Path) -> None:
    """The source reads a real tree, mounted in the driver's place, under strace."""
    trace = tmp_path / "trace"
    script = PROGRAMS / "neuron_files.py"
    try:
        done = subprocess.run(
            [
                "strace",
                "-f",
                "-o",
                trace,
                "-e",
                "trace=open,openat,creat",
                "unshare",
                "-rm",
                sys.executable,
                script,
                tmp_path,
            ],
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
    except FileNotFoundError:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("there is no strace: apt-get install strace")
    if "not permitted" in done.stderr:
        pytest.skip(f"no namespaces of our own: {done.stderr.strip()[-100:]}")
    assert "Inferentia2" in done.stdout, done.stderr
    lines_ = trace.read_text(errors="replace").splitlines()
    opens = [line for line in lines_ if "/sys/devices/virtual/neuron_device" in line]
    reading = opens[next(number for number, line in enumerate(opens) if "core_count" in line and "O_RDONLY" in line) :]
    assert len(reading) > 5
    assert not [line for line in reading if "O_WRONLY" in line or "O_RDWR" in line or "creat(" in line]


# -- the tool in a real child


class Tool:
    """A substitute for neuron-monitor in a folder."""

    def __init__(self, folder: Path, *reports: Mapping[str, Any], **how: object) -> None:
        self.folder = folder
        path = folder / "neuron-monitor"
        path.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAMS / "neuron_monitor.py"} {folder} "$@"\n')
        path.chmod(0o755)
        (folder / "reports").write_text("".join(json.dumps(each) + "\n" for each in reports))
        (folder / "how").write_text(json.dumps({"faster": 50, **how}))
        self.settings: dict[str, Any] = {"neuron_monitor": str(path), "sample_interval": 1}

    @property
    def runs(self) -> list[dict[str, Any]]:
        path = self.folder / "runs"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def staged(tool: Tool, neuron: Drivers | None = None) -> Iterator[Playing]:
    """An instrumented program that reads the tool and the host."""
    drivers = {"trainium": neuron or Drivers(), "host": Drivers()}
    try:
        with playing(drivers.__getitem__, {"sources": [*drivers], **tool.settings}) as stage:
            yield stage
    finally:
        drivers["trainium"].close()


def own(tick: int, cores: tuple[int, ...] = (0, 1)) -> Mapping[str, Any]:
    return report([runtime(os.getpid(), cores, tick)], 1, tick, TRN1)


def shares(source: Any) -> set[float]:
    return {number for number in series_of(often(source), c.HW_NPU_UTILIZATION).values() if isinstance(number, float)}


@linux
def test_neuron_monitor_runs_while_the_source_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "SECRET", "NEURON_RT_LOG_LEVEL", "AWS_NEURON_VISIBLE_DEVICES", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "/nowhere")
    tool = Tool(tmp_path, own(1), own(2))
    with opened("trainium", **tool.settings) as source:
        points = all_of(source)
        assert series_of(points, c.HW_NPU_UTILIZATION)
        assert value(points, c.AWS_NEURON_RUNTIME_CPU_UTILIZATION, {c.CPU_MODE: "user"}) == 0.1925
        wait_for(lambda: 0.935 in shares(source), LONG, "second report")
        (run,) = tool.runs
    wait_for(lambda: not lives(run["pid"]), LONG, "end of the tool")
    asked = run["configuration"]
    assert asked["period"] == "1s"
    types = [each["type"] for each in asked["neuron_runtimes"][0]["metrics"]]
    assert types == ["neuroncore_counters", "memory_used", "execution_stats", "neuron_runtime_vcpu_usage"]
    assert asked["system_metrics"] == [{"type": "neuron_hw_counters"}]
    assert {"NEURON_RT_LOG_LEVEL", "AWS_NEURON_VISIBLE_DEVICES"} <= {*run["named"]}
    assert not {"PYTHONPATH", "SECRET", "AWS_SECRET_ACCESS_KEY"} & {*run["named"]}


@linux
def test_neuron_monitor_is_found_in_opt_aws(tmp_path: Path) -> None:
    script = f"""
import os, subprocess
from {parse.__module__.rpartition(".")[0]}.tool import TOOL
subprocess.run(["mount", "-t", "tmpfs", "none", "/opt"], check=True)
os.makedirs("/opt/aws/neuron/bin")
open("/opt/aws/neuron/bin/neuron-monitor", "w").close()
os.chmod("/opt/aws/neuron/bin/neuron-monitor", 0o755)
print(TOOL.find())
"""
    done = run(["unshare", "-rm", sys.executable, "-c", script], {"PATH": "/usr/bin:/bin"}, cwd=tmp_path)
    if "not permitted" in done.stderr:
        pytest.skip(f"no namespaces of our own: {done.stderr.strip()[-100:]}")
    assert done.stdout.strip() == "/opt/aws/neuron/bin/neuron-monitor", done.stderr


@linux
def test_neuron_monitor_config_of_the_user_is_passed_unchanged(tmp_path: Path) -> None:
    tool = Tool(tmp_path, own(1))
    (tmp_path / "own.json").write_text('{"period": "7s", "mine": true}')
    with opened("trainium", neuron_monitor_config=str(tmp_path / "own.json"), **tool.settings) as source:
        all_of(source)
        assert tool.runs[0]["configuration"] == {"period": "7s", "mine": True}


@linux
def test_report_of_several_pipe_buffers_is_read(tmp_path: Path) -> None:
    many = report([runtime(os.getpid(), tuple(range(128)), 1)], 16, 1, TRN1)
    big = {**many, "loaded": ["x" * 400_000]}
    assert len(json.dumps(big)) > 400_000
    with opened("trainium", **Tool(tmp_path, big).settings) as source:
        wait_for(lambda: len(series_of(often(source), c.HW_NPU_UTILIZATION)) == 128, LONG, "report")


@linux
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        pytest.param({"exit_after": 1}, "neuron-monitor exited: nrt_init failed", id="exits"),
        pytest.param({"cut_after": 1}, "neuron-monitor exited", id="exits within a line"),
        pytest.param({"silent_after": 1}, "printed nothing for 3 periods", id="falls silent"),
        pytest.param({"silent_after": 0}, "printed nothing for 3 periods", id="is silent"),
        pytest.param({"flood": 1600}, "printed a line of more than 8 MiB", id="floods"),
        pytest.param({"flood": 1600, "garbage": ["x"]}, "printed", id="floods and ends the line"),
    ],
)
def test_failing_neuron_monitor_costs_only_its_own_metrics_and_is_restarted(
    tmp_path: Path, how: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.trainium.driver._FIRST_REPORT", 0.2)
    tool, drivers = Tool(tmp_path, own(1), **how), Ahead()
    with staged(tool, drivers) as stage:
        lines_: list[str] = []

        def reported() -> bool:
            return any(line.startswith("hw.npu.util") for line in stage.tick())

        def failed() -> bool:
            lines_[:] = [*stage.tick(), *stage.remarks()]
            return any("# failed" in line and reason in line for line in lines_)

        if "silent_after" in how:
            wait_for(reported if how["silent_after"] else lambda: stage.tick() and tool.runs, LONG, "start of the tool")
            drivers.seconds += LONG + 1  # until when the first report, or another one, is waited for
        wait_for(failed, LONG, f"{reason}; there was {lines_[:3]}")
        assert any(line.startswith("system.cpu.time") for line in lines_), "the host is still reported"
        assert not [line for line in lines_ if line.startswith("hw.npu.util")]
        first = tool.runs[0]["pid"]
        wait_for(lambda: not lives(first), LONG, "end of the tool")
        (tmp_path / "how").write_text('{"faster": 50}')
        drivers.seconds += 2  # the pause before the second run is one second
        wait_for(reported, LONG, "another run")
        assert 2 <= len(tool.runs) <= 4


@linux
def test_garbage_before_the_first_report_is_skipped(tmp_path: Path) -> None:
    tool = Tool(tmp_path, own(1), garbage=["WARNING: old driver", "{", "\x1b[0m"])
    with staged(tool) as stage:
        wait_for(lambda: any(line.startswith("hw.npu.util") for line in stage.tick()), LONG, "report")
        assert not [line for line in stage.remarks() if "# failed" in line]


@linux
def test_silent_neuron_monitor_is_remarked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opentelemetry.instrumentation.hardware.sources.trainium.driver._FIRST_REPORT", 0.2)
    with opened("trainium", **Tool(tmp_path, own(1), silent_after=0).settings) as source:
        assert all_of(source) == {}
        assert source.errors == ["neuron-monitor has not reported yet"]


@linux
def test_neuron_monitor_with_other_output_makes_the_source_ill(tmp_path: Path) -> None:
    tool = Tool(tmp_path, {"hello": "world"})
    with staged(tool) as stage:
        stage.tick()
        assert any("# failed" in line and "not a report" in line for line in stage.remarks())


@linux
def test_neuron_monitor_dies_with_the_killed_program(tmp_path: Path) -> None:
    tool = Tool(tmp_path, own(1))
    with started(command("neuron_reads", tool.settings["neuron_monitor"])) as child:
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "read"
        pid = tool.runs[0]["pid"]
        assert lives(pid)
        child.kill()
        child.wait()
        wait_for(lambda: not lives(pid), LONG, "end of the tool")


# -- absence and periods


def test_neuron_monitor_is_not_run_without_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Tool(tmp_path, own(1))
    monkeypatch.setenv("PATH", str(tmp_path))
    drivers = Npus({**HOST, "/dev/null": ""}, reports_of())
    with pytest.raises(Unavailable, match="no Neuron driver is loaded"):
        open_source(drivers)
    assert drivers.tree is not None
    assert drivers.tree.asked == []
    assert not (tmp_path / "runs").exists()


def test_neuron_monitor_off_still_reads_sysfs() -> None:
    drivers = Npus(HOST | old_files(1, 2, 1) | program(), reports_of())
    source = open_source(drivers, settings={"neuron_monitor": "off"})
    assert series_of(all_of(source), c.AWS_NEURON_NEURONCORE_MEMORY_USAGE)
    assert any("neuron-monitor is switched off" in sentence for sentence in source.unsupported)
    with pytest.raises(Unavailable, match="switched off"):
        open_source(Npus(HOST | {"/dev/neuron0": ""}, reports_of()), settings={"neuron_monitor": "off"})


def test_stale_reports_are_dropped_after_a_pause() -> None:
    files = HOST | {"/dev/neuron0": ""} | program()
    drivers = Npus(files, reports_of(runtime(STRANGER, (0,), 1)))
    source = open_source(drivers)
    assert often(source)
    drivers.become(Npus(files, Speaking([]), up=1005.0))
    assert often(source)
    drivers.become(Npus(files, Speaking([]), up=1060.0))
    assert not often(source)


@pytest.mark.parametrize(("interval", "period"), [(0, 30.0), (0.5, 1.0), (2, 2.0), (2.5, 3.0), (3600, 60.0)])
def test_report_period_is_the_sample_interval_in_whole_seconds(interval: float, period: float) -> None:
    assert period_for(interval) == period
    assert json.loads(configuration(period, True))["period"] == f"{period:.0f}s"


@pytest.mark.parametrize(
    ("config", "period"),
    [
        (b'{"period": "7s"}', 7),
        (b'{"period": "500ms"}', 0.5),
        (b'{"period": "1m"}', 60),
        (b'{"period": "1m30s"}', 90),
        (b'{"period": "1m 30s"}', 5),
        (b'{"period": "30"}', 5),
        (b'{"period": "0s"}', 0.1),
        (b'{"period": 3}', 5),
        (b"", 5),
        (b"[]", 5),
    ],
)
def test_report_period_of_the_users_configuration_is_parsed(config: bytes, period: float) -> None:
    assert configured_period(config) == period


# -- W&B's keys


@linux
def test_wandb_keys_are_of_the_runtime_of_the_process(tmp_path: Path) -> None:
    tool = Tool(tmp_path, own(1, (4, 5)))
    probe = Probe(Config.read(tool.settings, {}), os.getpid())
    try:
        assert probe.expected
        runtime_ = probe.read()
        assert runtime_ is not None
        assert runtime_.percent == {4: 40.0625, 5: 20.03125}
    finally:
        probe.close()
    assert not Probe(Config.read({"neuron_monitor": "off"}, {}), os.getpid()).expected


@linux
def test_snapshot_prints_wandb_keys_of_neuron_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool = Tool(tmp_path, own(1, (4,)))
    line = ["snapshot", "--format", "wandb", "--pid", str(os.getpid()), "--window", "0.1"]
    assert cli.main([*line, "--neuron-monitor", tool.settings["neuron_monitor"]]) == 0
    row = json.loads(capsys.readouterr().out)
    keys = {key: number for key, number in row.items() if key.startswith("trn.")}
    assert keys["trn.4.neuroncore_utilization"] == 40.0625
    assert keys["trn.host_total_memory_usage"] == 610_705_409
    assert keys["trn.neuron_device_total_memory_usage"] == 102_265_561
    assert keys["trn.host_total_memory_usage.dma_buffers"] == 1_048_576
    assert keys["trn.host_memory_usage.dma_buffers"] == 1_048_576
    assert keys["trn.4.neuroncore_memory_usage.tensors"] == 943_608
    assert len(keys) == 3 + 2 * 4 + 5
