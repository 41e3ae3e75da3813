"""W&B's keys of an Apple chip's GPU, from the source's points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Number, Point
from opentelemetry.instrumentation.hardware.sources.apple import Apple
from opentelemetry.instrumentation.hardware.sources.apple.driver import AppleDriver, Macmon
from opentelemetry.instrumentation.hardware.wandb.probe import (
    DevicePoints,
    Key,
    SourceProbe,
    by_device,
    device_key,
    percent,
)

_WATTS: Final = 16.5
"""W&B's constant for the power limit of every Apple chip."""


class Gpu:
    """The GPU at one moment.

    Attributes:
        points: What the source read.
        watts: Power of the GPU, or of the machine if ``apple_gpu_stats`` reports it.
        allocated: Bytes that are allocated for the GPU; 0 if unknown.
    """

    def __init__(self, points: DevicePoints, watts: Number | None, allocated: Number) -> None:
        self.points = points
        self.watts = watts
        self.allocated = allocated


class Probe(SourceProbe[Apple, "Mapping[int, Gpu]"]):
    """The GPU, under index 0."""

    source_class = Apple

    def convert(self, source: Apple, points: list[Point]) -> Mapping[int, Gpu]:
        """Return the GPU; nothing if the tool has reported nothing new."""
        devices = by_device(points)
        gpu, driver = devices.get("gpu0"), source.driver
        if gpu is None or not isinstance(driver, AppleDriver):
            return {}
        machine = devices.get("host", DevicePoints()).get(c.HW_HOST_POWER)
        watts = gpu.get(c.HW_POWER) if machine is None or isinstance(driver, Macmon) else machine
        return {0: Gpu(gpu, watts, driver.output.allocated)}


def _utilization(gpu: Gpu) -> Number | None:
    scaled = gpu.points.get(c.HW_GPU_UTILIZATION, {c.GPU_TASK: "scaled"}, 100)
    return gpu.points.get(c.HW_GPU_UTILIZATION, {c.GPU_TASK: "general"}, 100) if scaled is None else scaled


def _allocated(gpu: Gpu) -> Number | None:
    share = gpu.points.get(c.HW_GPU_MEMORY_UTILIZATION, factor=100)
    return percent(gpu.points.get(c.HW_GPU_MEMORY_USAGE), gpu.allocated) if share is None else share


def _key(
    name: str, unit: str, formula: str, value: Callable[[Gpu], Number | None], *metrics: Metric
) -> Key[Mapping[int, Gpu]]:
    return device_key(f"gpu.{{i}}.{name}", unit, formula, value, *metrics)


KEYS: Final[tuple[Key[Mapping[int, Gpu]], ...]] = (
    _key(
        "gpu", "%", "utilization (macmon: scaled by the frequency)", _utilization, c.HW_GPU_UTILIZATION
    ),
    _key(
        "memoryAllocated", "%", "`mem_used` of apple_gpu_stats; else memory in use / allocated memory", _allocated,
        c.HW_GPU_MEMORY_UTILIZATION,
    ),
    _key(
        "temp", "°C", "temperature of the GPU",
        lambda gpu: gpu.points.get(c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "gpu"}), c.HW_TEMPERATURE,
    ),
    _key(
        "powerWatts", "W", "power of the GPU; of the machine if apple_gpu_stats reports it", lambda gpu: gpu.watts,
        c.HW_POWER,
    ),
    _key(
        "powerPercent", "%", f"the same / {_WATTS} W, whatever the chip", lambda gpu: percent(gpu.watts, _WATTS),
        c.HW_POWER_UTILIZATION,
    ),
)  # fmt: skip
"""What W&B reports of an Apple chip's GPU, now or in an earlier version."""
