"""BottleneckTime: the seconds of each verdict, as a metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from opentelemetry.instrumentation.hardware.bottlenecks.judge import Judge
from opentelemetry.instrumentation.hardware.bottlenecks.signals import signals
from opentelemetry.instrumentation.hardware.catalog import GPU_BOTTLENECK, HW_GPU_BOTTLENECK_TIME, HW_ID, HW_NAME
from opentelemetry.instrumentation.hardware.model import Attributes, Metric, Number, Series, Snapshot, Values


class Total(Protocol):
    """A counter that is continued by later sessions."""

    total: Number


class BottleneckTime:
    """Adds up the time of each verdict, at collections. The time between two counts for the verdict at its end.

    Args:
        resume: Returns the counter of a series.
    """

    def __init__(self, resume: Callable[[Series], Total]) -> None:
        self._resume = resume
        self._judge = Judge()
        self._before: tuple[float, Snapshot] | None = None
        self._totals: dict[Series, Total] = {}
        self._names: dict[str, str] = {}

    def add(self, now: float, snapshot: Snapshot, is_limited: bool) -> Values:
        """Add the time since the last call, and return the seconds of each verdict.

        Args:
            now: Monotonic seconds.
            snapshot: What was collected.
            is_limited: See :func:`.signals.signals`.
        """
        if self._before is not None and now > self._before[0]:
            begin, before = self._before
            read: dict[Metric, list[tuple[Number, Attributes]]] = {}
            for _, values in snapshot.readings:
                for metric, points in values.items():
                    read.setdefault(metric, []).extend(points)
            found = signals(lambda metric: read.get(metric, ()), snapshot.rates(before), is_limited)
            self._judge.observe(now, now - begin, found)
            for points in read.values():
                self._names |= {
                    str(each[HW_ID]): str(each[HW_NAME]) for _, each in points if HW_ID in each and HW_NAME in each
                }
            verdicts = self._judge.verdicts()
            for device in found:
                attributes: Attributes = {
                    HW_ID: device,
                    HW_NAME: self._names.get(device, device),
                    GPU_BOTTLENECK: verdicts[device].name,
                }
                series = Series(HW_GPU_BOTTLENECK_TIME, attributes)
                total = self._totals.get(series)
                if total is None:
                    total = self._totals[series] = self._resume(series)
                total.total += now - begin
        self._before = (now, snapshot)
        return {HW_GPU_BOTTLENECK_TIME: [(each.total, series.attributes) for series, each in self._totals.items()]}
