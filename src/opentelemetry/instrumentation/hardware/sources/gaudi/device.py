"""A Gaudi accelerator, from a line of hl-smi."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device, DeviceFailed
from opentelemetry.instrumentation.hardware.accelerators.facts import fact, known
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.gaudi.fields import ADDRESS, FACTS, FIELDS, MODULE, UUID


class Hpu(Device):
    """An accelerator.

    Attributes:
        cells: The newest line; empty if the tool does not list it any more.
        seen: When it was listed.
    """

    def __init__(self, index: int, cells: Mapping[str, str]) -> None:
        address = fact(cells.get(ADDRESS, "")).lower()
        uuid = fact(cells.get(UUID, ""))
        super().__init__(uuid or address or f"hpu{index}", f"HPU {index}", "npu", index=index, address=address)
        module = cells.get(MODULE, "")
        self.aliases = (address, f"module{module}") if module.isdecimal() else (address,)
        facts = {name: fact(cells.get(column, "")) for name, column in FACTS.items()}
        self.facts = known({c.HW_VENDOR: "Intel", **facts, c.PCI_BDF: address})
        self.cells: Mapping[str, str] = cells
        self.seen = 0.0

    def read(self) -> Iterator[Point]:
        if not self.cells:
            raise DeviceFailed("hl-smi does not list it any more")
        self.unsupported.clear()
        self.state = "ok"
        yield from self.points({field: self.cells[name] for name, field in FIELDS.items() if name in self.cells})
