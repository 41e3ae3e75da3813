"""The Neuron runtimes of the observed program, and counts of their executions and errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.accelerators.unsupported import HOST_PIDS
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number, Point
from opentelemetry.instrumentation.hardware.settings import Config
from opentelemetry.instrumentation.hardware.sources import SourceContext
from opentelemetry.instrumentation.hardware.sources.trainium.report import Report, Runtime
from opentelemetry.instrumentation.hardware.system.tree import ProcessTree

_TAG: Final = "NEURON_PROCESS_TAG"

_QUANTILES: Final = ("p50", "p99", "p100")  # quantiles of the latency that are reported by default

_SEVERAL: Final = (
    f"aws.neuron.execution.latency: the program has several runtimes without a tag; give each a {_TAG} that is not a "
    "number"
)

_UNMATCHED: Final = (
    f"aws.neuron.runtime.*, aws.neuron.execution.*: {HOST_PIDS}, or set a {_TAG} that no other process has"
)


class Runtimes:
    """The runtimes of the observed program.

    Attributes:
        newest: The program's runtimes in the newest report.
    """

    def __init__(self, context: SourceContext, program: ProcessTree) -> None:
        self._context = context
        self._program = program
        self._pids: set[int] = set()
        self._executions: dict[tuple[str, str], int] = {}
        self._errors: dict[tuple[str, str], int] = {}
        self._previous_errors: dict[tuple[int, str], int] = {}
        self._is_ambiguous = self._is_unmatched = False
        self.newest: list[Runtime] = []

    def count(self, runtimes: Sequence[Runtime]) -> None:
        """Add the executions and errors of one report.

        Both are documented as counts of the period. Recorded output shows that errors are running totals instead, so
        their increases are added. If they were counts of the period, the sum would be too low, but never too high.
        """
        for runtime in self._of_program(runtimes):
            group = group_of(runtime)
            for result, executions in runtime.results.items():
                self._executions[group, result] = self._executions.get((group, result), 0) + executions
            for kind, errors in runtime.errors.items():
                previous = self._previous_errors.get((runtime.pid, kind), 0)
                self._previous_errors[runtime.pid, kind] = errors
                increase = errors - previous if errors >= previous else errors
                self._errors[group, kind] = self._errors.get((group, kind), 0) + increase

    def update(self, report: Report | None) -> None:
        """Select the program's runtimes in the newest report."""
        self.newest = self._of_program(report.runtimes if report else ())
        if report:
            self._is_unmatched = bool(report.runtimes) and not self.newest and not self._program.on_host

    def _of_program(self, runtimes: Sequence[Runtime]) -> list[Runtime]:
        """Return the program's runtimes: by PID, or by tag if the host's PIDs are not visible."""
        if self._context.all_processes:
            return [*runtimes]
        pids = {runtime.pid for runtime in runtimes}
        if pids != self._pids:
            self._program.refresh()
            self._pids = pids
        program_pids = self._program.among(pids)
        matched = [runtime for runtime in runtimes if runtime.pid in program_pids]
        return matched if matched or self._program.on_host else self._tagged(runtimes)

    def _tagged(self, runtimes: Sequence[Runtime]) -> list[Runtime]:
        """Return the runtimes with the tag of the program, unless several runtimes have the same tag.

        Without NEURON_PROCESS_TAG the tag is the PID of the process in its own container.
        """
        tag = self._context.environ.get(_TAG, "")
        pids = self._program.among_ours(int(each.tag) for each in runtimes if re.fullmatch("[0-9]{1,9}", each.tag))
        program_tags = {tag} if tag else {str(pid) for pid in pids}
        tags = [runtime.tag for runtime in runtimes]
        return [runtime for runtime in runtimes if runtime.tag in program_tags and tags.count(runtime.tag) == 1]

    def points(self, config: Config) -> Iterator[Point]:
        """Yield memory, CPU, executions, errors and latency of the program, by tag."""
        groups: dict[str, list[Runtime]] = {}
        for runtime in self.newest:
            groups.setdefault(group_of(runtime), []).append(runtime)
        self._is_ambiguous = False
        for group, members in groups.items():
            percents = total(each.cpu for each in members)
            tag: Attributes = {c.NEURON_TAG: group} if group else {}
            for metric, attribute, values in (
                (c.AWS_NEURON_RUNTIME_MEMORY_USAGE, c.NEURON_MEMORY_TYPE, total(each.used for each in members)),
                (
                    c.AWS_NEURON_RUNTIME_HOST_MEMORY_USAGE,
                    c.NEURON_MEMORY_CATEGORY,
                    total(each.host for each in members),
                ),
                (
                    c.AWS_NEURON_RUNTIME_CPU_UTILIZATION,
                    c.CPU_MODE,
                    {mode: min(1.0, percent / 100) for mode, percent in percents.items()},
                ),
                (c.AWS_NEURON_EXECUTION_COUNT, c.NEURON_RESULT, _of_group(self._executions, group)),
                (c.AWS_NEURON_EXECUTION_ERRORS, c.ERROR_TYPE, _of_group(self._errors, group)),
            ):
                for name, value in values.items():
                    yield metric(value, {attribute: name, **tag})
            yield from self._latency(members, tag, config)

    def _latency(self, members: Sequence[Runtime], tag: Attributes, config: Config) -> Iterator[Point]:
        """Yield the quantiles of a single runtime. Those of several runtimes cannot be combined."""
        metric: Metric = c.AWS_NEURON_EXECUTION_LATENCY
        latencies = [runtime.latency for runtime in members if runtime.latency]
        if len(latencies) > 1:
            self._is_ambiguous = True
            return
        for (kind, quantile), seconds in latencies[0].items() if latencies else ():
            if quantile in _QUANTILES or config.names(metric):
                yield metric(seconds, {c.NEURON_LATENCY: kind, c.NEURON_QUANTILE: quantile, **tag})

    def unsupported(self) -> Iterator[str]:
        if self._is_ambiguous:
            yield _SEVERAL
        if self._is_unmatched and self._program.computing():
            yield _UNMATCHED


def group_of(runtime: Runtime) -> str:
    """Return the tag of a runtime; "" if it is only a PID."""
    return "" if runtime.tag.isdigit() else runtime.tag


def total(values: Iterable[Mapping[str, Number]]) -> dict[str, Number]:
    """Return the sums by name."""
    sums: dict[str, Number] = {}
    for each in values:
        for name, value in each.items():
            sums[name] = sums.get(name, 0) + value
    return sums


def _of_group(counters: Mapping[tuple[str, str], int], group: str) -> dict[str, Number]:
    return {name: value for (owner, name), value in counters.items() if owner == group}
