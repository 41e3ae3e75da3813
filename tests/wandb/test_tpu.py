"""W&B's keys of TPUs by W&B's formulas: from gRPC servers, a profiler page, and recorded output of libtpu."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.sources.tpus import Bus
from tests.support.wandb import keys, row, watched
from tests.tools.tpu import FakeTpu, distribution, doubles, integers, queues, serving

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.sources.tpu import fields

GIB = 1 << 30


def read(**settings: Any) -> tuple[dict[str, float], str]:
    """The keys that are read with these settings, and the reason for missing ones."""
    with watched("tpu", os.getpid(), **settings) as watching:
        found = watching.row()
        return found, "" if found else "; ".join(watching.missing)


def test_wandb_keys_of_memory_and_duty_cycle() -> None:
    tpu = FakeTpu(
        {
            fields.DUTY_CYCLE: doubles({8: 25.0, 12: 0.0}),
            fields.MEMORY_TOTAL: integers({8: 32 * GIB, 12: 32 * GIB}),
            fields.MEMORY_USED: integers({8: 8 * GIB, 12: 0}),
            fields.MEMORY_BANDWIDTH: doubles({8: 61.5}),
            fields.IDLE_DURATION: doubles({12: 42.0}),
        }
    )
    with serving(tpu):
        assert read(tpu_runtime=tpu.address) == (
            {
                "tpu.8.memoryUsage": 25.0,
                "tpu.12.memoryUsage": 0.0,
                "tpu.8.memoryUsageBytes": 8 * GIB,
                "tpu.12.memoryUsageBytes": 0,
                "tpu.8.dutyCycle": 25.0,
                "tpu.12.dutyCycle": 0.0,
                "tpu.8.hbmCapacityTotal": 32 * GIB,
                "tpu.12.hbmCapacityTotal": 32 * GIB,
                "tpu.8.hbmCapacityUsage": 8 * GIB,
                "tpu.12.hbmCapacityUsage": 0,
                "tpu.8.hbmMemoryUsage": 25.0,
                "tpu.12.hbmMemoryUsage": 0.0,
                "tpu.8.runtimeHbmUtilization": 61.5,
                "tpu.12.tensorcoreIdleDuration": 42.0,
            },
            "",
        )


def test_wandb_duty_cycle_of_a_chip_is_repeated_for_both_cores() -> None:
    tpu = FakeTpu(
        {fields.DUTY_CYCLE: doubles({0: 25.0, 1: 50.0}), fields.MEMORY_TOTAL: integers(dict.fromkeys(range(4), GIB))}
    )
    with serving(tpu):
        found = row("tpu", os.getpid(), Bus("0027"), tpu_runtime=[tpu.address])
    duty = {name: value for name, value in found.items() if name.endswith("dutyCycle")}
    assert duty == {f"tpu.{core}.dutyCycle": 25.0 if core < 2 else 50.0 for core in range(4)}


def test_wandb_keys_of_distributions_have_mean_and_quantiles() -> None:
    tpu = FakeTpu(
        {
            fields.EXECUTION: [distribution([0, 50, 50, 0], 21.0, device_ordinal=1, core_type="tensorcore")],
            fields.TRANSFERS["dcn"]: [
                distribution([0, 10, 0], 12.0, buffer_size="8MB+"),
                distribution([0, 0, 0], 0.0, buffer_size="1MB+"),
            ],
            fields.ROUND_TRIP: [distribution([0, 100, 0], 15.0)],
            fields.DELIVERY_RATE: [distribution([0, 100, 0], 18.0)],
            fields.QUEUE_SIZE: queues({1: 7}),
        }
    )
    with serving(tpu):
        found, _ = read(tpu_runtime=tpu.address)
    # 50 events spread evenly over 10 to 20, 50 over 20 to 40
    quantiles = {"mean": 21.0, "p50": 20.0, "p90": 36.0, "p95": 38.0, "p999": 39.96}
    expected = {f"tpu.hloExecTiming.1_tensorcore.{part}Us": value for part, value in quantiles.items()}
    flat = {"p50": 15.0, "p90": 19.0, "p95": 19.5, "p999": 19.99}
    for key, mean, unit in (
        ("bufferTransferLatency.8mbplus", 12.0, "Us"),
        ("grpcTcpMinRtt", 15.0, "Us"),
        ("grpcTcpDeliveryRate", 18.0, "Mbps"),
    ):
        expected |= {f"tpu.{key}.{part}{unit}": value for part, value in {"mean": mean, **flat}.items()}
    assert found == pytest.approx({"tpu.hloQueueSize.1_tensorcore": 7, **expected})


def test_wandb_key_tpu_is_the_profiler_utilization() -> None:
    tpu = FakeTpu(page="Utilization of TPU Matrix Units (higher is better): 10.1%\n")
    with serving(tpu):
        assert read(tpu_profiler=tpu.address) == ({"tpu": 10.1}, "")


def test_wandb_keys_of_the_libtpu_sdk() -> None:
    core, task = {c.HW_ID: "tpu0", c.HW_NAME: "TPU 0"}, {c.NPU_TASK: "tensorcore"}
    assert keys(
        c.HW_NPU_UTILIZATION(0.125, {**core, **task}),
        c.HW_NPU_UTILIZATION(0.0, {**core, **task, c.HW_ID: "tpu2"}),
        c.GOOGLE_TPU_LINK_HEALTH(0, {c.TPU_LINK: "tray1.chip3.ici0.int"}),
        c.GOOGLE_TPU_LINK_HEALTH(10, {c.TPU_LINK: "tray1.chip3.ici1.int"}),
        c.GOOGLE_TPU_THROTTLE_SCORE(4, {**core, c.HW_ID: "tpu3"}),
    ) == {
        "tpu.0.tensorcoreUtilization": 12.5,
        "tpu.2.tensorcoreUtilization": 0.0,
        "tpu.0.iciLinkHealth": 0,
        "tpu.1.iciLinkHealth": 10,
        "tpu.3.throttleScore": 4,
    }


def test_unreachable_runtime_gives_no_wandb_keys_and_a_reason() -> None:
    found, error = read(tpu_runtime="localhost:1")
    assert found == {}
    assert "localhost:1" in error
