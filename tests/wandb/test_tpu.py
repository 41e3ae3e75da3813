"""W&B's keys of TPUs by W&B's formulas: from gRPC servers, a profiler page, and recorded output of libtpu."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.support.wandb import watched
from tests.tools.tpu import FakeTpu, distribution, queues, serving

from opentelemetry.instrumentation.hardware.sources.tpu import fields

GIB = 1 << 30


def read(**settings: Any) -> tuple[dict[str, float], str]:
    """The keys that are read with these settings, and the reason for missing ones."""
    with watched("tpu", os.getpid(), **settings) as watching:
        found = watching.row()
        return found, "" if found else "; ".join(watching.missing)


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


def test_unreachable_runtime_gives_no_wandb_keys_and_a_reason() -> None:
    found, error = read(tpu_runtime="localhost:1")
    assert found == {}
    assert "localhost:1" in error
