"""The IPUs of a process at one moment, in the library's own words, for formulas that are not ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.graphcore import Graphcore
from opentelemetry.instrumentation.hardware.sources.graphcore.device import Ipu
from opentelemetry.instrumentation.hardware.wandb import probe as raw


class Raw(raw.Raw[Graphcore, Mapping[str, str]]):
    """The IPUs; none is expected where the library is switched off."""

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(Graphcore, config, pid)
        self.expected = self.expected and config.gcipuinfo != "off"
        self._pid = pid

    def _said(self, source: Graphcore, points: Sequence[Point]) -> Mapping[int, Mapping[str, str]]:
        """By the number of an IPU that the process uses, what is said of it."""
        ipus = [ipu for ipu in source.selected() if isinstance(ipu, Ipu)]
        return {ipu.index: ipu.words for ipu in ipus if ipu.pid == self._pid}


class IpuKey(NamedTuple):
    """One of W&B's keys.

    Attributes:
        key: ``{i}`` stands for the number of an IPU.
        unit: W&B's own, which is what is cut off the text.
        name: what the library calls it.
    """

    key: str
    unit: str
    name: str

    @property
    def formula(self) -> str:
        """W&B's, in words."""
        return f"`{self.name}` of gcipuinfo, of each IPU that the process itself uses"

    def values(self, ipus: Mapping[int, Mapping[str, str]]) -> Iterator[tuple[str, float]]:
        """The key filled in, with its value, of each IPU that says it."""
        for number, words in ipus.items():
            with suppress(ValueError):
                value = float(words.get(self.name, "").removesuffix(self.unit))
                if math.isfinite(value):
                    yield self.key.format(i=number), int(value) if value == int(value) else value


KEYS: Final = (
    IpuKey("ipu.{i}.average board temp (C)", "C", "average board temp"),
    IpuKey("ipu.{i}.average die temp (C)", "C", "average die temp"),
    IpuKey("ipu.{i}.clock (MHz)", "MHz", "clock"),
    IpuKey("ipu.{i}.ipu power (W)", "W", "ipu power"),
    IpuKey("ipu.{i}.ipu utilisation (%)", "%", "ipu utilisation"),
    IpuKey("ipu.{i}.ipu utilisation (session) (%)", "%", "ipu utilisation (session)"),
    IpuKey("ipu.{i}.speed (GT/s)", "GT/s", "link speed"),
)
"""What W&B's pages say of IPUs."""
