"""W&B's keys of Graphcore IPUs: those that the process or a child of it uses, from the source's points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Point
from opentelemetry.instrumentation.hardware.sources.graphcore import Graphcore
from opentelemetry.instrumentation.hardware.wandb.probe import DevicePoints, Key, SourceProbe, by_device, device_key

_ID: Final = "ipu"
"""``hw.id`` of an IPU is this and its number."""


class Probe(SourceProbe[Graphcore, "Mapping[int, DevicePoints]"]):
    """The used IPUs by their number."""

    source_class = Graphcore

    def convert(self, source: Graphcore, points: list[Point]) -> Mapping[int, DevicePoints]:
        """Return each IPU that the process or a child of it uses."""
        return {
            int(name.removeprefix(_ID)): device
            for name, device in by_device(points).items()
            if c.PROCESS_NPU_UTILIZATION in device
        }


def _key(
    name: str, unit: str, metric: Metric, attributes: Attributes, factor: float = 1
) -> Key[Mapping[int, DevicePoints]]:
    formula = f"`{name}` of gcipuinfo, of each IPU that the process or a child of it uses"
    return device_key(
        f"ipu.{{i}}.{name} ({unit})", unit, formula, lambda ipu: ipu.get(metric, attributes, factor), metric
    )


KEYS: Final = (
    _key("average board temp", "C", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "board"}),
    _key("average die temp", "C", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "die"}),
    _key("clock", "MHz", c.HW_NPU_FREQUENCY, {}, 1e-6),
    _key("ipu power", "W", c.HW_POWER, {}),
    _key("ipu utilisation", "%", c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"}, 100),
    _key("ipu utilisation (session)", "%", c.PROCESS_NPU_UTILIZATION, {}, 100),
    _key("speed", "GT/s", c.HW_NPU_LINK_SPEED, {}, 1e-9),
)
"""What W&B reported of an IPU until its Go backend became the default (0.18)."""
