"""Presets: the series that are exported. Each series has a price in the backend.

A preset does not change what is read: spans, ``otel-hardware snapshot``, ``top`` and the keys of W&B have everything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final, NamedTuple

from opentelemetry.instrumentation.hardware.model import Attributes, Metric

_MOST_VALUES: Final = 1000  # values of attributes for which it is known whether the series is exported


class SeriesPattern(NamedTuple):
    """Series of the metrics with such a name, as in ``hw.gpu.utilization{hw.gpu.task=fp*}``.

    Attributes:
        name: A name or a glob, in lower case.
        attribute: An attribute; "" for all series.
        value: Its value or a glob, in lower case.
    """

    name: str
    attribute: str = ""
    value: str = ""

    @classmethod
    def parse(cls, text: str) -> SeriesPattern:
        """Return the pattern that is written so."""
        name, _, condition = text.removesuffix("}").partition("{")
        attribute, _, value = condition.partition("=")
        return cls(name, attribute, value)

    def is_of(self, metric: Metric) -> bool:
        """Whether the metric may have such series."""
        known = not self.attribute or bool(metric.endpoint) or self.attribute in metric.attributes
        return known and fnmatchcase(metric.name.lower(), self.name)

    def matches(self, attributes: Attributes) -> bool:
        """Whether it matches a series of such a metric."""
        return not self.attribute or fnmatchcase(str(attributes.get(self.attribute, "")).lower(), self.value)


def _patterns(text: str) -> tuple[SeriesPattern, ...]:
    return tuple(map(SeriesPattern.parse, text.split()))


PRESETS: Final[Mapping[str, str]] = {
    "minimal": "what most alerts and dashboards need",
    "standard": "what explains them",
    "all": "everything but opt-in metrics",
}

# The series of the preset ``minimal``.
MINIMAL: Final = _patterns(
    """
    hw.gpu.info hw.npu.info hw.status hw.energy hw.power hw.temperature{hw.sensor_location=gpu}
    hw.errors{error.type=uncorrected} hw.gpu.utilization{hw.gpu.task=general} hw.gpu.utilization{hw.gpu.task=tensor}
    hw.gpu.memory.usage hw.gpu.memory.limit hw.npu.utilization hw.npu.memory.usage hw.npu.memory.limit
    system.cpu.utilization{cpu.mode=user} system.cpu.utilization{cpu.mode=system}
    system.cpu.utilization{cpu.mode=iowait} system.memory.usage{system.memory.state=used} system.memory.limit
    system.disk.io system.network.io system.filesystem.utilization{system.filesystem.state=used}
    system.pressure.linux.time{system.pressure.kind=some} container.memory.usage container.memory.limit
    process.cpu.utilization process.memory.usage
    """
)

# The series that the preset ``all`` adds to ``standard``.
NOT_STANDARD: Final = _patterns(
    """
    hw.errors{error.type=sram_*} hw.errors{error.type=pcie_*} hw.gpu.frequency{hw.frequency.domain=graphics}
    hw.gpu.frequency{hw.frequency.domain=video} hw.gpu.frequency.limit hw.gpu.time hw.gpu.memory.utilization
    hw.gpu.memory.peak hw.gpu.nvlink.up hw.gpu.pcie.* hw.gpu.performance_state hw.gpu.sm.occupancy
    hw.gpu.throttle.time{hw.gpu.throttle.reason=slowdown_hw}
    hw.gpu.throttle.time{hw.gpu.throttle.reason=application_clocks}
    hw.gpu.throttle.time{hw.gpu.throttle.reason=sync_boost}
    hw.gpu.throttle.time{hw.gpu.throttle.reason=display_clocks}
    hw.gpu.throttle.time{hw.gpu.throttle.reason=board_limit}
    hw.gpu.throttle.time{hw.gpu.throttle.reason=reliability} hw.gpu.utilization{hw.gpu.task=*coder}
    hw.gpu.utilization{hw.gpu.task=fp*} hw.gpu.utilization{hw.gpu.task=jpeg} hw.gpu.utilization{hw.gpu.task=ofa}
    hw.gpu.utilization.peak hw.power.limit{hw.limit_type=default} hw.power.limit{hw.limit_type=max}
    hw.power.limit{hw.limit_type=min} hw.power.peak hw.power.utilization hw.temperature.peak
    hw.gpu.recovery_action process.gpu.utilization{hw.gpu.task=memory} process.gpu.utilization{hw.gpu.task=*coder}
    otel_hardware.source.read.duration process.context_switches process.memory.utilization process.memory.virtual
    process.paging.faults{system.paging.fault.type=minor} system.cpu.physical.count
    system.cpu.time{cpu.mode=interrupt} system.cpu.time{cpu.mode=nice} system.cpu.utilization{cpu.mode=interrupt}
    system.cpu.utilization{cpu.mode=nice} system.filesystem.limit
    system.filesystem.usage{system.filesystem.state=reserved} system.memory.linux.available
    system.paging.faults{system.paging.fault.type=minor} system.paging.usage{system.paging.state=free}
    """
)


def patterns_of(metric: Metric, texts: Iterable[str] | None) -> list[SeriesPattern]:
    """Return those of the patterns that the metric may have series of."""
    return [pattern for text in texts or () if (pattern := SeriesPattern.parse(text)).is_of(metric)]


def series_filter(
    metric: Metric, preset: str, include: Iterable[str] | None, exclude: Iterable[str] | None
) -> Callable[[Attributes], bool] | None:
    """Return whether a series of the metric is exported; None if all are.

    Args:
        metric: The metric.
        preset: The preset.
        include: Patterns of series that are exported although the preset leaves them out.
        exclude: Patterns of series that are not exported.
    """
    included, excluded = patterns_of(metric, include), patterns_of(metric, exclude)
    minimal = [pattern for pattern in MINIMAL if pattern.is_of(metric)] if preset == "minimal" else [SeriesPattern("*")]
    surplus = [pattern for pattern in NOT_STANDARD if pattern.is_of(metric)] if preset == "standard" else []
    if not excluded and not surplus and SeriesPattern("*") in minimal:
        return None
    names = {pattern.attribute for pattern in (*minimal, *surplus, *included, *excluded)}

    @lru_cache(_MOST_VALUES)
    def keeps(*values: str | int) -> bool:
        attributes = dict(zip(names, values))

        def is_one(patterns: Iterable[SeriesPattern]) -> bool:
            return any(pattern.matches(attributes) for pattern in patterns)

        is_in_preset = is_one(minimal) and not is_one(surplus)
        return (is_in_preset or is_one(included)) and not is_one(excluded)

    return lambda attributes: keeps(*(attributes.get(name, "") for name in names))


def presets_of(metric: Metric) -> list[str]:
    """Return the presets that have series of the metric; none if it is opt-in."""
    if metric.opt_in:
        return []
    # Patterns of NOT_STANDARD without a condition leave out all series, those with one leave out some.
    is_standard = not any(pattern.is_of(metric) and not pattern.attribute for pattern in NOT_STANDARD)
    is_minimal = any(pattern.is_of(metric) for pattern in MINIMAL)
    return ["minimal"] * is_minimal + ["standard"] * is_standard + ["all"]
