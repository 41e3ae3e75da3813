"""W&B's keys of an Apple chip's GPU, from the source's points."""

from __future__ import annotations

from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Number, Point
from opentelemetry.instrumentation.hardware.sources.apple import Apple
from opentelemetry.instrumentation.hardware.sources.apple.driver import AppleDriver, Macmon
from opentelemetry.instrumentation.hardware.wandb.probe import (
    Device,
    Devices,
    Key,
    SourceProbe,
    by_device,
    device_key,
    extra_key,
    percent,
    point_key,
)

_WATTS: Final = 16.5
"""W&B's constant for the power limit of every Apple chip."""


class Probe(SourceProbe[Apple, Devices]):
    """The GPU, under index 0."""

    source_class = Apple

    def convert(self, source: Apple, points: list[Point]) -> Devices:
        """Return the GPU; nothing if the tool has reported nothing new."""
        devices = by_device(points)
        gpu, driver = devices.get("gpu0"), source.driver
        if gpu is None or not isinstance(driver, AppleDriver):
            return {}
        machine = devices.get("host", Device()).get(c.HW_HOST_POWER)
        share = gpu.get(c.HW_GPU_MEMORY_UTILIZATION, factor=100)
        values = {
            "gpu": gpu.get(c.HW_GPU_UTILIZATION, {c.GPU_TASK: "scaled"}, 100),
            "memoryAllocated": percent(gpu.get(c.HW_GPU_MEMORY_USAGE), driver.output.allocated)
            if share is None
            else share,
            "powerWatts": None if isinstance(driver, Macmon) else machine,
        }
        gpu.values = {key: value for key, value in values.items() if value is not None}
        return {0: gpu}


def _power_percent(gpu: Device) -> Number | None:
    return percent(gpu.values.get("powerWatts", gpu.get(c.HW_POWER)), _WATTS)


KEYS: Final[tuple[Key[Devices], ...]] = (
    point_key(
        "gpu.{i}.gpu", "%", "utilization (macmon: scaled by the frequency)",
        c.HW_GPU_UTILIZATION, {c.GPU_TASK: "general"}, 100,
    ),
    extra_key(
        "gpu.{i}.memoryAllocated", "%", "`mem_used` of apple_gpu_stats; else memory in use / allocated memory",
        c.HW_GPU_MEMORY_UTILIZATION,
    ),
    point_key("gpu.{i}.temp", "°C", "temperature of the GPU", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "gpu"}),
    point_key("gpu.{i}.powerWatts", "W", "power of the GPU; of the machine if apple_gpu_stats reports it", c.HW_POWER),
    device_key(
        "gpu.{i}.powerPercent", "%", f"the same / {_WATTS} W, whatever the chip", _power_percent,
        c.HW_POWER_UTILIZATION,
    ),
)  # fmt: skip
"""The keys that W&B reports for an Apple GPU, now or in an earlier version."""
