"""BottleneckTime: the seconds of each verdict as a metric, and an event when it changes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.bottlenecks.judge import Judge, Verdict
from opentelemetry.instrumentation.hardware.bottlenecks.signals import device_names, signals
from opentelemetry.instrumentation.hardware.model import (
    Attributes,
    Counters,
    Event,
    Series,
    Snapshot,
    Values,
    rates,
)


class BottleneckTime:
    """Adds up the time of each verdict, at collections. The time between two counts for the verdict at its end.

    Args:
        resume: Returns the counter of a series; its ``total`` continues that of earlier sessions.

    Attributes:
        events: Changes of verdicts. They are emitted by another thread: nothing may wait in a collection.
    """

    def __init__(self, resume: Callable[[Series], Any]) -> None:
        self._resume = resume
        self._judge = Judge()
        self._before: tuple[float, Counters] | None = None
        self._totals: dict[Series, Any] = {}
        self._names: dict[str, str] = {}
        self._last: dict[str, Verdict] = {}
        self.events: deque[Event] = deque()

    def add(self, now: float, snapshot: Snapshot, is_limited: bool) -> Values:
        """Add the time since the last call, in monotonic seconds, and return the seconds of each verdict.

        ``is_limited`` is that of :func:`.signals.signals`.
        """
        counters = snapshot.counters()
        if self._before is not None and now > self._before[0]:
            begin, before = self._before
            read: Values = {}
            for _, values in snapshot.readings:
                for metric, points in values.items():
                    read.setdefault(metric, []).extend(points)
            found = signals(read, rates(before, counters), is_limited)
            self._judge.observe(now, now - begin, found)
            self._names |= device_names(read)
            verdicts = self._judge.verdicts()
            for device in found:
                verdict, name = verdicts[device], self._names.get(device, device)
                self._note_change(device, name, verdict)
                attributes: Attributes = {c.HW_ID: device, c.HW_NAME: name, c.GPU_BOTTLENECK: verdict.name}
                series = Series(c.HW_GPU_BOTTLENECK_TIME, attributes)
                total = self._totals.get(series)
                if total is None:
                    total = self._totals[series] = self._resume(series)
                total.total += now - begin
        self._before = (now, counters)
        return {c.HW_GPU_BOTTLENECK_TIME: [(each.total, series.attributes) for series, each in self._totals.items()]}

    def _note_change(self, device: str, name: str, verdict: Verdict) -> None:
        """Add an event if a bottleneck begins, ends or becomes another one."""
        before = self._last.get(device)
        self._last[device] = verdict
        if before is None:
            has_changed = verdict.is_bottleneck
        else:
            has_changed = verdict.name != before.name and (verdict.is_bottleneck or before.is_bottleneck)
        if not has_changed:
            return
        after = f", after {before.name}" if before is not None and before.is_bottleneck else ""
        attributes: Attributes = {c.HW_ID: device, c.HW_NAME: name, c.HW_TYPE: "gpu", c.GPU_BOTTLENECK: verdict.name}
        if verdict.advice:
            attributes = {**attributes, c.FAULT_REMEDY: verdict.advice}
        body = f"{name}: {verdict.name}: {verdict.meaning}{after}"
        self.events.append(Event(time.time_ns(), c.BOTTLENECK_EVENT, verdict.name == "failed", body, attributes))
