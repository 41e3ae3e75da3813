"""A source that is asked at a moment, for what its driver says in its own words: for formulas that are not ours."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Generic, TypeVar

from opentelemetry.instrumentation.hardware.drivers import DriverError, Drivers
from opentelemetry.instrumentation.hardware.model import Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source, SourceContext

Asked = TypeVar("Asked", bound=Source)
Said = TypeVar("Said")


class Raw(ABC, Generic[Asked, Said]):
    """What a source's driver says now. It is opened when it is first read, and anew after it has failed.

    Args:
        source: which.
        config: the settings.
        pid: the observed process.

    Attributes:
        expected: whether there may be anything to read.
        trouble: why there was nothing to read the last time.
    """

    def __init__(self, source: type[Asked], config: Config, pid: int) -> None:
        self.expected = source.prepare(config)
        self.trouble = ""
        self._make = source
        self._site = SourceContext(config, Drivers(), pid)  # for good: drivers know which child could not be killed
        self._held = ExitStack()
        self._source: Asked | None = None

    def read(self) -> Mapping[int, Said]:
        """What is said, by number; nothing where it cannot be asked."""
        try:
            if self._source is None:
                self._source = self._open()
            said = self._said(self._source, [*self._source.read()])
            self.trouble = "; ".join(self._source.errors)
        except Exception as error:
            self.close()
            self.trouble = str(error)
            return {}
        return said

    def _open(self) -> Asked:
        source = self._make(self._site)
        self._held.callback(source.close)
        source.open()
        return source

    @abstractmethod
    def _said(self, source: Asked, points: Sequence[Point]) -> Mapping[int, Said]:
        """What the source has heard with its newest reading, which made these points."""

    def close(self) -> None:
        """Let go of it."""
        self._source = None
        with suppress(DriverError):  # a driver that is gone holds nothing
            self._held.close()
