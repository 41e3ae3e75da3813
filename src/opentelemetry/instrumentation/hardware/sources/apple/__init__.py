"""Apple: the GPU and the other parts of an Apple chip, by apple_gpu_stats, macmon, or ioreg, which every Mac has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.fields import Device
from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.model import Number, Point, Rate, Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.sources.apple import ioreg, macmon, stats
from opentelemetry.instrumentation.hardware.sources.apple.macmon import Macmon
from opentelemetry.instrumentation.hardware.sources.apple.reading import ANE, CPU, GPU, HOST, MEMORY, SRAM, Said

_NO_MAC = "this is no Mac"

_DEVICES: Final = {
    GPU: ("GPU 0", "gpu", ""),
    SRAM: ("GPU 0 SRAM", "memory", GPU),
    CPU: ("CPU", "cpu", ""),
    "ecpu": ("E cores", "cpu", CPU),
    "pcpu": ("P cores", "cpu", CPU),
    ANE: ("Neural Engine", "npu", ""),
    MEMORY: ("Memory", "memory", ""),
    HOST: ("machine", "host", ""),
}
"""The parts of a Mac: name, type, and the part that it is a part of. All others are fans."""

_EXPECTED: Final = (
    (f"{c.HW_GPU_UTILIZATION.name} (general)", GPU, "utilization.general"),
    (c.HW_GPU_MEMORY_USAGE.name, GPU, "memory.used"),
    (f"{c.HW_TEMPERATURE.name} of the GPU", GPU, "temperature.gpu"),
    (f"{c.HW_POWER.name} of the GPU", GPU, "power"),
    (f"{c.HW_GPU_FREQUENCY.name}", GPU, "frequency.graphics"),
    (f"{c.HW_POWER.name} of the CPU", CPU, "power"),
    (f"{c.HW_POWER.name} of the Neural Engine", ANE, "power"),
    (f"{c.HW_CPU_SPEED.name}", "pcpu", "speed"),
    (f"{c.HW_HOST_POWER.name}", HOST, "host.power"),
)
"""What a Mac could say, by row; which of it a tool does not say is told to people."""


class Way(Protocol):
    """One of the tools."""

    name: str
    min_interval: float
    """Seconds between two readings, at least."""

    def read(self) -> Said | None:
        """What it says now; None where there is nothing new."""


class Apple(Source):
    """An Apple chip, by the first tool that works: those that the settings name, then those that there are.

    Attributes:
        newest: what the tool said last.
    """

    name = "apple"
    rows = ("hw.",)

    @classmethod
    def prepare(cls, config: Config) -> bool:
        """Import what reads property lists, where there may be one to read."""
        mac = sys.platform == "darwin"
        if mac or ioreg.TOOL.with_setting(config.ioreg).path:
            import plistlib  # noqa: F401
        return mac or any(tool.with_setting(setting).path for tool, setting in _tools(config) if setting != "off")

    def open(self) -> None:
        """Find a tool that works.

        Raises:
            Unavailable: this is no Mac, or there is no tool, or none finds a GPU of Apple's.
            OSError: none works at the moment.
        """
        self._devices: dict[str, Device] = {}
        self._reasons: list[str] = []
        self._seen: set[tuple[str, str]] = set()
        self._way, self._said = self._first()
        self.newest = self._said
        self.min_interval = self._way.min_interval

    def _first(self) -> tuple[Way, Said | None]:
        """The first way that works, with what it says."""
        trouble = False
        for tool, make in self._ways():
            try:
                way = make(tool)
                return way, way.read()
            except Unavailable as gone:
                self._reasons.append(gone.reason + (f" ({gone.fix})" if gone.fix and not tool.path else ""))
            except (OSError, ValueError) as error:
                said = str(error)
                self._reasons.append(said if said.startswith(tool.name) else f"{tool.name}: {said}")
                trouble = True
        if trouble:
            raise OSError("; ".join(self._reasons))
        raise Unavailable("; ".join(self._reasons) or _NO_MAC)

    def _ways(self) -> Iterator[tuple[Tool, Callable[[Tool], Way]]]:
        """The tools that may be tried: first those that the settings name; the others on a Mac alone."""
        config, drivers = self.context.config, self.context.drivers
        makes: tuple[Callable[[Tool], Way], ...] = (
            lambda tool: stats.by(drivers.command(tool)),
            lambda tool: _macmon(drivers, tool, config),
            lambda tool: ioreg.by(drivers.command(tool)),
        )
        known = _tools(config)
        placed = [(tool.with_setting(setting), make) for (tool, setting), make in zip(known, makes) if setting != "off"]
        yield from ((tool, make) for tool, make in placed if tool.path)
        if drivers.python_module("platform").call("system") != "Darwin":
            return
        self._reasons += [f"{tool.name} is switched off" for tool, setting in known if setting == "off"]
        yield from ((tool, make) for tool, make in placed if not tool.path)

    def read(self) -> Iterator[Point]:
        """What the tool says of every part of the machine."""
        said, self._said = self._said or self._way.read(), None
        if said is None:
            return
        self.newest = said
        self.unsupported = [*self._missing(said)]
        facts: dict[str, str | int] = {c.HW_VENDOR: "Apple", c.GPU_INDEX: 0, c.GPU_TYPE: "integrated"}
        yield self._device(GPU).info({**facts, c.HW_MODEL: said.model} if said.model else facts)
        for part, numbers in said.parts.items():
            yield from self._device(part).points(_integrated(numbers))

    def _device(self, part: str) -> Device:
        if part not in self._devices:
            name, kind, parent = _DEVICES.get(part, (part.replace("fan", "Fan "), "fan", ""))
            self._devices[part] = Device(part, name, kind, parent)
        return self._devices[part]

    def _missing(self, said: Said) -> Iterator[str]:
        """Which tool is asked, why no other one, and what it has never said."""
        if self._reasons:
            yield f"{self._way.name} is asked: {'; '.join(self._reasons)}"
        self._seen |= {(part, quantity) for part, numbers in said.parts.items() for quantity in numbers}
        rows = [row for row, *number in _EXPECTED if tuple(number) not in self._seen]
        if rows:
            yield f"{', '.join(rows)}: {self._way.name} does not say this here"


def _tools(config: Config) -> tuple[tuple[Tool, str | None], ...]:
    """The tools in the order in which they are tried, with their settings."""
    return (stats.TOOL, config.apple_gpu_stats), (macmon.TOOL, config.macmon), (ioreg.TOOL, config.ioreg)


def _macmon(drivers: Drivers, tool: Tool, config: Config) -> Macmon:
    return Macmon(drivers.command(tool), drivers.stream(tool), config.interval)


def _integrated(numbers: Mapping[str, Number]) -> Mapping[str, Number | Rate]:
    """The same with the energy of the machine as a whole; that of its parts follows from their power by itself."""
    power = numbers.get("host.power")
    return numbers if power is None else {**numbers, "host.energy": Rate(power)}
