"""Reports of neuron-monitor: parsing, implausible values and recorded output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.sources.machines import STRANGER
from tests.sources.npus import HOST, TRN1, TRN2, npu_host, open_trainium, program, report, runtime
from tests.sources.reading import all_of, often, value
from tests.sources.tree import Speaking
from tests.support.samples import samples
from tests.support.wandb import row

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.sources.trainium.report import ECC, Hardware, parse

RESULT, TAG = c.NEURON_RESULT, c.NEURON_TAG


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


def test_report_without_a_breakdown_has_the_memory_of_runtime_and_device() -> None:
    """As of an inf2.xlarge with runtime 2.30.51, which also names the device's memory otherwise than AWS's guide."""
    document = report([runtime(7, (0, 1), 1, "tag", v3d=True)], 1, 1, TRN2)
    memory = document["neuron_runtime_data"][0]["report"]["memory_used"]["neuron_runtime_used_bytes"]
    del memory["usage_breakdown"]
    memory["device"] = memory.pop("neuron_device")
    assert parse(json.dumps(document).encode()).runtimes[0].used["device"] == memory["device"]
    points = all_of(
        open_trainium(npu_host(HOST | {"/dev/neuron0": ""} | program(7), Speaking([json.dumps(document).encode()])))
    )
    limits = {value for series, value in points.items() if series.metric is c.HW_NPU_MEMORY_LIMIT}
    assert limits == {document["neuron_hardware_info"]["neuron_device_memory_size"]}


def test_hardware_info_with_an_error_is_dropped() -> None:
    parsed = parse(
        json.dumps({**report([], 1, 1, TRN2), "neuron_hardware_info": {**TRN2, "error": "no driver"}}).encode()
    )
    assert parsed.hardware == Hardware()
    assert parsed.errors == ("neuron_hardware_info: no driver",)


def test_runtime_error_is_listed_and_runtime_without_pid_is_dropped() -> None:
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


@pytest.mark.parametrize("path", samples("neuron/neuron-monitor_trn1.2xlarge_neuroncc-2.3.stream.jsonl"))
def test_recorded_neuron_monitor_output_is_parsed(path: Path) -> None:
    first, second, third = path.read_bytes().splitlines()
    parsed = parse(first)
    assert parsed.errors == ()
    assert parsed.ecc == {0: dict.fromkeys(ECC, 0)}
    assert (parsed.hardware.cores, parsed.hardware.memory, parsed.hardware.logical) == (2, None, None)
    machine = HOST | {"/dev/neuron0": ""} | program(1337, 16851)
    values = row("trainium", STRANGER, npu_host(machine, Speaking([first])))
    host = {"application_memory": 609656832, "constants": 0, "dma_buffers": 1048576, "tensors": 0}
    zeros = dict.fromkeys(("constants", "model_shared_scratchpad", "runtime_memory", "tensors"), 0)
    cores = {
        0: zeros | {"constants": 196608, "model_code": 101125344, "tensors": 943608},
        1: zeros | {"model_code": 32768},
    }
    assert values == {
        "trn.0.neuroncore_utilization": 1.3632,
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
    source = open_trainium(npu_host(machine, speaking))
    counters = (
        (c.AWS_NEURON_EXECUTION_COUNT, {RESULT: "completed"}),
        (c.AWS_NEURON_EXECUTION_ERRORS, {c.ERROR_TYPE: "generic"}),
    )
    totals = [[value(all_of(source), *counter) for counter in counters]]
    for line in (second, third):
        speaking.lines = [line]
        once = often(source)
        speaking.lines = []
        totals.append([value(once, *counter) for counter in counters])
    assert totals[0][0] > 0
    assert totals[2][0] - totals[1][0] == 260
    assert totals[2][1] - totals[1][1] == 23749 - 23692


@pytest.mark.parametrize("path", samples("neuron/all-smi_neuron-monitor_trn1.2xlarge_no-runtime.json"))
def test_recorded_neuron_monitor_output_without_a_runtime_is_parsed(path: Path) -> None:
    parsed = parse(path.read_bytes())
    assert parsed.runtimes == ()
    assert (parsed.hardware.model, parsed.hardware.memory) == ("trainium", 34359738368)
