"""One IPU, from gcipuinfo's mapping of texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.device import Device
from opentelemetry.instrumentation.hardware.accelerators.facts import fact, known
from opentelemetry.instrumentation.hardware.accelerators.fields import power
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.sources.graphcore.fields import BOARD_POWER, FACTS, FIELDS
from opentelemetry.instrumentation.hardware.system.files import integer

_POWER: Final = power()


class Ipu(Device):
    """An IPU.

    Attributes:
        words: The newest texts by name; empty if the IPU is not listed any more.
        pid: The process that uses it.
        board: The board, if this IPU reports its power, which is that of all its IPUs; None if another one does.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"ipu{number}", f"IPU {number}", "npu", index=number)
        self.words: Mapping[str, str] = {}
        self.pid: int | None = None
        self.board: Device | None = None

    def update(self, words: Mapping[str, str]) -> None:
        """Store the newest texts."""
        self.words = words
        self.pid = integer(words.get("user process id", ""))
        facts = {name: fact(words.get(key, "")) for name, key in FACTS.items()}
        self.facts = known({c.HW_VENDOR: "Graphcore", **facts})
        self.address = str(self.facts.get(c.PCI_BDF, "")).lower()
        state = fact(words.get("ipu error state", "")[:100])
        self.state = "" if not state else "ok" if state.lower() == "no errors" else "degraded"

    def read(self) -> Iterator[Point]:
        words = self.words
        self.unsupported.clear()
        yield from self.points({field: words[name] for name, field in FIELDS.items() if name in words})
        if self.board is not None and BOARD_POWER in words:
            yield from self.board.points({_POWER: words[BOARD_POWER]})
