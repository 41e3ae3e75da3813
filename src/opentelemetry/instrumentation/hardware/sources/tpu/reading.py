"""A TPU, asked in all ways that it can be asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.tpu import profiler, resolver, sdk
from opentelemetry.instrumentation.hardware.sources.tpu.driver import Services
from opentelemetry.instrumentation.hardware.sources.tpu.presence import Ways
from opentelemetry.instrumentation.hardware.sources.tpu.profiler import Profiler
from opentelemetry.instrumentation.hardware.sources.tpu.runtime import Answers, Runtime
from opentelemetry.instrumentation.hardware.sources.tpu.sdk import Sdk


class Reader:
    """Asks a TPU in all ways that it can be asked.

    Args:
        ways: where.
        config: the settings.
        environ: what names a TPU.
        drivers: the ways to it.

    Raises:
        Unavailable: there is no way to it.
        OSError: its address cannot be looked up now.
    """

    def __init__(self, ways: Ways, config: Config, environ: Mapping[str, str], drivers: Drivers) -> None:
        self.chips = ways.chips
        place = ways.profiler
        if resolver.is_name(place):
            place = resolver.resolve(drivers, place, environ)
        self._services: Services | None = None
        if ways.runtime or place:
            self._services = drivers.custom("tpu", Services)
        self._runtime = Runtime(self._services, ways.runtime) if self._services and ways.runtime else None
        self._profiler = Profiler(self._services, place) if self._services and place else None
        self._sdk: Sdk | None = None
        self._not_asked = ""
        if ways.sdk and not self.chips:
            self._not_asked = "libtpu's SDK is not asked: there is no TPU on the PCI bus"
        elif ways.sdk:
            self._sdk = Sdk(drivers.stream(sdk.tool()), config.interval)
        self.min_interval = profiler.PACE if self._profiler else 0.0

    def ask(self, names: tuple[str, ...]) -> list[tuple[str, Answers]]:
        """What the programs that use it say, by their addresses."""
        return self._runtime.ask(names) if self._runtime else []

    def look(self) -> profiler.Said:
        """What its profiler says; see :meth:`.Profiler.read`."""
        return self._profiler.read() if self._profiler else profiler.Said()

    def driver(self) -> sdk.Said:
        """What libtpu's SDK says, if it was asked for."""
        return self._sdk.read() if self._sdk else sdk.NOTHING

    def unsupported(self) -> Iterator[str]:
        """What is not said, and why."""
        if self._not_asked:
            yield self._not_asked
        for way in (self._runtime, self._profiler, self._sdk):
            if way is not None:
                yield from way.unsupported()

    def errors(self) -> Iterator[str]:
        """What goes wrong."""
        if self._runtime is not None:
            yield from self._runtime.errors()
