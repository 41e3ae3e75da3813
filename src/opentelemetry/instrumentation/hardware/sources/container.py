"""Container: usage, throttling and limits of the observed process's cgroup."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Metric, Point, SeriesCache
from opentelemetry.instrumentation.hardware.sources import SLOW, Reading, Source


class Container(Source):
    """The cgroup of the observed process, or the one above it that limits it (:mod:`~..system.cgroup`)."""

    name = "container"
    rows = ("container.",)

    def open(self) -> None:
        """Find the cgroup.

        Raises:
            Unavailable: The process runs neither in a container nor under a limit, or ``/proc`` belongs to another PID
                namespace.
        """
        self._machine = self.context.drivers.machine()
        self._series = SeriesCache()
        self._machine.cgroup(self.context.pid)

    def readings(self) -> tuple[Reading, Reading]:
        """Return two: no metric is a mean or a peak."""
        return Reading(self.read, SLOW, before_collection=True), Reading(self.read_slow, SLOW)

    def read(self) -> Iterator[Point]:
        cgroup = self._machine.cgroup(self.context.pid, refresh=False)
        yield from self._points(
            (c.CONTAINER_CPU_TIME, cgroup.cpu_time),
            (c.CONTAINER_CPU_THROTTLED_TIME, cgroup.throttled),
            (c.CONTAINER_CPU_PERIODS, cgroup.periods),
            (c.CONTAINER_CPU_THROTTLED_PERIODS, cgroup.throttled_periods),
            (c.CONTAINER_MEMORY_USAGE, cgroup.memory),
            (c.CONTAINER_MEMORY_WORKING_SET, cgroup.working_set),
            (c.CONTAINER_MEMORY_OOM_KILLS, cgroup.oom_kills),
        )
        if cgroup.memory_limit is not None and cgroup.working_set is not None:
            yield self._series[c.CONTAINER_MEMORY_AVAILABLE](max(0, cgroup.memory_limit - cgroup.working_set))
        for (resource, kind), seconds in cgroup.pressure.items():
            which = (c.PRESSURE_RESOURCE, resource, c.PRESSURE_KIND, kind)
            yield self._series[(c.CONTAINER_PRESSURE_TIME, *which)](seconds)

    def read_slow(self) -> Iterator[Point]:
        """Find the cgroup and read its limits again: a running container can be resized."""
        cgroup = self._machine.cgroup(self.context.pid)
        yield from self._points(
            (c.CONTAINER_CPU_LIMIT, cgroup.cpu_limit), (c.CONTAINER_MEMORY_LIMIT, cgroup.memory_limit)
        )

    def _points(self, *values: tuple[Metric, float | None]) -> Iterator[Point]:
        return (self._series[metric](value) for metric, value in values if value is not None)
