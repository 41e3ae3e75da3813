"""TreeCpuTime: the CPU time that a process tree has used, with the processes that have ended."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.instrumentation.hardware.system.machine import TreeProcess

_AT_ONCE = 0.05
"""Seconds by which the ages of two processes that are read one after the other can be wrong."""


class TreeCpuTime:
    """CPU seconds that a process tree has used since the first walk. They never fall.

    When a process ends, its CPU time leaves the tree. The kernel adds it to the time of the parent's ended children
    when the parent waits for it (``cutime`` in proc_pid_stat(5)). So what a process used between the last walk and its
    end is counted, and what was counted before is not counted twice. Time is lost if no process of the tree waits for
    it: if the parent ignores SIGCHLD, or has ended before it.

    Attributes:
        seconds: The CPU time.
        has_children: Whether there has been a child since the first walk.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.has_children = False
        self._last: dict[int, TreeProcess] = {}
        self._due: dict[int, float] = {}
        self._root_age = 0.0

    def add(self, tree: Sequence[TreeProcess]) -> None:
        """Add what was used since the last walk.

        Args:
            tree: The processes, each behind its parent.
        """
        ended = self._ended({each.pid: each.started for each in tree})
        due: dict[int, float] = {}
        for each in tree:
            before = self._last.get(each.pid)
            if before is not None and before.started == each.started:
                self.seconds += max(0.0, each.cpu_time - before.cpu_time)
                counted = ended.get(each.pid, 0.0)
                gained = each.reaped_cpu_time - before.reaped_cpu_time - self._due.get(each.pid, 0.0) - counted
                self.seconds += max(0.0, gained)
                self.has_children |= gained > 0
                if gained < 0 < counted:
                    # Not waited for yet: the parent was read before it did. It is expected until the next walk.
                    due[each.pid] = min(counted, -gained)
            elif self._last and each.age <= tree[0].age - self._root_age + _AT_ONCE:
                self.seconds += each.cpu_time + each.reaped_cpu_time
            # else it is older than the last walk, which missed it: it counts from now on
        self.has_children |= len(tree) > 1
        self._last = {each.pid: each for each in tree}
        self._due = due
        self._root_age = tree[0].age

    def _ended(self, started: dict[int, float]) -> dict[int, float]:
        """By PID of a parent that lives, the CPU time of its ended descendants that is counted already."""
        counted: dict[int, float] = {}
        for each in reversed(self._last.values()):  # children before their parents
            if started.get(each.pid) != each.started:
                time = each.cpu_time + each.reaped_cpu_time + counted.pop(each.pid, 0.0)
                counted[each.parent] = counted.get(each.parent, 0.0) + time
        return counted
