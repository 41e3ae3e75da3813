"""The IPUs of a process at one moment, in the library's own words, for formulas that are not ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

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
