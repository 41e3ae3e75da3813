"""Google TPU: what the programs that use it, a TPU node's profiler, or libtpu's SDK say of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.model import Point, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.tpu.presence import Ways
from opentelemetry.instrumentation.hardware.system.files import Files, LocalFiles

if TYPE_CHECKING:  # the rest is imported where there is a TPU
    from opentelemetry.instrumentation.hardware.sources.tpu.reading import Reader

_NONE_HERE = "there is no TPU on the PCI bus, and neither TPU_NAME nor TPU_RUNTIME_METRICS_PORTS names one"


class Tpu(Source):
    """The TPUs of this host, or of a node that the environment names."""

    name = "tpu"
    rows = ("hw.", "google.tpu.")

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import what asks, where there is something to ask."""
        kernel: Files | None = None
        with suppress(Unavailable):
            kernel = LocalFiles()
        expected = bool(Ways(config, os.environ, kernel))
        if expected:
            from opentelemetry.instrumentation.hardware.sources.tpu import rows  # noqa: F401

            with suppress(ImportError):  # open() reports it
                from opentelemetry.instrumentation.hardware.sources.tpu import messages, rpc  # noqa: F401
        return expected

    def open(self) -> None:
        """Find the TPUs.

        Raises:
            Unavailable: there is none, or no way to it.
            OSError: the address of one cannot be looked up now.
        """
        ways = Ways(self.context.config, self.context.environ, kernel_of(self.context.drivers))
        if not ways:
            raise Unavailable(_NONE_HERE)
        from opentelemetry.instrumentation.hardware.sources.tpu.reading import Reader
        from opentelemetry.instrumentation.hardware.sources.tpu.rows import Rows

        self._reader: Reader | None = None
        self._reader = reader = Reader(ways, self.context.config, self.context.environ, self.context.drivers)
        self._rows = Rows(reader)
        self.min_interval = reader.min_interval

    def read(self) -> Iterator[Point]:
        """Five calls of each program; or one look of the profiler's."""
        yield from self._rows.read()
        self._note()

    def read_slow(self) -> Iterator[Point]:
        """What the devices are, and what counts up: eight calls of each program."""
        yield from self._rows.read_slow()
        self._note()

    def _note(self) -> None:
        if self._reader is not None:
            self.unsupported = [*self._reader.unsupported(), *self._rows.unsupported()]
            self.errors = [*self._reader.errors()]


def kernel_of(drivers: Drivers) -> Files | None:
    """The kernel, where it is Linux; elsewhere an address may be named all the same."""
    with suppress(Unavailable):
        return drivers.files()
    return None
