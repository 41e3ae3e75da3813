"""The container: what the control group of the observed process used, and the limits that it lives under."""

from __future__ import annotations

from collections.abc import Iterator

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import Point, SeriesCache
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system.machine import machine


class Container(Source):
    """The cgroup of the observed process; limits are read anew, because a running container can be resized."""

    name = "container"
    rows = ("container.",)

    def open(self) -> None:
        """Find the group.

        Raises:
            Unavailable: where the process runs neither in a container nor under a limit, or it cannot be told which
                process it is.
        """
        self._machine = machine(self.context.drivers)
        self._of = SeriesCache()
        self._machine.group(self.context.pid)

    def read(self) -> Iterator[Point]:
        """A handful of the group's files."""
        group = self._machine.group(self.context.pid)
        rows = (
            (c.CONTAINER_CPU_TIME, group.cpu_time),
            (c.CONTAINER_CPU_LIMIT, group.cpu_limit),
            (c.CONTAINER_CPU_THROTTLED_TIME, group.throttled),
            (c.CONTAINER_MEMORY_USAGE, group.memory),
            (c.CONTAINER_MEMORY_WORKING_SET, group.working_set),
            (c.CONTAINER_MEMORY_LIMIT, group.memory_limit),
        )
        for row, value in rows:
            if value is not None:
                yield self._of[row](value)
