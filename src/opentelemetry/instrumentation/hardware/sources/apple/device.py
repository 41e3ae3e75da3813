"""A part of a Mac: its GPU, CPU, Neural Engine, memory, a fan, or the machine as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.model import Number, Point, Rate
from opentelemetry.instrumentation.hardware.sources.apple import fields as f


class Part(Device):
    """A part of a Mac.

    Args:
        given: Its name, if it is called otherwise on this chip.

    Attributes:
        values: Values that the tool reported after the last reading.
    """

    def __init__(self, id: str, model: str, given: str | None = None) -> None:  # noqa: A002 - as in Device
        name, kind, parent = f.PARTS.get(id, (id.replace("fan", "Fan "), "fan", ""))
        super().__init__(id, given or name, kind, parent)
        self.values: Mapping[Field, Number] = {}
        if id == f.GPU:
            self.facts = {c.HW_VENDOR: "Apple", c.GPU_INDEX: 0, c.GPU_TYPE: "integrated"}
            if model:
                self.facts[c.HW_MODEL] = model

    def read(self) -> Iterable[Point]:
        values: dict[Field, Number | Rate] = {**self.values}
        if f.HOST_POWER in self.values:
            values[f.HOST_ENERGY] = Rate(self.values[f.HOST_POWER])
        self.values = {}
        return self.points(values)
