"""Google's `tpu-info` as an independent reader: it shows the values that the source exports."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.sources.reading import all_of, by_id, opened, series_of
from tests.sources.tpus import bus
from tests.sources.tree import Fabricated, Tree
from tests.support import children
from tests.support.samples import samples
from tests.support.wandb import row
from tests.tools.tpu import SERVED, FakeTpu, distribution, doubles, integers, queues, serving
from tpu_info import device, metrics

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.sources.tpu import fields, sdk
from opentelemetry.instrumentation.hardware.sources.tpu.fields import DELIVERY_RATE, ROUND_TRIP

GIB = 1 << 30
KINDS = {"v3": ("0027", "004f", device.TpuChip.V3), "v5e": ("0063", "", device.TpuChip.V5E)}


def at_work(chips: list[int], devices: list[int]) -> FakeTpu:
    """A runtime with every metric that tpu-info requests. Counts make quantiles fall on whole numbers of events."""
    spread = [0, 100, 400, 300, 150, 40, 10, 0]
    return FakeTpu(
        {
            fields.DUTY_CYCLE: doubles({chip: 12.5 + 7 * place for place, chip in enumerate(chips)}),
            fields.MEMORY_TOTAL: integers(dict.fromkeys(devices, 16 * GIB)),
            fields.MEMORY_USED: integers({each: 5 * GIB + each for each in devices}),
            fields.MEMORY_BANDWIDTH: doubles({each: 3.25 * place for place, each in enumerate(devices)}),
            fields.IDLE_DURATION: doubles({each: 1.5 * place for place, each in enumerate(devices)}),
            fields.QUEUE_SIZE: queues({each: 2 * place for place, each in enumerate(devices)}, old=True),
            fields.EXECUTION: [
                distribution(spread, 55.5 + each, device_ordinal=str(each), core_type="tensorcore") for each in devices
            ],
            **{
                name: [distribution(spread, 60.0, buffer_size=size) for size in ("8MB+", "8MB+", "1MB+")]
                for name in (*fields.TRANSFERS.values(), ROUND_TRIP, DELIVERY_RATE)
            },
        }
    )


def test_every_simulated_metric_is_one_of_tpu_info() -> None:
    assert {name: metrics.MetricName[served.tpu_info].value for name, served in SERVED.items()} == {
        name: name for name in (*fields.METRICS, ROUND_TRIP, DELIVERY_RATE)
    }


@pytest.mark.parametrize("path", samples("tpu/libtpu-*_tpumonitoring_*.json"))
def test_every_simulated_metric_is_supported_by_the_recorded_libtpu(path: Path) -> None:
    supported = json.loads(path.read_text())["supported"]
    assert {*sdk.NAMES, *(served.libtpu for served in SERVED.values())} <= {*supported}


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        ({"tpu.runtime.power.watts": doubles({0: 1.0})}, "no TPU serves tpu.runtime.power.watts"),
        ({fields.DUTY_CYCLE: [distribution([0, 1, 0], 1.0)]}, "is served as a gauge"),
        ({fields.EXECUTION: doubles({0: 1.0})}, "is served as a distribution"),
    ],
)
def test_simulated_runtime_refuses_what_no_tpu_serves(samples: dict[str, Any], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        FakeTpu(samples)
    tpu = FakeTpu()
    with pytest.raises(AssertionError, match=why), serving(tpu):
        tpu.metrics |= samples


@pytest.mark.parametrize("kind", KINDS)
def test_tpu_info_shows_the_values_that_are_exported(kind: str) -> None:
    pci, subsystem, chip = KINDS[kind]
    chips, devices = [0, 1], [0, 1, 2, 3] if kind == "v3" else [0, 1]
    machine = Fabricated(Tree(bus(pci, 2, subsystem)))
    with (
        serving(at_work(chips, devices), local=True) as tpu,
        opened("tpu", machine, tpu_runtime=[tpu.address]) as source,
    ):
        found = all_of(source)
        theirs = metrics.get_chip_usage(chip, tpu.address)
        ours = {
            series.attributes[c.HW_NAME]: (value, series.attributes.get(c.HW_PARENT))
            for series, value in series_of(found, c.HW_NPU_MEMORY_USAGE).items()
        }
        limits = {
            series.attributes[c.HW_NAME]: value for series, value in series_of(found, c.HW_NPU_MEMORY_LIMIT).items()
        }
        duty = by_id(found, c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"})
        assert len(duty) == len(chips), "once for each chip"
        assert len(theirs) == len(ours) == len(devices)
        for usage in theirs:
            name = f"TPU core {usage.device_id}" if kind == "v3" else f"TPU {usage.device_id}"
            used, parent = ours[name]
            assert (used, limits[name]) == (usage.memory_usage, usage.total_memory)
            assert duty[str(parent or f"tpu{usage.device_id}")] * 100 == pytest.approx(usage.duty_cycle_pct)
        for row, listed, factor in (
            (c.GOOGLE_TPU_IDLE_DURATION, metrics.get_tensorcore_idle_duration(tpu.address), 1),
            (c.GOOGLE_TPU_HLO_QUEUE_SIZE, metrics.get_hlo_queue_size(chip, tpu.address), 1),
            (c.HW_NPU_UTILIZATION, metrics.get_runtime_hbm_utilization(tpu.address), 100),
        ):
            exported = {
                int(re.findall("[0-9]+", str(series.attributes[c.HW_NAME]))[-1]): value
                for series, value in series_of(found, row).items()
                if series.attributes.get(c.NPU_TASK, "hbm") == "hbm"
            }
            assert {number: value * factor for number, value in exported.items()} == pytest.approx(dict(listed)), (
                row.name
            )
        executions = {
            int(re.findall("[0-9]+", str(series.attributes[c.HW_NAME]))[-1]): value
            for series, value in series_of(found, c.GOOGLE_TPU_HLO_EXECUTION_TIME).items()
        }
        timings = {each.device_id: each.mean * 1000 / 1e6 for each in metrics.get_hlo_exec_timing(chip, tpu.address)}
        assert executions == pytest.approx(timings)


def keys_of(tpu: FakeTpu) -> dict[str, float]:
    return row("tpu", os.getpid(), tpu_runtime=[tpu.address])


NAMES = {
    "bufferTransferLatency": "buffer_transfer_latency",
    "inboundBufferTransferLatency": "inbound_buffer_transfer_latency",
    "hostToDeviceTransferLatency": "host_to_device_transfer_latency",
    "deviceToHostTransferLatency": "device_to_host_transfer_latency",
    "collectiveE2ELatency": "collective_e2e_latency",
    "hostComputeLatency": "host_compute_latency",
}


def test_wandb_quantiles_equal_those_of_tpu_info() -> None:
    with serving(at_work([0, 1], [0, 1])) as tpu:
        ours = keys_of(tpu)
        for key, name in NAMES.items():
            theirs = {each.transfer_size: each for each in metrics.get_transfer_latency(name, tpu.address)}
            for size, label in (("8MB+", "8mbplus"), ("1MB+", "1mbplus")):
                for part in ("p50", "p90", "p95", "p999"):
                    assert ours[f"tpu.{key}.{label}.{part}Us"] == pytest.approx(getattr(theirs[size], part)), (
                        key,
                        part,
                    )
                assert ours[f"tpu.{key}.{label}.meanUs"] == 60.0
        for each in metrics.get_hlo_exec_timing(device.TpuChip.V5E, tpu.address):
            for part in ("mean", "p50", "p90", "p95", "p999"):
                key = f"tpu.hloExecTiming.{each.device_id}_tensorcore.{part}Us"
                assert ours[key] == pytest.approx(getattr(each, part)), key


@pytest.fixture(scope="module")
def machine() -> Any:
    """The output of tpu-info and otel-hardware on the simulated machine of `programs/machines/tpu_machine.py`."""
    if sys.platform != "linux":
        pytest.skip("namespaces are Linux's")
    done = subprocess.run(
        children.command("machines/tpu_machine"),
        env=children.environment(),
        capture_output=True,
        text=True,
        timeout=2 * children.PATIENCE,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(f"namespaces are not allowed here: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_tpu_info_and_snapshot_agree_without_any_setting(machine: Any) -> None:
    lines = re.findall(r"\| ([0-9]+) +\| ([0-9.]+) GiB / ([0-9.]+) GiB \| ([0-9.]+)% +\|", machine["shown"])
    assert len(lines) == 4, machine["shown"]
    ours = {
        (point["name"], point["attributes"].get(c.HW_NAME), point["attributes"].get(c.NPU_TASK)): point["value"]
        for point in machine["ours"]
    }
    for chip, used, total, duty in lines:
        assert ours["hw.npu.memory.usage", f"TPU {chip}", None] / GIB == float(used)
        assert ours["hw.npu.memory.limit", f"TPU {chip}", None] / GIB == float(total)
        assert ours["hw.npu.utilization", f"TPU {chip}", "general"] * 100 == pytest.approx(float(duty))
        assert machine["keys"][f"tpu.{chip}.dutyCycle"] == pytest.approx(float(duty))
        assert machine["keys"][f"tpu.{chip}.memoryUsageBytes"] / GIB == float(used)
    models = [point["attributes"][c.HW_MODEL] for point in machine["ours"] if point["name"] == "hw.npu.info"]
    assert models == ["TPU v6e"] * 4
    assert "Accelerator type: v6e" in machine["shown"]


def test_doctor_calls_an_idle_tpu_normal(machine: Any) -> None:
    found = [each for each in machine["idle"]["findings"] if each["part"] == "sources" and "TPU" in each["text"]]
    assert [each["state"] for each in found] == ["ok", "note"], found
    assert "which is normal while none runs" in found[1]["text"]
