"""An Apple chip as it stands at one moment, in a tool's own numbers, for formulas that are not ours."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.sources import Site
from opentelemetry.instrumentation.hardware.sources.apple import Apple


class Raw:
    """The chip, by the tool that the source :class:`~..apple.Apple` finds.

    Args:
        config: the settings.
        pid: the observed process.

    Attributes:
        expected: whether this is a Mac, or the settings say where a tool is; if not, there is nothing to read.
        trouble: why there was nothing to read the last time.
    """

    def __init__(self, config: Config, pid: int) -> None:
        self.trouble = ""
        self.expected = sys.platform == "darwin" or any(
            way not in (None, "auto", "off") for way in (config.apple_gpu_stats, config.macmon, config.ioreg)
        )
        self._config = config
        self._pid = pid
        self._source: Apple | None = None

    def read(self) -> Mapping[int, Mapping[str, float]]:
        """By the number of the GPU, of which there is one, :attr:`~.reading.Said.raw`; none where no tool works."""
        try:
            source = self._source or self._open()
            for _ in source.read():
                pass
        except Exception as error:
            self.close()
            self.trouble = str(error)
            return {}
        self.trouble = ""
        return {0: source.newest.raw} if source.newest else {}

    def _open(self) -> Apple:
        self._source = source = Apple(Site(self._config, Drivers(), self._pid))
        source.open()
        return source

    def close(self) -> None:
        """Let go of the tool."""
        source, self._source = self._source, None
        if source is not None:
            source.close()
