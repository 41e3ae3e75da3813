"""The process: CPU, memory, disk, threads and descriptors, and the tree of its descendants."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

from opentelemetry.instrumentation.hardware import vocabulary as v
from opentelemetry.instrumentation.hardware.machine import Process as Reading
from opentelemetry.instrumentation.hardware.machine import Relative, machine
from opentelemetry.instrumentation.hardware.model import Metric, Point, Scope, Series, Share
from opentelemetry.instrumentation.hardware.sources import Source


class Process(Source):
    """The observed process. Every process reports its own."""

    name = "process"
    scope = Scope.PROCESS

    def open(self) -> None:
        """Read the process once.

        Raises:
            OSError: where it is gone.
        """
        self._machine = machine(self.site.drivers)
        self._machine.process(self.site.pid)
        self._wants = {row: self.site.config.wants(row) for row in v.CATALOG}
        self._gc = [row for row in (v.GC_COLLECTIONS, v.GC_COLLECTED, v.GC_UNCOLLECTABLE) if self._wants[row]]
        self._limit()
        self._available = 0.0
        self._last: float | None = None
        self._tree: dict[tuple[int, float], float] = {}
        self._tree_cpu = 0.0
        self._series: dict[tuple[Metric, str, str], Series] = {}

    def _limit(self) -> None:
        limits = self._machine.limits(self.site.pid)
        self._cpus = limits.cpus
        total = self._machine.memory()[0].total
        self._memory = min(limits.memory or total, total)

    def _of(self, row: Metric, name: str = "", value: str = "") -> Series:
        series = self._series.get((row, name, value))
        if series is None:
            series = self._series[row, name, value] = Series(row, {name: value} if name else {})
        return series

    def read(self) -> Iterator[Point]:
        """A few files of the process, each read once."""
        reading = self._machine.process(self.site.pid)
        if self._last is not None:
            self._available += (reading.uptime - self._last) * self._cpus
        self._last = reading.uptime
        for mode, seconds in (("user", reading.user), ("system", reading.system)):
            yield self._of(v.PROCESS_CPU_TIME, v.CPU_MODE, mode)(seconds)
            yield self._of(v.PROCESS_CPU_UTILIZATION, v.CPU_MODE, mode)(Share(seconds, self._available))
        yield self._of(v.PROCESS_THREAD_COUNT)(reading.threads)
        yield self._of(v.PROCESS_MEMORY_USAGE)(reading.resident)
        yield self._of(v.PROCESS_MEMORY_VIRTUAL)(reading.virtual)
        yield self._of(v.PROCESS_MEMORY_PEAK)(reading.resident)
        if self._memory:
            yield self._of(v.PROCESS_MEMORY_UTILIZATION)(reading.resident / self._memory)
        yield self._of(v.PROCESS_UPTIME)(reading.uptime)
        yield from self._counters(reading)
        for row, key in zip(
            (v.GC_COLLECTIONS, v.GC_COLLECTED, v.GC_UNCOLLECTABLE), ("collections", "collected", "uncollectable")
        ):
            if row in self._gc and self.site.pid == os.getpid():
                for generation, stats in enumerate(gc.get_stats()):
                    yield row(stats[key], {v.GC_GENERATION: generation})

    def _counters(self, reading: Reading) -> Iterator[Point]:
        columns = (
            (v.PROCESS_DISK_IO, v.DISK_DIRECTION, "read", reading.read),
            (v.PROCESS_DISK_IO, v.DISK_DIRECTION, "write", reading.written),
            (v.PROCESS_DISK_OPERATIONS, v.DISK_DIRECTION, "read", reading.reads),
            (v.PROCESS_DISK_OPERATIONS, v.DISK_DIRECTION, "write", reading.writes),
            (v.PROCESS_CONTEXT_SWITCHES, v.SWITCH_TYPE, "voluntary", reading.voluntary),
            (v.PROCESS_CONTEXT_SWITCHES, v.SWITCH_TYPE, "involuntary", reading.involuntary),
            (v.PROCESS_PAGING_FAULTS, v.FAULT_TYPE, "minor", reading.minor),
            (v.PROCESS_PAGING_FAULTS, v.FAULT_TYPE, "major", reading.major),
            (v.PROCESS_FILE_DESCRIPTOR_COUNT, "", "", reading.descriptors),
            (v.PROCESS_HANDLE_COUNT, "", "", reading.handles),
        )
        for row, name, value, number in columns:
            if number is not None:
                yield self._of(row, name, value)(number)

    def read_seldom(self) -> Iterator[Point]:
        """The limits anew, and one walk over the descendants."""
        self._limit()
        reading = self._machine.process(self.site.pid)
        me = Relative(self.site.pid, 0.0, reading.user + reading.system, reading.resident, reading.threads)
        tree = [me]
        for pid in self._machine.tree(self.site.pid):
            try:
                tree.append(self._machine.relative(pid))
            except OSError:
                continue  # it ended meanwhile
        seen = {(each.pid, each.born): each.cpu for each in tree}
        for key, cpu in seen.items():
            self._tree_cpu += max(0.0, cpu - self._tree.get(key, cpu if not self._tree else 0.0))
        self._tree = seen
        yield v.PROCESS_TREE_COUNT(len(tree))
        if len(tree) > 1:
            yield v.PROCESS_TREE_MEMORY_USAGE(sum(each.resident for each in tree))
            yield v.PROCESS_TREE_THREAD_COUNT(sum(each.threads for each in tree))
            yield v.PROCESS_TREE_CPU_UTILIZATION(Share(self._tree_cpu, self._available_at(reading.uptime)))

    def _available_at(self, uptime: float) -> float:
        return self._available + (0.0 if self._last is None else (uptime - self._last) * self._cpus)
