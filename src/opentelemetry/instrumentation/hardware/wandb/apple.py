"""An Apple chip as it stands at one moment, in a tool's own numbers, for formulas that are not ours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.apple import Apple
from opentelemetry.instrumentation.hardware.wandb import probe as raw


class Raw(raw.Raw[Apple, Mapping[str, float]]):
    """The chip, by the tool that the source finds."""

    def __init__(self, config: Config, pid: int) -> None:
        super().__init__(Apple, config, pid)

    def _said(self, source: Apple, points: Sequence[Point]) -> Mapping[int, Mapping[str, float]]:
        """By the number of the GPU, of which there is one, :attr:`~.reading.Said.raw`."""
        return {0: source.newest.raw} if source.newest else {}
