"""An Apple chip by ``macmon pipe``, which says a line every so often for as long as it runs.

https://github.com/vladkens/macmon: up to 0.7 pairs of a frequency and a ratio, from 0.8 on each under its own name
(0.8.1 says both). Its ratios of old, and the scaled ones of today, are shares of what the unit could do at its highest
frequency; the share of time is the active one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from opentelemetry.instrumentation.hardware.drivers.json import number
from opentelemetry.instrumentation.hardware.drivers.streaming import StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Command, Tool
from opentelemetry.instrumentation.hardware.model import Number
from opentelemetry.instrumentation.hardware.sources.apple.reading import (
    ANE,
    CPU,
    GPU,
    HOST,
    MEMORY,
    SRAM,
    Said,
    celsius,
    document,
    hertz,
    mean,
    said,
    share,
    watts,
)

TOOL: Final = Tool(
    "macmon",
    folders=("/opt/homebrew/bin", "/opt/local/bin", "/usr/local/bin"),
    fix="brew install macmon",
)

_PATIENCE = 10.0
"""Seconds until the first line is missed."""

_STRANGE = 20
"""So many lines on end may be no documents."""

_SEES_CHIP = (0, 6, 1)
"""The version from which on it can be asked to say what chip this is."""


class Macmon:
    """The tool, listened to.

    Args:
        command: the tool, to be asked for its version.
        stream: the same, to be listened to.
        interval: seconds between two readings; 0: whenever there is a collection.

    Raises:
        Unavailable: it is gone.
        OSError: it ends, or says nothing.
        ValueError: it says nothing that can be understood.
    """

    name = TOOL.name

    def __init__(self, command: Command, stream: StreamingCommand, interval: float) -> None:
        self.min_interval = min(max(interval or 10.0, 1.0), 20.0)
        period = self._period = self.min_interval / 2  # so that there is a line at every reading, mostly two
        arguments = ["pipe", "-i", str(round(period * 1000))]
        version = re.match(rb"macmon (\d{1,4})\.(\d{1,4})\.(\d{1,4})", command.run(["--version"], _PATIENCE).stdout)
        if version and tuple(map(int, version.groups())) >= _SEES_CHIP:
            arguments.append("--soc-info")
        self._stream = stream
        self._strange = 0
        self._first: Said | None = None
        stream.open(arguments, period)
        try:
            while self._first is None:
                lines = stream.read(max(_PATIENCE, 2 * period))
                if not lines:
                    raise TimeoutError("macmon says nothing")
                self._first = self._understood(lines)
        except BaseException:
            stream.close()
            raise

    def read(self) -> Said | None:
        """The mean of the lines since the last time; None where there is none that is understood.

        Raises:
            OSError: it has ended, or is silent.
            ValueError: it has long said nothing that can be understood.
        """
        first, self._first = self._first, None
        if first:
            return first
        # Where it was held up, because nobody has listened for long, there is no news yet but in a period or two.
        return self._understood(self._stream.read() or self._stream.read(2.5 * self._period))

    def _understood(self, lines: list[bytes]) -> Said | None:
        found = []
        for line in lines:
            try:
                found.append(parse(line))
                self._strange = 0
            except ValueError:
                self._strange += 1
                if self._strange > _STRANGE:
                    raise
        return mean(found) if found else None


def parse(line: bytes) -> Said:
    """What one line says, of any version.

    Raises:
        ValueError: that is nothing that can be understood.
    """
    words = document(line)
    gpu_hertz, scaled = _pair(words, "gpu")
    ratio = share(scaled) if gpu_hertz else None
    cpu = watts(words.get("cpu_power"))
    temperatures = _table(words.get("temp"))
    power = _energy(words, "gpu_power", cpu)
    temperature = celsius(temperatures.get("gpu_temp_avg"))
    parts: dict[str, Mapping[str, Number | None]] = {
        GPU: {
            "utilization.general": share(words.get("gpu_active_ratio")) if gpu_hertz else None,
            "utilization.scaled": ratio,
            "frequency.graphics": gpu_hertz,
            "temperature.gpu": temperature,
            "power": power,
        },
        SRAM: {"power": watts(words.get("gpu_ram_power"))},
        CPU: {"power": cpu, "temperature.cpu": celsius(temperatures.get("cpu_temp_avg"))},
        ANE: {"power": _energy(words, "ane_power", cpu)},
        MEMORY: {"power": watts(words.get("ram_power"))},
        HOST: {"host.power": watts(words.get("sys_power"))},
        **{cluster: {"speed": _pair(words, cluster)[0]} for cluster in ("ecpu", "pcpu")},
        **dict(_fans(words.get("fans"))),
    }
    raw = {
        "utilization": None if ratio is None else ratio * 100,
        "temperature": temperature,
        "watts": power,
    }
    return said(parts, _table(words.get("soc")).get("chip_name"), raw)


def _pair(words: Mapping[str, Any], unit: str) -> tuple[int | None, object]:
    """The frequency of a unit, and its share of what it could do at most: 0 MHz is said where it is not known."""
    old = words.get(f"{unit}_usage")
    megahertz, ratio = old if isinstance(old, list) and len(old) == 2 else (None, None)
    return hertz(words.get(f"{unit}_freq_mhz", megahertz)), words.get(f"{unit}_scaled_ratio", ratio)


def _energy(words: Mapping[str, Any], name: str, cpu: Number | None) -> Number | None:
    """A power that may be 0, where that of the CPU, of the same counters and never 0, shows that they are there."""
    return number(words.get(name), 0, 5000) if cpu else watts(words.get(name))


def _fans(words: object) -> Iterator[tuple[str, Mapping[str, Number | None]]]:
    """Those that say how fast they could be: one that rests says 0, and so does none at all."""
    for index, each in enumerate(words[:16] if isinstance(words, list) else ()):
        fan = _table(each)
        speed, most = number(fan.get("rpm"), 0, 100_000), number(fan.get("max_rpm"), 1, 100_000)
        if speed is not None and most and speed <= 2 * most:
            yield f"fan{index}", {"fan.speed": speed, "fan.ratio": speed / most}


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
