"""A part of a Mac: its GPU, CPU, Neural Engine, memory, a fan, or the machine as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.fields import Field
from opentelemetry.instrumentation.hardware.model import Number, Point, Rate
from opentelemetry.instrumentation.hardware.sources.apple.fields import (
    GPU,
    HOST_ENERGY,
    HOST_POWER,
    PARTS,
)


class Part(Device):
    """A part of a Mac.

    Args:
        id: The ``hw.id``.
        model: The name of the chip; "" if unknown.

    Attributes:
        values: Values that the tool reported after the last reading.
    """

    def __init__(self, id: str, model: str) -> None:  # noqa: A002 - as in Device
        name, kind, parent = PARTS.get(id, (id.replace("fan", "Fan "), "fan", ""))
        super().__init__(id, name, kind, parent)
        self.values: Mapping[Field, Number] = {}
        if id == GPU:
            self.facts = {c.HW_VENDOR: "Apple", c.GPU_INDEX: 0, c.GPU_TYPE: "integrated"}
            if model:
                self.facts[c.HW_MODEL] = model

    def read(self) -> Iterable[Point]:
        """Return points for the values that the tool reported since the last reading."""
        values: dict[Field, Number | Rate] = {**self.values}
        if HOST_POWER in self.values:
            values[HOST_ENERGY] = Rate(self.values[HOST_POWER])
        self.values = {}
        return self.points(values)
