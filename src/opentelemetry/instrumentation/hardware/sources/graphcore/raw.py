"""The IPUs of a process at one moment, in the library's own words, for formulas that are not ours."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.config import Config
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.sources import Site
from opentelemetry.instrumentation.hardware.sources.graphcore import Graphcore


class Raw:
    """The IPUs, by the source :class:`~..graphcore.Graphcore`.

    Args:
        config: the settings.
        pid: the observed process.

    Attributes:
        expected: whether there is an IPU, or something names one; if not, there is nothing to read.
        trouble: why there was nothing to read the last time.
    """

    def __init__(self, config: Config, pid: int) -> None:
        self.trouble = ""
        named = any(name.startswith("IPUOF_") for name in os.environ) or config.gcipuinfo not in (None, "auto", "off")
        self.expected = config.gcipuinfo != "off" and (named or _has_node())
        self._config = config
        self._pid = pid
        self._source: Graphcore | None = None

    def read(self) -> Mapping[int, Mapping[str, str]]:
        """By the number of an IPU that the process uses, what is said of it; none where the library fails."""
        try:
            source = self._source or self._open()
            for _ in source.read():
                pass
        except Exception as error:
            self.close()
            self.trouble = str(error)
            return {}
        self.trouble = ""
        return {ipu.id: ipu.words for ipu in source.newest if ipu.pid == self._pid}

    def _open(self) -> Graphcore:
        self._source = source = Graphcore(Site(self._config, Drivers(), self._pid))
        source.open()
        return source

    def close(self) -> None:
        """Let go of the library."""
        source, self._source = self._source, None
        if source is not None:
            source.close()


def _has_node() -> bool:
    with suppress(OSError):
        return any(name.startswith("ipu") for name in os.listdir("/dev"))
    return False


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
