"""The process: CPU, memory, disk, threads and descriptors, and the tree of its descendants."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from math import inf

from opentelemetry.instrumentation.hardware import catalog as c
from opentelemetry.instrumentation.hardware.model import (
    Attributes,
    CounterRatio,
    Metric,
    Point,
    Scope,
    Series,
    SeriesCache,
)
from opentelemetry.instrumentation.hardware.sources import Source
from opentelemetry.instrumentation.hardware.system.machine import Process as Reading
from opentelemetry.instrumentation.hardware.system.machine import TreeProcess, machine

_ABOUT = (
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
"""What of a process is said here; its use of devices is their sources'."""

_READ, _WRITE = {c.DISK_DIRECTION: "read"}, {c.DISK_DIRECTION: "write"}

_NUMBERS: tuple[tuple[str, Metric, Attributes], ...] = (
    ("threads", c.PROCESS_THREAD_COUNT, {}),
    ("virtual", c.PROCESS_MEMORY_VIRTUAL, {}),
    ("resident", c.PROCESS_MEMORY_USAGE, {}),
    ("resident", c.PROCESS_MEMORY_PEAK, {}),
    ("read", c.PROCESS_DISK_IO, _READ),
    ("written", c.PROCESS_DISK_IO, _WRITE),
    ("reads", c.PROCESS_DISK_OPERATIONS, _READ),
    ("writes", c.PROCESS_DISK_OPERATIONS, _WRITE),
    ("voluntary", c.PROCESS_CONTEXT_SWITCHES, {c.SWITCH_TYPE: "voluntary"}),
    ("involuntary", c.PROCESS_CONTEXT_SWITCHES, {c.SWITCH_TYPE: "involuntary"}),
    ("minor", c.PROCESS_PAGING_FAULTS, {c.FAULT_TYPE: "minor"}),
    ("major", c.PROCESS_PAGING_FAULTS, {c.FAULT_TYPE: "major"}),
    ("descriptors", c.PROCESS_FILE_DESCRIPTOR_COUNT, {}),
    ("handles", c.PROCESS_HANDLE_COUNT, {}),
)
"""What is exported as the machine says it: the field of a reading, and its series."""

_GC = {
    c.GC_COLLECTIONS: "collections",
    c.GC_COLLECTED: "collected",
    c.GC_UNCOLLECTABLE: "uncollectable",
}
"""What Python calls these in :func:`gc.get_stats`."""


class Process(Source):
    """The observed process. Every process reports its own."""

    name = "process"
    rows = (*(f"process.{each}" for each in _ABOUT), "cpython.")
    scope = Scope.PROCESS

    def open(self) -> None:
        """Read the process once.

        Raises:
            OSError: where it is gone.
            Unavailable: where it cannot be told which it is.
        """
        self._machine = machine(self.context.drivers)
        self._machine.process(self.context.pid)
        ours = self.context.pid == os.getpid()
        self._gc = [(row, key) for row, key in _GC.items() if ours and self.context.config.wants(row)]
        self._total = self._machine.total_memory()
        self._limit()
        self._available = 0.0
        self._last: float | None = None
        self._alive: Reading | None = None
        self._age: float | None = None
        self._ended = False
        self._tree_points: list[Point] = []
        self._tree: dict[tuple[int, float], float] = {}
        self._tree_cpu = 0.0
        self._walked = inf
        self._of = SeriesCache()
        self._times = [
            (Series(c.PROCESS_CPU_TIME, mode), Series(c.PROCESS_CPU_UTILIZATION, mode))
            for mode in ({c.CPU_MODE: "user"}, {c.CPU_MODE: "system"})
        ]
        self._numbers = [
            (Series(row, which), Reading._fields.index(name))
            for name, row, which in _NUMBERS
            if self.context.config.wants(row)
        ]

    def _limit(self) -> None:
        limits = self._machine.limits(self.context.pid)
        self._cpus = limits.cpus
        sizes = [size for size in (limits.memory, self._total) if size]
        self._memory = min(sizes, default=None)

    def read(self) -> Iterator[Point]:
        """A few files of the process, each read once."""
        reading = self._reading()
        if self._last is not None:
            self._available += (reading.uptime - self._last) * self._cpus
        self._last = reading.uptime
        for (time, utilization), seconds in zip(self._times, (reading.user, reading.system)):
            yield time, seconds
            yield utilization, CounterRatio(seconds, self._available)
        for series, at in self._numbers:
            number = reading[at]
            if number is not None:
                yield series, number
        if self._memory and reading.resident is not None:
            yield self._of[c.PROCESS_MEMORY_UTILIZATION](reading.resident / self._memory)
        if self._alive is not None:
            yield self._of[c.PROCESS_UPTIME](reading.uptime)
        if self._gc:
            for generation, stats in enumerate(gc.get_stats()):
                for row, key in self._gc:
                    yield self._of[row, c.GC_GENERATION, generation](stats[key])

    def _reading(self) -> Reading:
        """The process as it is; of one that has ended the final totals, its size while it lived, and its age when that
        was first seen.
        """
        reading = self._machine.process(self.context.pid)
        self._ended = reading.resident is None
        if not self._ended:
            self._alive, self._age = reading, None
            return reading
        if self._age is None:
            self._age = reading.uptime
        kept = ("threads", "resident", "virtual", "descriptors", "handles")
        sizes = {} if self._alive is None else {name: getattr(self._alive, name) for name in kept}
        return reading._replace(uptime=self._age, **sizes)

    def read_slow(self) -> Iterator[Point]:
        """The limits anew, and one walk over the descendants; once the process has ended, what the last walk found."""
        me = self._alive
        if me is not None and not self._ended:
            self._limit()
            root = TreeProcess(self.context.pid, 0.0, me.uptime, me.user + me.system, me.resident or 0, me.threads or 0)
            self._tree_points = list(self._walk(root))
        yield from self._tree_points

    def _walk(self, root: TreeProcess) -> Iterator[Point]:
        tree = [root]
        for pid in self._machine.tree(self.context.pid):
            try:
                tree.append(self._machine.relative(pid))
            except OSError:
                continue  # it ended meanwhile
        seen = {(each.pid, each.born): each for each in tree}
        for key, each in seen.items():
            # One that was born since the last walk counts in full; one that the walk overlooked, from now on.
            young = each.age <= root.age - self._walked + 0.05
            self._tree_cpu += max(0.0, each.cpu - self._tree.get(key, 0.0 if young else each.cpu))
        self._tree = {key: each.cpu for key, each in seen.items()}
        self._walked = root.age
        yield c.PROCESS_TREE_COUNT(len(tree))
        if len(tree) > 1:
            yield c.PROCESS_TREE_MEMORY_USAGE(sum(each.resident for each in tree))
            yield c.PROCESS_TREE_THREAD_COUNT(sum(each.threads for each in tree))
            yield c.PROCESS_TREE_CPU_UTILIZATION(CounterRatio(self._tree_cpu, self._available))
