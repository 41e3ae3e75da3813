"""The tools that read an Apple chip: ``apple_gpu_stats``, ``macmon``, and ``ioreg``, which is part of macOS.

``apple_gpu_stats`` was part of wandb's wheels until October 2024. https://github.com/vladkens/macmon
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from opentelemetry.instrumentation.hardware.accelerators.driver import AcceleratorDriver
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Series
from opentelemetry.instrumentation.hardware.sources.apple.device import Part
from opentelemetry.instrumentation.hardware.sources.apple.fields import EXPECTED, PARTS
from opentelemetry.instrumentation.hardware.sources.apple.tool_output import (
    Output,
    mean,
    parse_ioreg,
    parse_macmon,
    parse_stats,
)

STATS: Final = Tool("apple_gpu_stats")
MACMON: Final = Tool(
    "macmon", folders=("/opt/homebrew/bin", "/opt/local/bin", "/usr/local/bin"), fix="brew install macmon"
)
IOREG: Final = Tool("ioreg", folders=("/usr/sbin",), fix="it is part of macOS")

_TIMEOUT = 10.0  # seconds for a run, and for the first line of macmon

_IOREG_ARGUMENTS = ("-a", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")

# Consecutive invalid lines of macmon that are ignored; after more of them, reading fails.
_MAX_INVALID_LINES = 20

# The first version of macmon with ``--soc-info``, which adds the name of the chip.
_SOC_INFO_SINCE = (0, 6, 1)


class AppleDriver(AcceleratorDriver):
    """A tool. Opening it makes the first reading.

    Attributes:
        name: Name of the tool.
    """

    name: ClassVar[str]
    min_interval = 10.0
    is_fresh = True

    def __init__(self, output: Output) -> None:
        self._parts: dict[str, Part] = {}
        self._reported: set[tuple[str, Series]] = set()
        self._update(output)

    @abstractmethod
    def read(self) -> Output | None:
        """Return the current output; None if there is no new one.

        Raises:
            Unavailable: There is no Apple GPU.
            OSError: The tool timed out, exited or could not be started.
            ValueError: The output of the tool is invalid.
        """

    def _update(self, output: Output) -> bool:
        """Pass an output to the parts. Returns whether there are new parts."""
        count = len(self._parts)
        for part, values in output.values.items():
            if part not in self._parts:
                self._parts[part] = Part(part, output.model, output.names.get(part))
            self._parts[part].values = values
            self._reported |= {(part, field.series) for field in values}
        return len(self._parts) > count

    def devices(self) -> Sequence[Part]:
        return [*self._parts.values()]

    def sample(self) -> bool:
        output = self.read()
        return output is not None and self._update(output)

    def unsupported(self) -> Iterator[str]:
        """Yield the metrics that the tool has never reported."""
        missing = [
            f"{field.series.metric.name} of {PARTS[part][0]}"
            for part, field in EXPECTED
            if (part, field.series) not in self._reported
        ]
        if missing:
            yield f"{', '.join(missing)}: not reported by {self.name}"


class Stats(AppleDriver):
    """``apple_gpu_stats``. The first generation needs an argument that the second one does not accept."""

    name = STATS.name

    def __init__(self, command: Command) -> None:
        self._command = command
        super().__init__(self.read())

    def read(self) -> Output:
        try:
            return parse_stats(self._command.run(["--json"], _TIMEOUT).stdout)
        except ValueError:
            return parse_stats(self._command.run([], _TIMEOUT).stdout)


class Ioreg(AppleDriver):
    """``ioreg``, which prints the statistics that the GPU's kernel driver publishes in the I/O registry."""

    name = IOREG.name

    def __init__(self, command: Command) -> None:
        self._command = command
        super().__init__(self.read())

    def read(self) -> Output:
        return parse_ioreg(self._command.run([*_IOREG_ARGUMENTS], _TIMEOUT).stdout)


class Macmon(AppleDriver):
    """``macmon``, which prints a line every few seconds.

    Args:
        command: The tool, to print its version.
        stream: The tool, to print lines.
        interval: Seconds between two readings; 0 for one reading before each collection.
    """

    name = MACMON.name

    def __init__(self, command: Command, stream: StreamingCommand, interval: float) -> None:
        self.min_interval = min(max(interval or 10.0, 1.0), 20.0)
        self._period = self.min_interval / 2  # so that every reading has at least one line, usually two
        self._stream = stream
        self._invalid = 0
        arguments = ["pipe", "-i", str(round(self._period * 1000))]
        version = re.match(rb"macmon (\d{1,4})\.(\d{1,4})\.(\d{1,4})", command.run(["--version"], _TIMEOUT).stdout)
        if version and tuple(map(int, version.groups())) >= _SOC_INFO_SINCE:
            arguments.append("--soc-info")
        stream.open(arguments, self._period)
        try:
            super().__init__(self._first())
        except BaseException:
            stream.close()
            raise

    def _first(self) -> Output:
        while True:
            lines = self._stream.read(max(_TIMEOUT, 2 * self._period))
            if not lines:
                raise TimeoutError("macmon printed nothing")
            output = self._parse(lines)
            if output is not None:
                return output

    def read(self) -> Output | None:
        """Return the mean of the lines since the previous reading."""
        return self._parse(self._stream.read() or self._stream.read(2.5 * self._period))

    def _parse(self, lines: Sequence[bytes]) -> Output | None:
        outputs = []
        for line in lines:
            try:
                outputs.append(parse_macmon(line))
                self._invalid = 0
            except ValueError:
                self._invalid += 1
                if self._invalid > _MAX_INVALID_LINES:
                    raise
        return mean(outputs) if outputs else None
