"""neuron-monitor, which prints a report per period, and its configuration.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.streaming import PERIODS, StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, setting_path
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.trainium.report import Report, parse

TOOL: Final = Tool(
    "neuron-monitor",
    folders=("/opt/aws/neuron/bin",),
    environment=("NEURON_", "AWS_NEURON_"),
    fix="install the package aws-neuronx-tools; a container needs it as well",
)

_RUNTIME_METRICS: Final = ("neuroncore_counters", "memory_used", "execution_stats", "neuron_runtime_vcpu_usage")

_TOOL_PERIOD: Final = 5.0
"""Seconds between two reports if the user's configuration does not set the period."""

_SLOW_PERIOD: Final = 30.0
"""Seconds between two reports if the source is only read before collections."""

_UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(ms|s|m|h)"


class Monitor:
    """neuron-monitor as a child process.

    Args:
        stream: The tool.
        arguments: The arguments of the tool.
        period: Seconds between two reports.
        document: Our configuration; "" if the user has one.

    Attributes:
        error: Why there is no report, or "".
        newest: The newest report; None if it is out of date.
    """

    def __init__(self, stream: StreamingCommand, arguments: Sequence[str], period: float, document: str = "") -> None:
        self._stream = stream
        self._arguments = list(arguments)
        self._document = document
        self._period = period
        self._is_running = False
        self._newest_time = 0.0
        self.error = ""
        self.newest: Report | None = None

    def read(self, now: float, seconds: float = 0.0) -> list[Report]:
        """Return the reports since the previous call, and start the tool if it does not run.

        Args:
            now: Monotonic seconds.
            seconds: Seconds to wait for a report.

        Never raises; :attr:`error` has the reason if there is no report.
        """
        try:
            if not self._is_running:
                self._stream.open(self._arguments, self._period, self._document)
                self.error = self.error or f"{TOOL.name} has not reported yet"
            self._is_running = True
            lines = self._stream.read(seconds)
        except (OSError, Unavailable) as error:
            self._is_running = False
            self.newest = None
            self.error = str(error)
            return []
        reports = []
        for line in lines:
            try:
                self.newest = parse(line)
            except ValueError as error:
                self.error = f"{TOOL.name}: {error}"
                continue
            reports.append(self.newest)
            self.error = ""
            self._newest_time = now
        if now - self._newest_time > PERIODS * self._period:
            self.newest = None  # the source was not read for a while, or the tool prints something else
        return reports


def open_monitor(drivers: Drivers, config: Config, with_devices: bool) -> Monitor:
    """Return the tool with the user's configuration, or with ours. The first read starts it.

    Raises:
        Unavailable: The tool is not installed, or switched off.
    """
    if config.neuron_monitor == "off":
        raise Unavailable(f"{TOOL.name} is switched off")
    stream = drivers.stream(TOOL.with_setting(config.neuron_monitor))
    config_path = setting_path(config.neuron_monitor_config)
    if config_path:
        content = b""
        with suppress(OSError):  # the tool reports it
            content = drivers.files().read(config_path)
        return Monitor(stream, ["-c", config_path], configured_period(content))
    period = period_for(config.interval)
    return Monitor(stream, ["-c", "{document}"], period, configuration(period, with_devices))


def period_for(interval: float) -> float:
    """Return the seconds between two reports for a sampling interval; 0 means reading only before collections."""
    return float(math.ceil(min(interval or _SLOW_PERIOD, 60.0)))


def configured_period(config: bytes) -> float:
    """Return the seconds between two reports in a configuration; the tool's default if missing or invalid."""
    try:
        period = json.loads(config).get("period")
    except (ValueError, AttributeError, RecursionError):
        period = None
    if not (isinstance(period, str) and re.fullmatch(f"(?:{_PART}){{1,4}}", period)):
        return _TOOL_PERIOD
    return max(0.1, sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, period)))


def configuration(period: float, with_devices: bool) -> str:
    """Return a configuration of the tool with the metrics of all runtimes, and of the devices if requested."""
    runtimes = [{"tag_filter": ".*", "metrics": [{"type": each} for each in _RUNTIME_METRICS]}]
    document = {
        "period": f"{period:.0f}s",
        "neuron_runtimes": runtimes,
        "system_metrics": [{"type": "neuron_hw_counters"}] if with_devices else [],
    }
    return json.dumps(document)
