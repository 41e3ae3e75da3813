"""W&B's keys of Graphcore IPUs: those that the process or a child of it uses, from the source's points."""

from __future__ import annotations

from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import NONE, Attributes, Metric, Point
from opentelemetry.instrumentation.hardware.sources.graphcore import Graphcore
from opentelemetry.instrumentation.hardware.wandb.probe import Devices, Key, SourceProbe, by_device, point_key


class Probe(SourceProbe[Graphcore, Devices]):
    """The IPUs that the process or a child of it uses, by their number."""

    source_class = Graphcore

    def convert(self, source: Graphcore, points: list[Point]) -> Devices:
        """Return each used IPU."""
        ipus = by_device(points, source.used)
        return {int(id.removeprefix("ipu")): ipu for id, ipu in ipus.items() if ipu.is_used}  # noqa: A001


def _key(name: str, unit: str, metric: Metric, attributes: Attributes = NONE, factor: float = 1) -> Key[Devices]:
    formula = f"`{name}` of gcipuinfo, of each IPU that the process or a child of it uses"
    return point_key(f"ipu.{{i}}.{name} ({unit})", unit, formula, metric, attributes, factor)


KEYS: Final = (
    _key("average board temp", "C", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "board"}),
    _key("average die temp", "C", c.HW_TEMPERATURE, {c.HW_SENSOR_LOCATION: "die"}),
    _key("clock", "MHz", c.HW_NPU_FREQUENCY, factor=1e-6),
    _key("ipu power", "W", c.HW_POWER),
    _key("ipu utilisation", "%", c.HW_NPU_UTILIZATION, {c.NPU_TASK: "general"}, 100),
    _key("ipu utilisation (session)", "%", c.PROCESS_NPU_UTILIZATION, factor=100),
    _key("speed", "GT/s", c.HW_NPU_LINK_SPEED, factor=1e-9),
)
"""The keys that W&B reported for an IPU until its Go backend became the default (0.18)."""
