"""neuron-monitor, which prints a report per period, and its configuration.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from opentelemetry.instrumentation.hardware.drivers import Drivers
from opentelemetry.instrumentation.hardware.drivers.json import decoded, table
from opentelemetry.instrumentation.hardware.drivers.streaming import Reports, period_for
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool, setting_path
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources.trainium.report import Report, parse

TOOL: Final = Tool(
    "neuron-monitor",
    folders=("/opt/aws/neuron/bin",),
    environment=(
        "AWS_NEURON_VISIBLE_DEVICES",
        "NEURON_RT_LOG_LEVEL",
        "NEURON_RT_NUM_CORES",
        "NEURON_RT_VISIBLE_CORES",
    ),
    fix="install the package aws-neuronx-tools; a container needs it as well",
)

_RUNTIME_METRICS: Final = ("neuroncore_counters", "memory_used", "execution_stats", "neuron_runtime_vcpu_usage")

_TOOL_PERIOD: Final = 5.0  # seconds between two reports if the user's configuration does not set the period

_UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(ms|s|m|h)"


def open_monitor(drivers: Drivers, config: Config, with_devices: bool, clock: Callable[[], float]) -> Reports[Report]:
    """Return the tool with the user's configuration, or with ours. The first read starts it.

    Raises:
        Unavailable: The tool is not installed, or switched off.
    """
    if config.neuron_monitor == "off":
        raise Unavailable(f"{TOOL.name} is switched off")
    stream = drivers.stream(TOOL.with_setting(config.neuron_monitor))
    path, document = setting_path(config.neuron_monitor_config), ""
    if path:
        content = b""
        with suppress(OSError):  # the tool reports it
            content = drivers.files().read(path)
        period = configured_period(content)
    else:
        period = period_for(config.interval)
        document = configuration(period, with_devices)
    return Reports(stream, TOOL.name, parse, ["-c", path or "{document}"], period, document, clock)


def configured_period(config: bytes) -> float:
    """Return the seconds between two reports in a configuration; the tool's default if missing or invalid."""
    period = table(decoded(config)).get("period")
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
