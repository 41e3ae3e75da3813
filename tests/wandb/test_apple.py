"""W&B's keys of Apple chips, from the source's points."""

from __future__ import annotations

import os

import pytest
from tests.sources.macs import MACS
from tests.support.wandb import row

from opentelemetry.instrumentation.hardware.drivers import Drivers

STORIES = {story.name: story.at for story in MACS}


def wandb_row(mac: Drivers) -> dict[str, float]:
    """W&B's keys of a Mac."""
    return row("apple", os.getpid(), mac, sample_interval=10)


@pytest.mark.parametrize(
    ("story", "keys"),
    [
        (
            "stats-1",
            {"gpu": 41.0, "memoryAllocated": 23.5, "temp": 51.5, "powerWatts": 6.75, "powerPercent": 40.9091},
        ),
        ("stats-2", {"gpu": 0.0, "memoryAllocated": 12.5, "temp": 49.0, "powerWatts": 9.25, "powerPercent": 56.0606}),
        ("macmon-0.6.1", {"gpu": 0.0, "temp": 38.0, "powerWatts": 0.0, "powerPercent": 0.0}),
        ("macmon-0.8.2", {"gpu": 0.0, "temp": 38.0, "powerWatts": 0.0, "powerPercent": 0.0}),
        ("ioreg", {"gpu": 0.0, "memoryAllocated": 18.75}),
    ],
)
def test_wandb_keys_of_each_tool(story: str, keys: dict[str, float]) -> None:
    assert wandb_row(STORIES[story](0)) == {f"gpu.0.{key}": value for key, value in keys.items()}


def test_wandb_utilization_of_macmon_is_the_scaled_one() -> None:
    found = wandb_row(STORIES["macmon-0.8.2"](1))
    assert found["gpu.0.gpu"] == 31.25, "the active ratio is 0.5"
    assert found["gpu.0.powerWatts"] == 5.5, "the mean of two lines"
