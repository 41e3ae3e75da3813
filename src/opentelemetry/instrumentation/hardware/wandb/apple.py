"""W&B's keys of an Apple chip's GPU, in the numbers of the tool that the source uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Point
from opentelemetry.instrumentation.hardware.sources.apple import Apple
from opentelemetry.instrumentation.hardware.wandb.probe import Key, SourceProbe, device_key

_WATTS: Final = 16.5
"""W&B's constant for the power limit of every Apple chip."""

Answer: TypeAlias = "Mapping[str, float]"


class Probe(SourceProbe[Apple, "Mapping[int, Answer]"]):
    """The GPU, under index 0."""

    source_class = Apple

    def convert(self, source: Apple, points: list[Point]) -> Mapping[int, Answer]:
        """Return the tool's numbers."""
        return {0: source.newest.raw} if source.newest else {}


def _key(
    name: str, unit: str, formula: str, value: Callable[[Answer], float | None], *metrics: Metric
) -> Key[Mapping[int, Answer]]:
    return device_key(f"gpu.{{i}}.{name}", unit, formula, value, *metrics)


KEYS: Final[tuple[Key[Mapping[int, Answer]], ...]] = (
    _key(
        "gpu", "%", "`utilization` (macmon: scaled by its frequency)", lambda said: said.get("utilization"),
        c.HW_GPU_UTILIZATION,
    ),
    _key(
        "memoryAllocated", "%", "`mem_used`; else memory in use / allocated", lambda said: said.get("allocated"),
        c.HW_GPU_MEMORY_UTILIZATION,
    ),
    _key(
        "temp", "°C", "`temperature`; else the mean of the GPU's sensors", lambda said: said.get("temperature"),
        c.HW_TEMPERATURE,
    ),
    _key(
        "powerWatts", "W", "`power`; else `systemPower` (macmon: the GPU's)", lambda said: said.get("watts"), c.HW_POWER
    ),
    _key(
        "powerPercent", "%", f"the same / {_WATTS} W, whatever the chip",
        lambda said: said["watts"] / _WATTS * 100 if "watts" in said else None, c.HW_POWER_UTILIZATION,
    ),
)  # fmt: skip
"""What W&B reports of an Apple chip's GPU, now or in an earlier version."""
