"""Process: CPU, memory, disk, threads and descriptors of the observed process, and totals of its process tree."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Sequence

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import CounterRatio, Metric, Point, Scope, SeriesCache, Unavailable
from opentelemetry.instrumentation.hardware.sources import SLOW, Reading, Source
from opentelemetry.instrumentation.hardware.system.machine import ONE_ROUND
from opentelemetry.instrumentation.hardware.system.machine import Process as Measured
from opentelemetry.instrumentation.hardware.system.tree import TreeCpuTime

# The groups of ``process.`` metrics that come from this source; the others come from the sources of devices.
_GROUPS = (
    "cpu.",
    "memory.",
    "disk.",
    "context_switches",
    "paging.",
    "thread.",
    "unix.",
    "windows.",
    "uptime",
    "tree.",
)

_READ, _WRITE = (c.DISK_DIRECTION, "read"), (c.DISK_DIRECTION, "write")

# A field of a reading, and the metric and attribute that it is exported as.
_NUMBERS: Sequence[tuple[str, Metric, tuple[str, ...]]] = (
    ("threads", c.PROCESS_THREAD_COUNT, ()),
    ("virtual", c.PROCESS_MEMORY_VIRTUAL, ()),
    ("read", c.PROCESS_DISK_IO, _READ),
    ("written", c.PROCESS_DISK_IO, _WRITE),
    ("reads", c.PROCESS_DISK_OPERATIONS, _READ),
    ("writes", c.PROCESS_DISK_OPERATIONS, _WRITE),
    ("voluntary", c.PROCESS_CONTEXT_SWITCHES, (c.SWITCH_TYPE, "voluntary")),
    ("involuntary", c.PROCESS_CONTEXT_SWITCHES, (c.SWITCH_TYPE, "involuntary")),
    ("minor", c.PROCESS_PAGING_FAULTS, (c.FAULT_TYPE, "minor")),
    ("major", c.PROCESS_PAGING_FAULTS, (c.FAULT_TYPE, "major")),
    ("descriptors", c.PROCESS_FILE_DESCRIPTOR_COUNT, ()),
    ("handles", c.PROCESS_HANDLE_COUNT, ()),
)

# The keys of :func:`gc.get_stats`.
_GC = {
    c.GC_COLLECTIONS: "collections",
    c.GC_COLLECTED: "collected",
    c.GC_UNCOLLECTABLE: "uncollectable",
}


class Process(Source):
    """The observed process. Every process of a job reports its own."""

    name = "process"
    rows = (*(f"process.{each}" for each in _GROUPS), "cpython.")
    scope = Scope.PROCESS

    def open(self) -> None:
        """Read the process once.

        Raises:
            Unavailable: The process has ended, or ``/proc`` belongs to another PID namespace.
        """
        self._machine = self.context.drivers.machine(self.context.walk)
        self._is_own = self.context.pid == os.getpid()
        self._total_memory = self._machine.total_memory()
        try:
            self._newest = self._machine.process(self.context.pid)
            self._read_limits()
        except (FileNotFoundError, ProcessLookupError):
            if self._is_own:
                raise
            raise Unavailable(f"process {self.context.pid} has ended") from None
        self._gc = [(metric, key) for metric, key in _GC.items() if self._is_own and self.context.config.wants(metric)]
        self._available_cpu = 0.0  # CPU seconds that the process could have used so far
        self._last_uptime: float | None = None
        self._last_alive = self._newest if self._newest.resident is not None else None
        self._last_resident = self._newest.resident
        self._end: float | None = None  # uptime at which the process was first seen as a zombie
        self._tree_points: list[Point] = []
        self._span_cpu = TreeCpuTime()
        self._tree_cpu = TreeCpuTime()
        self._series = SeriesCache()
        self._numbers = [number for number in _NUMBERS if self.context.config.wants(number[1])]

    def _read_limits(self) -> None:
        limits = self._machine.limits(self.context.pid)
        self._cpus = limits.cpus
        self._memory_limit = min([size for size in (limits.memory, self._total_memory) if size], default=None)

    def readings(self) -> Sequence[Reading]:
        """Return the usual ones, one of counters, and one for spans.

        The counters of another process are read with the samples: it may end before the next collection.
        """
        sampled, slow = super().readings()
        counters = Reading(self._counters, SLOW if self._is_own else sampled.every, before_collection=True)
        return sampled, counters, slow, Reading(self.read_for_spans, 1.0, for_spans=True)

    def read(self) -> Iterator[Point]:
        """Read the resident memory; after the end of the process, repeat its last value."""
        try:
            resident = self._machine.resident(self.context.pid)
        except OSError:
            if self._is_own:
                raise
            resident = None  # it has ended and was reaped
        if resident is not None:
            self._last_resident = resident
        if self._last_resident is not None:
            yield self._series[c.PROCESS_MEMORY_USAGE](self._last_resident)
            yield self._series[c.PROCESS_MEMORY_PEAK](self._last_resident)
            yield self._series[c.PROCESS_CPU_LIMIT](self._cpus)
            if self._memory_limit:
                yield self._series[c.PROCESS_MEMORY_UTILIZATION](self._last_resident / self._memory_limit)

    def _counters(self) -> Iterator[Point]:
        """Read everything else but the tree; after the end of the process, repeat its last values."""
        reading = self._reading()
        if self._last_uptime is not None:
            self._available_cpu += (reading.uptime - self._last_uptime) * self._cpus
        self._last_uptime = reading.uptime
        for mode, seconds in (("user", reading.user), ("system", reading.system)):
            yield self._series[c.PROCESS_CPU_TIME, c.CPU_MODE, mode](seconds)
            yield self._series[c.PROCESS_CPU_UTILIZATION, c.CPU_MODE, mode](CounterRatio(seconds, self._available_cpu))
        for field, metric, which in self._numbers:
            number = getattr(reading, field)
            if number is not None:
                yield self._series[(metric, *which)](number)
        if self._last_alive is not None:
            yield self._series[c.PROCESS_UPTIME](reading.uptime)
        if self._gc:
            for generation, stats in enumerate(gc.get_stats()):
                for metric, key in self._gc:
                    yield self._series[metric, c.GC_GENERATION, generation](stats[key])

    def _reading(self) -> Measured:
        """Return the current values of the process.

        For a zombie, these are its final totals, its last sizes, and its age at its end. After a process was reaped,
        they are those of the newest reading.
        """
        try:
            reading = self._newest = self._machine.process(self.context.pid)
        except OSError:
            if self._is_own:
                raise
            reading = self._newest._replace(resident=None)
        if reading.resident is not None:
            self._last_alive, self._end = reading, None
            return reading
        if self._end is None:
            self._end = reading.uptime
        if self._last_alive is None:
            return reading._replace(uptime=self._end)
        sizes = ("threads", "virtual", "descriptors", "handles")
        return reading._replace(uptime=self._end, **{name: getattr(self._last_alive, name) for name in sizes})

    def read_for_spans(self) -> Iterator[Point]:
        """Yield CPU time of the process, and memory and CPU time of its tree."""
        root, *others = self._machine.tree(self.context.pid)
        if self._is_own:
            root = root._replace(cpu_time=time.process_time())  # the kernel's files have hundredths of a second
        self._span_cpu.add([root, *others])
        yield self._series[c.PROCESS_CPU_TIME](root.cpu_time)
        yield self._series[c.PROCESS_MEMORY_USAGE](sum(each.resident for each in (root, *others)))
        yield self._series[c.PROCESS_TREE_CPU_UTILIZATION](CounterRatio(self._span_cpu.seconds, 0.0))

    def read_slow(self) -> Iterator[Point]:
        """Read the limits and walk the tree; after the end of the process, repeat the values of the last walk."""
        if self._last_alive is not None and self._end is None:
            try:
                self._read_limits()
                self._tree_points = list(self._walk())
            except OSError:
                if self._is_own:
                    raise
        yield from self._tree_points

    def _walk(self) -> Iterator[Point]:
        tree = self._machine.tree(self.context.pid, ONE_ROUND)
        self._tree_cpu.add(tree)
        yield c.PROCESS_TREE_COUNT(len(tree))
        if len(tree) > 1:
            yield c.PROCESS_TREE_MEMORY_USAGE(sum(each.resident for each in tree))
            if tree[0].threads:
                yield c.PROCESS_TREE_THREAD_COUNT(sum(each.threads for each in tree))
        if self._tree_cpu.has_children:
            yield c.PROCESS_TREE_CPU_UTILIZATION(CounterRatio(self._tree_cpu.seconds, self._available_cpu))
