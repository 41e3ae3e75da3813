"""neuron-monitor, listened to; and what the executions of its periods add up to.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Final

from opentelemetry.instrumentation.hardware.drivers.streaming import PERIODS, StreamingCommand
from opentelemetry.instrumentation.hardware.drivers.subprocess import Tool
from opentelemetry.instrumentation.hardware.model import Unavailable
from opentelemetry.instrumentation.hardware.sources.trainium.report import Report, Runtime, parse

TOOL: Final = Tool(
    "neuron-monitor",
    folders=("/opt/aws/neuron/bin",),
    environment=("NEURON_", "AWS_NEURON_"),
    fix="the package aws-neuronx-tools has it; in a container it has to be installed too",
)

_RUNTIME: Final = ("neuroncore_counters", "memory_used", "execution_stats", "neuron_runtime_vcpu_usage")

_OWN_PERIOD: Final = 5.0
"""Seconds between two reports where a configuration does not say otherwise."""

_SELDOM: Final = 30.0
"""The same where it is read with collections only: more reports than a pipe holds would be old ones."""

_UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = r"([0-9]{1,6}(?:\.[0-9]{1,6})?)(ms|s|m|h)"


class Monitor:
    """The tool, as a child of ours for as long as it is open.

    Args:
        stream: it.
        arguments: for it.
        document: the configuration, where it is ours.
        period: seconds between two reports.

    Attributes:
        trouble: why there is no report.
        newest: what it said last.
        at: when that was heard.
    """

    def __init__(self, stream: StreamingCommand, arguments: Sequence[str], period: float, document: str = "") -> None:
        self._stream = stream
        self._arguments = list(arguments)
        self._document = document
        self._period = period
        self._running = False
        self.trouble = ""
        self.newest: Report | None = None
        self.at = 0.0

    def read(self, now: float, seconds: float = 0.0) -> Sequence[Report]:
        """What it has said since the last time; it is started if it does not run.

        Args:
            now: the time.
            seconds: how long is waited for a report.

        Never raises: :attr:`trouble` says what there is.
        """
        try:
            if not self._running:
                self._stream.open(self._arguments, self._period, self._document)
                self.trouble = self.trouble or f"{TOOL.name} has not answered yet"
            self._running = True
            return self._take(self._stream.read(seconds), now)
        except (OSError, Unavailable) as error:  # not yet again, dead, silent; gone
            self._running = False
            self.newest = None
            self.trouble = str(error)
            return ()

    def _take(self, lines: Sequence[bytes], now: float) -> Sequence[Report]:
        heard = []
        for line in lines:
            try:
                self.newest = parse(line)
            except ValueError as error:
                self.trouble = f"{TOOL.name}: {error}"
                continue
            heard.append(self.newest)
            self.trouble = ""
            self.at = now
        if now - self.at > PERIODS * self._period:
            self.newest = None  # nobody has listened for a while, or it says something else
        return heard


class Executions:
    """What runtimes have executed since they are listened to.

    Attributes:
        results: executions, by the name of a group of runtimes and how they ended.
        errors: errors, by the same and type.
    """

    def __init__(self) -> None:
        self._before: dict[tuple[int, str], int] = {}
        self.results: dict[tuple[str, str], int] = {}
        self.errors: dict[tuple[str, str], int] = {}

    def add(self, runtime: Runtime) -> None:
        """Add what a period brought.

        The executions are those of the period, as is documented. Errors are documented so too, but the numbers that
        were recorded are running totals; their increases are right in that case, and never too many in the other.
        """
        name = group(runtime)
        for result, executions in runtime.results.items():
            self.results[name, result] = self.results.get((name, result), 0) + executions
        for kind, errors in runtime.errors.items():
            before = self._before.get((runtime.pid, kind), 0)
            self._before[runtime.pid, kind] = errors
            more = errors - before if errors >= before else errors
            self.errors[name, kind] = self.errors.get((name, kind), 0) + more


def group(runtime: Runtime) -> str:
    """What tells a runtime from others: its tag, if that is not just its number."""
    return "" if runtime.tag.isdigit() else runtime.tag


def period_of(interval: float) -> float:
    """Seconds between two reports, for so many between two readings (0: whenever there is a collection)."""
    return float(math.ceil(min(interval or _SELDOM, 60.0)))


def said_period(config: bytes) -> float:
    """Seconds between two reports, as a configuration has them; what it does not say is what the tool does then."""
    try:
        said = json.loads(config).get("period")
    except (ValueError, AttributeError, RecursionError):
        said = None
    if not (isinstance(said, str) and re.fullmatch(f"(?:{_PART}){{1,4}}", said)):
        return _OWN_PERIOD
    return max(0.1, sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, said)))


def configuration(period: float, system: bool) -> str:
    """What the tool is told to say: of runtimes, and of the devices."""
    runtimes = [{"tag_filter": ".*", "metrics": [{"type": each} for each in _RUNTIME]}]
    said = {
        "period": f"{period:.0f}s",
        "neuron_runtimes": runtimes,
        "system_metrics": [{"type": "neuron_hw_counters"}] if system else [],
    }
    return json.dumps(said)
